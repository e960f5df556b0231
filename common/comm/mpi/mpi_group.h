/* Shared by the files of ls_mpi.so: the process's use of MPI, and a group's state. */
#ifndef LS_COMM_MPI_MPI_GROUP_H
#define LS_COMM_MPI_MPI_GROUP_H

#include <mpi.h>

#include "common/comm/carrier.h"
#include "common/comm/wait.h"

/* Some of MPI_COMM_WORLD's ranks, and which of them is this one. */
struct ls_mpi_ranks {
    int rank[LS_COMM_MAX_RANKS], count, self;
};

/* comm->carrier_state */
struct ls_mpi_group {
    struct ls_mpi_ranks all; /* the group's */
    int tag;                 /* the first of its LS_MPI_TAGS */
    /* for hierarchical: the ranks of this rank's node, and the ranks with the same index on the other nodes (none: one
     * node) */
    ls_comm *inner;
    char *stage; /* its ranks' shared memory, LS_MPI_STAGE_BYTES */
    struct ls_mpi_ranks across;
    /* MPI reads and writes only this memory, never the caller's, since a transfer may complete after this rank has
     * stopped waiting for it. */
    char *memory;
    size_t capacity_bytes;
};

/* The kinds of a group's MPI messages: of its collective operations, and of its messages between two ranks. */
enum {
    LS_MPI_TAG_COLLECTIVE,
    LS_MPI_TAG_SENDER,
    LS_MPI_TAG_RECEIVER,
    LS_MPI_TAG_DATA,
    LS_MPI_TAG_THANKS,
    LS_MPI_TAGS = 8
};

/* --- the world (mpi_world.c) -------------------------------------------------------------------------------------- */

/* Collective: initialises MPI in the first group of the process, whose ranks become MPI_COMM_WORLD. Fills `ranks` with
 * the group's. Reports its failure and breaks the group. */
ls_status ls_mpi_join_world(ls_comm *comm, const ls_comm_options *options, struct ls_mpi_ranks *ranks);

/* Breaks the group, with MPI's text for the error. */
ls_status ls_mpi_fail(ls_comm *comm, const ls_announcement *what, int error);

/* --- the replacement of mpirun (mpi_server.c) --------------------------------------------------------------------- */

/* Gives this process the environment in which MPI_Init finds ls_pmix, which the host's lowest rank starts. */
ls_status ls_mpi_server_join(ls_comm *comm, const ls_comm_options *options);

/* Whether the exchange between hosts has failed (and reported it). Any thread. */
bool ls_mpi_server_has_failed(void);

/* Undoes join, once MPI is initialised on all of the host's ranks or has failed. */
void ls_mpi_server_leave(bool in_good_order);

/* --- operations (mpi_operations.c, mpi_messages.c) ---------------------------------------------------------------- */

ls_status ls_mpi_run_collective(const ls_operation *operation);
ls_status ls_mpi_run_message(const ls_operation *operation);

/* Memory of at least `nbytes` bytes, until the next call; NULL: reported, the group is broken. */
char *ls_mpi_memory(ls_comm *comm, size_t nbytes);

/* Lets MPI make progress, which has no thread of its own: data of requests that are complete here may not have been
 * sent yet. Returns true. */
bool ls_mpi_progress(void *context);

/* Waits until all requests are done, watching `peer` (LS_POLLED: all ranks). */
ls_status ls_mpi_await(ls_comm *comm, const ls_announcement *what, int peer, MPI_Request *requests, int count);

/* Bytes of a message or a part that MPI gets in one piece. */
#define LS_MPI_PIECE_BYTES ((size_t)32 << 20)
#define LS_MPI_STAGE_BYTES ((size_t)8 << 20)

#endif
