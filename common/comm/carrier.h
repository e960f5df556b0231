/* A carrier moves the data of operations on host memory if ranks do not share all their memory: an existing library
 * (MPI), in a plug-in. The control area remains the group's own (shared memory within a host, mirror.h between hosts),
 * so that barriers, flight records, and the detection of dead, late and failed ranks do not depend on the carrier. */
#ifndef LS_COMM_CARRIER_H
#define LS_COMM_CARRIER_H

#include "common/comm/comm_internal.h"

struct ls_carrier {
    const char *name; /* "mpi": ls_comm_backend */
    /* Collective, host-blocking, in the thread that creates the group, once all ranks have joined the control area.
     * Reports its failure and breaks the group, within options->timeout_s. Fills comm->carrier_state. */
    ls_status (*join)(ls_comm *comm, const ls_comm_options *options);
    /* Runs a checked and numbered operation on host memory, of a group of two or more, in the thread that runs the
     * stream (the enqueueing thread if streams run inline). Ends at the group's deadline and watches the group
     * meanwhile (wait.h: ls_comm_check, ls_comm_only_lost, ls_comm_compare_enqueued); a failure is reported and breaks
     * the group. Counts the data that it moves (ls_comm_count_sent, ls_comm_count_received). */
    ls_status (*run)(const ls_operation *operation);
    /* Once, before the rank counts as gone; also after a join that failed half-way. Bounded in time. */
    void (*leave)(ls_comm *comm);
};

#endif
