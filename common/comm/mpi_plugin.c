#include "common/comm/mpi_plugin.h"

#include <stdio.h>

#include "common/device/plugin.h"

const struct ls_carrier *ls_mpi_carrier(char *why, size_t capacity) {
    char missing[512];
    const struct ls_mpi_plugin *plugin = ls_plugin_open("ls_mpi.so", "ls_mpi_plugin", missing, sizeof missing);
    if (plugin) return plugin->carrier;
    snprintf(why, capacity,
             "Open MPI 4 is missing: install openmpi-bin libopenmpi-dev libpmix-dev and run make again (%s)", missing);
    return NULL;
}
