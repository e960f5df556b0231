/* The table of ls_mpi.so (plugin.h): Open MPI as the carrier of a group's operations. */
#ifndef LS_COMM_MPI_PLUGIN_H
#define LS_COMM_MPI_PLUGIN_H

#include <stddef.h>

struct ls_carrier; /* carrier.h */

struct ls_mpi_plugin {
    unsigned version; /* LS_PLUGIN_VERSION */
    const struct ls_carrier *carrier;
};

/* The carrier. NULL: the plug-in cannot be loaded; `why` has the reason (not reported). Any thread. */
const struct ls_carrier *ls_mpi_carrier(char *why, size_t capacity);

#endif
