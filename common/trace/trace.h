/* ls_trace: the work of one or several processes, as tasks on lanes and edges between them.
 *
 *     lane      runs one task after another: a host thread, or a stream of a device
 *     task      a piece of work on a lane: the host's own time, a kernel, a copy, a collective operation
 *     edge      one task begins only after another has ended: a launch before the work that it launched, the work
 *               before an event before the work that waits for the event, the raising of a flag before the wait for it.
 *               The order within a lane is an implicit edge
 *     meeting   the tasks, one of each rank, that together are one collective operation
 *
 * A trace comes from probes (resolve.h), from a file (chrome.h), or from a step that is recorded without computing
 * (labs/replay/record/record.h). Replay (labs/replay/engine/engine.h) computes all times from its durations and edges;
 * recorded times, if any, are used only for pictures, tests and comparison.
 *
 * Build: add lanes, tasks and edges in any order, then seal, and add nothing more. Added items can be read by index at
 * any time; the lists of edges, lanes and meetings only after sealing. Limits: 2^31 tasks and edges. One
 * thread at a time. Out of memory: reported by the call that seals. */
#ifndef LS_TRACE_TRACE_H
#define LS_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* X(NAME, text in files) */
#define LS_LANE_MAP(X) X(HOST, "host") X(COMPUTE, "compute") X(COPY, "copy") X(COMM, "comm")
#define LS_LANE_ENUM(name, text) LS_LANE_##name,
typedef enum ls_lane_kind { LS_LANE_MAP(LS_LANE_ENUM) LS_LANE_COUNT } ls_lane_kind;
#undef LS_LANE_ENUM

#define LS_TASK_MAP(X)                                                                                                 \
    X(HOST, "host")             /* a host thread's own time, or (with edges into it) its waiting for something */      \
    X(KERNEL, "kernel")         /* needs all of the device's compute units */                                          \
    X(COPY, "copy")             /* `bytes` from device `from` to device `to` (LS_HOST_MEMORY: the host's) */           \
    X(COLLECTIVE, "collective") /* begins when the tasks of its meeting have all come to it, and ends with them */
#define LS_TASK_ENUM(name, text) LS_TASK_##name,
typedef enum ls_task_kind { LS_TASK_MAP(LS_TASK_ENUM) LS_TASK_COUNT } ls_task_kind;
#undef LS_TASK_ENUM

#define LS_HOST_MEMORY (-1)
#define LS_NONE (-1)

struct ls_lane {
    const char *name; /* "rank 0", "replica 1", "compute" */
    ls_lane_kind kind;
    int rank;   /* of the process, from 0 */
    int device; /* number of the device over all ranks, from 0: of a stream, or which a host thread drives */
};

struct ls_task {
    const char *name;  /* "gemm", "all_reduce", "launch gemm" */
    const char *phase; /* "forward", ...; "" outside of any */
    ls_task_kind kind;
    int lane;
    int step; /* -1: outside of a step */
    /* its duration; of COLLECTIVE: after all ranks have arrived. < 0: not known, computed from flops, bytes and the
     * node (COPY: from the links that it uses) */
    double us;
    double fixed_bytes; /* bytes of a KERNEL that do not depend on the number of samples; 0: not known */
    uint64_t bytes, flops;
    int from, to;      /* COPY: devices */
    int meeting;       /* COLLECTIVE: index of its meeting */
    int work;          /* KERNEL: the number of a described network's operation (common/nn/described.h); LS_NONE */
    int events;        /* HOST: how often its thread has recorded an event or let a stream wait for one before it, since
                          its last task */
    double probes_us;  /* HOST: about the part of us that writing records took, absent without --trace */
    int lock;          /* HOST: holds this lock of its rank while it runs; LS_NONE */
    bool virtual_time; /* us is CPU time */
    /* HOST, priced: waits for another thread's hand-off; lasts us, less if it is still awake (node.h), 0 if the hand-off
     * came before */
    bool hand_over;
    /* as recorded; NAN if not recorded: on meta devices */
    double launched_us, start_us, end_us;
};

/* One collective operation. */
struct ls_meeting {
    const char *group;     /* the group's name, the same in all its ranks */
    uint32_t number;       /* index of the operation in the group */
    const char *operation; /* "all_reduce", "broadcast", ... */
    const char *algorithm; /* "ring", ...; "" if not known */
    int ranks;             /* of the group */
    int tasks;             /* tasks in this trace: 1 if only one rank of a symmetric job was recorded */
    uint64_t bytes;        /* of each rank's buffer */
    uint64_t elements;     /* of the buffer; 0: not known */
    const char *dtype;     /* "fp32"; "": not known */
};

/* An instant: "gradient ready" (number: the parameter), "step". */
struct ls_mark {
    const char *name;
    int lane, step;
    int64_t number;
    int after;    /* the last task of that lane before it; LS_NONE: before any */
    double at_us; /* as recorded; NAN */
};

