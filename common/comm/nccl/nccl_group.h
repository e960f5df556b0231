/* Shared by the files of the NCCL plug-in. */
#ifndef LS_COMM_NCCL_NCCL_GROUP_H
#define LS_COMM_NCCL_NCCL_GROUP_H

#include <nccl.h>

#include "common/comm/comm_internal.h"
#include "common/comm/nccl_plugin.h"
#include "common/device/cuda/lane.h"

/* The most unfinished operations that are remembered, to be named if they fail. */
#define LS_NCCL_PENDING 512

struct ls_nccl_pending {
    cudaEvent_t event; /* recorded after the operation; created at the entry's first use */
    ls_announcement what;
    ls_flight_mark mark;
    double seen_us; /* when a waiting thread first found it unfinished; 0: not yet */
};

/* The ranks of one process, which NCCL requires to be destroyed together. */
struct ls_nccl_crew {
    int size;
    _Atomic int open;
    _Atomic bool aborted;                       /* one of the communicators was aborted */
    ncclComm_t communicator[LS_COMM_MAX_RANKS]; /* by index in the crew; NULL: aborted */
    int gpu[LS_COMM_MAX_RANKS];                 /* likewise */
};

struct ls_nccl_ending; /* nccl_leave.c: a communicator that is being destroyed */

struct ls_nccl_group {
    /* constant after attach */
    ls_comm *comm;
    ls_device *device;
    int gpu;
    struct ls_nccl_crew *crew;
    int place;                  /* in the crew */
    void *scratch;              /* for barriers */
    struct ls_nccl_group *next; /* of the process; nccl_leave.c */
    /* Another group of its GPU has failed: the thread inside aborts this group when it leaves. */
    _Atomic bool doomed;
    /* A thread that enqueues, or that waits and checks: NCCL allows one call at a time. */
    _Atomic int inside;
    /* the thread inside */
    ncclComm_t nccl;               /* NULL: aborted */
    struct ls_nccl_ending *ending; /* of the aborted communicator; NULL: none, or finished */
    bool captured;                 /* operations were captured into graphs, whose launches are not observed here */
    ls_announcement last_captured;
    double look_us, patrol_us; /* when to check the operations, and the other ranks, again */
    size_t first, pending_count;
    struct ls_nccl_pending pending[LS_NCCL_PENDING]; /* a ring: the oldest one is at `first` */
};

/* --- nccl_watch.c ------------------------------------------------------------------------------------------------- */

/* Waits until no other thread is inside. Between enter and leave nothing waits for the device. */
void ls_nccl_enter(struct ls_nccl_group *group);
bool ls_nccl_try_enter(struct ls_nccl_group *group);
void ls_nccl_leave(struct ls_nccl_group *group);

/* The watcher (ls_device_watch) of a group. */
ls_status ls_nccl_watch(void *group, double waited_us);

/* Inside: notes that the operation was put on the stream, or is being captured into a graph. */
ls_status ls_nccl_remember(struct ls_nccl_group *group, const ls_operation *operation, ls_stream *stream);

/* Inside: forgets finished operations. Returns whether any are left. */
bool ls_nccl_is_busy(struct ls_nccl_group *group);

/* Inside: waits until a non-blocking communicator has finished the call that returned `result`. NCCL's error, a group
 * broken meanwhile, a rank that dies, and the group's timeout are failures: reported, and the group is broken. */
ls_status ls_nccl_await_call(struct ls_nccl_group *group, ncclResult_t result, const ls_announcement *what);

/* Checks whether the GPU of `mate`, another group, has failed in its oldest operation; reports that unless it was
 * reported before. Does not wait. */
ls_status ls_nccl_ask_mate(struct ls_nccl_group *mate);

/* --- nccl_leave.c ------------------------------------------------------------------------------------------------- */

/* Inside: starts to abort the communicator, which ends its operations in flight. Does not wait: NCCL may take long. */
void ls_nccl_abort(struct ls_nccl_group *group);

/* After the group has failed: aborts the other groups of its GPU, since NCCL's abort of one may wait for theirs. */
void ls_nccl_abort_neighbours(struct ls_nccl_group *group);

/* Inside: checks whether the GPU of another rank of the process has failed. This rank's operations then cannot end, and
 * the group is broken. */
ls_status ls_nccl_ask_mates(struct ls_nccl_group *group);

/* Adds the group to the process's list, in which it stays until it is destroyed. */
void ls_nccl_enrol(struct ls_nccl_group *group);

/* Call from the thread that attached the group, inside, or when no other thread uses the group any more. Waits for an
 * abort in progress, for a few seconds at most. */
void ls_nccl_destroy(struct ls_nccl_group *group);

void ls_nccl_close(ls_comm *comm);

/* --- nccl_operations.c -------------------------------------------------------------------------------------------- */

ls_status ls_nccl_enqueue(const ls_operation *operation, ls_stream *stream);

#endif
