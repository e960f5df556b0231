/* What the files of ls_mpi.so share: the process's part in MPI, and what a group has of it. */
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
    /* of hierarchical: the ranks of this rank's node, and those that have its place on the other nodes (none: there is one
     * node) */
    ls_comm *inner;
    char *stage; /* its ranks' shared memory, LS_MPI_STAGE_BYTES */
    struct ls_mpi_ranks across;
    /* What MPI reads and writes, never the caller's memory: a transfer that this rank no longer waits for may still end. */
    char *memory;
    size_t capacity_bytes;
};

/* Of a group's messages: those of its collective operations, and of its messages between two ranks. */
enum {
    LS_MPI_TAG_COLLECTIVE,
    LS_MPI_TAG_SENDER,
    LS_MPI_TAG_RECEIVER,
    LS_MPI_TAG_DATA,
    LS_MPI_TAG_THANKS,
    LS_MPI_TAGS = 8
};

/* --- the world (mpi_world.c) -------------------------------------------------------------------------------------- */

/* Collective: brings MPI up in the first group of the process, whose ranks become MPI_COMM_WORLD. Fills `ranks` with
 * the group's. Reports its failure and breaks the group. */
ls_status ls_mpi_join_world(ls_comm *comm, const ls_comm_options *options, struct ls_mpi_ranks *ranks);

/* Breaks the group with what MPI says of its error. */
ls_status ls_mpi_fail(ls_comm *comm, const ls_announcement *what, int error);

/* --- what stands for mpirun (mpi_server.c) ------------------------------------------------------------------------ */

/* Gives this process the environment in which MPI_Init finds ls_pmix, which the host's lowest rank starts. */
ls_status ls_mpi_server_join(ls_comm *comm, const ls_comm_options *options);

/* Whether the exchange between hosts has failed (and reported it). Any thread. */
bool ls_mpi_server_has_failed(void);

/* Once MPI is up on all of the host's ranks, or will not be: takes back what join has done. */
void ls_mpi_server_leave(bool in_good_order);

/* --- operations (mpi_operations.c, mpi_messages.c) ---------------------------------------------------------------- */

ls_status ls_mpi_run_collective(const ls_operation *operation);
ls_status ls_mpi_run_message(const ls_operation *operation);

/* Memory of so many bytes at least, until the next call; NULL: reported, the group is broken. */
char *ls_mpi_memory(ls_comm *comm, size_t nbytes);

/* Lets MPI go on, which knows no thread of its own: bytes of requests that are done here may not have left yet. True. */
bool ls_mpi_progress(void *context);

/* Waits until all requests are done, watching `peer` (LS_POLLED: all ranks). */
ls_status ls_mpi_await(ls_comm *comm, const ls_announcement *what, int peer, MPI_Request *requests, int count);

/* Bytes of a message or a part that MPI gets in one piece. */
#define LS_MPI_PIECE_BYTES ((size_t)32 << 20)
#define LS_MPI_STAGE_BYTES ((size_t)8 << 20)

#endif