/* A parameter tensor, in the model's order. */
struct ls_trace_parameter {
    const char *name;
    uint64_t count; /* elements */
};

/* Description of the recorded run. Texts belong to the trace (ls_trace_text). */
struct ls_trace_about {
    const char *mode;                                                          /* "single", "dp" or "ddp" */
    const char *model;                                                         /* "mlp" */
    const char *precision;                                                     /* "fp32" */
    const char *optimizer;                                                     /* "sgd", "sgd-momentum", "adam" */
    const char *device_kind, *device_name, *backend, *algorithm, *stream_mode; /* algorithm: --allreduce */
    uint64_t run; /* a number that the ranks of one run share and no other run has; 0: not known */
    int devices, world_size;
    int recorded_ranks; /* 1 if one rank of a symmetric job was recorded (meta devices) */
    int64_t batch_size; /* samples of a step over all devices */
    int micro_batches;
    uint64_t input_bytes, output_bytes, answer_bytes; /* of a sample */
    uint64_t first_bucket_bytes, bucket_bytes;        /* DDP */
    bool overlap;                                     /* DDP: buckets are reduced during backward */
    bool virtual_time;
    int first_step, steps;
    double origin_us;      /* the monotonic clock at 0 of the recorded times */
    double median_step_ms; /* of the recorded steps, measured without probes; NAN: none */
};

typedef struct ls_trace ls_trace;

ls_status ls_trace_create(ls_trace **out);
void ls_trace_destroy(ls_trace *trace); /* NULL is a no-op */

/* A copy of `text` that lives as long as the trace; the same for the same text. NULL gives "". */
const char *ls_trace_text(ls_trace *trace, const char *text);

/* Each returns the index of the added item, from 0; texts are copied. Without memory they return 0, and sealing
 * fails. */
int ls_trace_add_lane(ls_trace *trace, const struct ls_lane *lane);
int ls_trace_add_task(ls_trace *trace, const struct ls_task *task);
int ls_trace_add_mark(ls_trace *trace, const struct ls_mark *mark);
int ls_trace_add_parameter(ls_trace *trace, const struct ls_trace_parameter *parameter);

/* Returns the meeting with this group and number, added if it is new, and increments its number of tasks. */
int ls_trace_join_meeting(ls_trace *trace, const struct ls_meeting *meeting);

/* `task` begins when `before` has ended. */
void ls_trace_add_edge(ls_trace *trace, int before, int task);

struct ls_trace_about *ls_trace_about(ls_trace *trace); /* for filling in */

/* Checks that all indices exist, that no edge is a loop, and that the order of lanes, edges and meetings has no
 * cycle: LS_ERR_INVALID names two tasks of it. LS_ERR_NO_MEMORY. Then the trace can be read. Work:
 * tasks + edges. */
ls_status ls_trace_seal(ls_trace *trace);

/* A task with the default of every field: no lock, no meeting, unknown duration, no recorded times. */
struct ls_task ls_task_default(ls_task_kind kind, const char *name, int lane);

/* --- reading (sealed) --------------------------------------------------------------------------------------------- */

int ls_trace_lane_count(const ls_trace *trace);
int ls_trace_task_count(const ls_trace *trace);
int ls_trace_mark_count(const ls_trace *trace);
int ls_trace_meeting_count(const ls_trace *trace);
int ls_trace_parameter_count(const ls_trace *trace);
const struct ls_lane *ls_trace_lane(const ls_trace *trace, int lane);
const struct ls_task *ls_trace_task(const ls_trace *trace, int task);
const struct ls_mark *ls_trace_mark(const ls_trace *trace, int mark);
const struct ls_meeting *ls_trace_meeting(const ls_trace *trace, int meeting);
const struct ls_trace_parameter *ls_trace_parameter(const ls_trace *trace, int parameter);
const struct ls_trace_about *ls_trace_what(const ls_trace *trace);

/* The tasks that a task waits for, and those that wait for it, in addition to the order of its lane. */
const int *ls_trace_before(const ls_trace *trace, int task, int *count);
const int *ls_trace_after(const ls_trace *trace, int task, int *count);

/* The tasks of a lane in their order, and those of a meeting. */
const int *ls_trace_lane_tasks(const ls_trace *trace, int lane, int *count);
const int *ls_trace_meeting_tasks(const ls_trace *trace, int meeting, int *count);

/* Replaces a task's times, sealed or not: by those of a replay, to be written as a file for viewers. */
void ls_trace_set_times(ls_trace *trace, int task, double launched_us, double start_us, double end_us);

const char *ls_lane_kind_name(ls_lane_kind kind);
const char *ls_task_kind_name(ls_task_kind kind);

#endif
