/* What the files of the NCCL plug-in share. */
#ifndef LS_COMM_NCCL_NCCL_GROUP_H
#define LS_COMM_NCCL_NCCL_GROUP_H

#include <nccl.h>

#include "common/comm/comm_internal.h"
#include "common/comm/nccl_plugin.h"
#include "common/device/cuda/lane.h"

/* Operations on their way that can be named when they fail. */
#define LS_NCCL_PENDING 512

struct ls_nccl_pending {
    cudaEvent_t event; /* recorded behind the operation; made at the entry's first use */
    ls_announcement what;
    ls_flight_mark mark;
    double seen_us; /* when a waiting thread first found it unfinished; 0: not yet */
};

/* The ranks of one process, which NCCL wants to be taken down together. */
struct ls_nccl_crew {
    int size;
    _Atomic int open;
    _Atomic bool aborted;                       /* one of them has been */
    ncclComm_t communicator[LS_COMM_MAX_RANKS]; /* by place in the crew; NULL: aborted */
    int gpu[LS_COMM_MAX_RANKS];                 /* likewise */
};

struct ls_nccl_ending; /* nccl_leave.c: a communicator that is being taken down */

struct ls_nccl_group {
    /* constant after attach */
    ls_comm *comm;
    ls_device *device;
    int gpu;
    struct ls_nccl_crew *crew;
    int place;                  /* in the crew */
    void *scratch;              /* for barriers */
    struct ls_nccl_group *next; /* of the process; nccl_leave.c */
    /* Another group of its GPU has failed: the thread that is inside aborts this one when it leaves. */
    _Atomic bool doomed;
    /* A thread that enqueues, or one that waits and looks: NCCL takes one call at a time. */
    _Atomic int inside;
    /* the thread inside */
    ncclComm_t nccl;               /* NULL: aborted */
    struct ls_nccl_ending *ending; /* of the aborted one; NULL: none, or it has ended */
    bool captured;                 /* operations were captured into graphs, whose launches are not seen here */
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

/* Inside: forgets what is done; whether something is left. */
bool ls_nccl_is_busy(struct ls_nccl_group *group);

/* Inside: waits until a non-blocking communicator has finished the call that returned `result`. These are failures,
 * reported, and break the group: NCCL's error, a group that is broken meanwhile, a rank that dies, the group's
 * time-out. */
ls_status ls_nccl_await_call(struct ls_nccl_group *group, ncclResult_t result, const ls_announcement *what);

/* Whether the GPU of `mate`, another group, has failed under its oldest operation; reported, if nobody has. Waits for
 * nobody. */
ls_status ls_nccl_ask_mate(struct ls_nccl_group *mate);

/* --- nccl_leave.c ------------------------------------------------------------------------------------------------- */

/* Inside: begins to abort the communicator, which ends its operations in flight. Does not wait: NCCL may need long. */
void ls_nccl_abort(struct ls_nccl_group *group);

/* After the group has failed: aborts the other groups of its GPU, since NCCL's abort of one may wait for theirs. */
void ls_nccl_abort_neighbours(struct ls_nccl_group *group);

/* Inside: whether the GPU of another rank of the process has failed, with which this rank's operations cannot end. The
 * group is then broken. */
ls_status ls_nccl_ask_mates(struct ls_nccl_group *group);

/* Every group is enrolled from when it is made until it is destroyed. */
void ls_nccl_enrol(struct ls_nccl_group *group);

/* Called by the thread that attached it, which is inside, or when no other thread knows the group any more. Waits for
 * what ls_nccl_abort has begun, for a few seconds at most. */
void ls_nccl_destroy(struct ls_nccl_group *group);

void ls_nccl_close(ls_comm *comm);

/* --- nccl_operations.c -------------------------------------------------------------------------------------------- */

ls_status ls_nccl_enqueue(const ls_operation *operation, ls_stream *stream);

#endif
