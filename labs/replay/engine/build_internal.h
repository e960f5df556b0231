/* What the builders share (build.c): host threads that put work on streams, and the edges that follow from it.
 *
 * A builder writes a program down as the program would run it: a device's host thread launches kernels and copies,
 * records events and lets streams wait for them. Each launch becomes a task of the host's lane and one of the
 * stream's, with an edge between them; a wait becomes edges to the next task of the stream that waits. Events have no
 * tasks of their own: what they cost a host thread is added to its next task. */
#ifndef LABS_REPLAY_ENGINE_BUILD_INTERNAL_H
#define LABS_REPLAY_ENGINE_BUILD_INTERNAL_H

#include "labs/replay/engine/build.h"

enum { LS_BUILD_MAX_WAITS = LS_NODE_MAX_DEVICES + 4 };

/* A device, its streams, and the host thread that drives it. */
struct ls_build_device {
    int number, rank;
    int lane[LS_LANE_COUNT];
    int last[LS_LANE_COUNT]; /* task of each lane; LS_NONE */
    /* what the next task of each lane has to wait for */
    int waits[LS_LANE_COUNT][LS_BUILD_MAX_WAITS], wait_count[LS_LANE_COUNT];
    double owed_us; /* the host's time for events since its last task */
    int *next_host; /* gets the number of the host thread's next task; NULL: nobody asks */
};

/* The time of each operation for one number of samples. */
struct ls_build_costs {
    bool used;
    double samples, *us;
};

enum { LS_BUILD_MAX_COSTS = 4 }; /* whole batch, a large piece, a small one, the last one */

typedef struct ls_builder {
    ls_trace *trace;
    const ls_workload *workload;
    const ls_node *node;
    const struct ls_node_host *host;
    const struct ls_build_options *options;
    /* Host threads run what they launch, on every stream (LS_CPU_STREAMS=inline). If only the node's runs_compute is
     * set, they run compute and short copies. */
    bool in_line;
    int active;                           /* devices with samples */
    int places;                           /* for batches */
    double parameter_bytes, update_bytes; /* update: of all the optimizer's operations */
    double reclaim_us;                    /* extra time of the present update (ls_cost_reclaim_us) */
    const char **launch_names;            /* "launch conv1", of each operation */
    struct ls_build_costs costs[LS_BUILD_MAX_COSTS];
    struct ls_build_device *devices;
    int step;
    const char *phase;
} ls_builder;

/* A task of the host thread: `us`, and what it owes for events; with `locked` it holds the process's lock. It waits for
 * what its device runs on the same thread. */
int ls_build_host(ls_builder *b, struct ls_build_device *device, const char *name, double us, bool locked);

/* The launch of something that takes the host `us` (with an emulated GIL: the lock, for the lock's time). */
int ls_build_launch(ls_builder *b, struct ls_build_device *device, const char *name, double us);

/* A task of a stream, behind its launch and all that the stream waits for. */
int ls_build_task(ls_builder *b, struct ls_build_device *device, ls_lane_kind lane, int launch, struct ls_task *task);

/* Launch and kernel of what is no operation of the workload: averaging, casts, DP's sum. They read what has just been
 * written, from caches, so that other devices do not slow them down. */
int ls_build_kernel(ls_builder *b, struct ls_build_device *device, ls_lane_kind lane, const char *name, double flops,
                    double bytes);

/* On the copy stream. */
int ls_build_copy(ls_builder *b, struct ls_build_device *device, const char *name, double bytes, int from, int to);

/* If the host runs its device's work, it reads each loss before backward: a copy of four bytes on the compute
 * stream. */
void ls_build_check_loss(ls_builder *b, struct ls_build_device *device);

/* A task of a collective operation, which is the `number`-th of the group of all devices. */
struct ls_task ls_build_collective(ls_builder *b, ls_collective what, const char *name, uint32_t number, double bytes);

/* Records an event, and returns the task that it stands for. A stream waits for such a task (LS_NONE: for nothing). */
int ls_build_record(const ls_builder *b, struct ls_build_device *device, ls_lane_kind lane);
void ls_build_wait(const ls_builder *b, struct ls_build_device *device, ls_lane_kind lane, int task);

/* The same without cost for the host: the lane's next task comes behind `task`. */
void ls_build_await(struct ls_build_device *device, ls_lane_kind lane, int task);

/* All operations of the workload's phase b->phase; the first task of them, LS_NONE if there is none. */
int ls_build_works(ls_builder *b, struct ls_build_device *device, double samples);

/* Adds the operation if it belongs to backward; on the first device also marks the gradients that are ready after
 * it. */
void ls_build_backward_work(ls_builder *b, struct ls_build_device *device, const struct ls_work *work, double samples);

/* What the loop does around a step: the loader's share of it; at the end the host waits for the batch's copy. */
void ls_build_begin_step(ls_builder *b, struct ls_build_device *device);
void ls_build_end_step(ls_builder *b, struct ls_build_device *device, int batch_copied);

/* The batch travels from the host's memory to the device: `inputs` and `answers` samples. Returns the last copy. */
int ls_build_upload(ls_builder *b, struct ls_build_device *device, double inputs, double answers, int place_used);

/* Another thread's word: the host's next task, hand_over_us after what it waits for, or awake_us (node.h). */
void ls_build_hand_over(ls_builder *b, struct ls_build_device *device, const char *name);

/* The steps (build_dp.c, build_ddp.c). */
ls_status ls_build_dp(ls_builder *b);
ls_status ls_build_ddp(ls_builder *b);

/* DDP's buckets: how many there are, and for each parameter which it lies in. (build_ddp.c; for tests and memory) */
struct ls_build_buckets {
    int count;
    int *bucket_of; /* of each parameter */
    int *members;   /* of each bucket: parameters */
    double *floats; /* of each bucket, with the gaps */
};
ls_status ls_build_assign_buckets(struct ls_build_buckets *out, const ls_workload *workload,
                                  const struct ls_build_options *options);
void ls_build_free_buckets(struct ls_build_buckets *buckets);

#endif
