#include "common/comm/mpi_plugin.h"

#include "common/device/plugin.h"

const struct ls_carrier *ls_mpi_carrier(char *why, size_t capacity) {
    const struct ls_mpi_plugin *plugin = ls_plugin_open("ls_mpi.so", "ls_mpi_plugin", why, capacity);
    return plugin ? plugin->carrier : NULL;
}
