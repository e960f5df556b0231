/* A mode: a method of parallel training, as a row of one table.
 *
 * The calls of a step are one table (struct ls_parallel_ops), which every mode fills in: single.c, dp_threads/dp_step.c
 * and ddp_procs/ddp_step.c. Communication between steps is a second table (struct ls_process_ops), which is filled in
 * once, for DDP and its variants: ddp_procs/process.c. A row (struct ls_mode) names both tables and describes the mode.
 * Each row is defined with its mode, since modes do not include each other; code above the modes lists the rows that it
 * uses: labs/replay/record, tests/parallel, labs/bench.
 *
 * `abandon` belongs to the step, not to the process: threads wait for each other as ranks do. `join` and
 * `before_evaluation` belong to the process: only another rank can run out of samples earlier, or have buffers that
 * this rank's model lacks. `find_nonfinite` belongs to the row, like every query that changes nothing. */
#ifndef LS_SEAM_MODE_H
#define LS_SEAM_MODE_H

#include "common/data/loader.h"
#include "common/seam/phase.h"
#include "common/trace/trace.h"

typedef struct ls_parallel ls_parallel;

/* Called only by the driver (step.h), except for the last two. */
struct ls_parallel_ops {
    /* The batch goes to the device or devices. */
    void (*prepare)(ls_parallel *p, const ls_batch *batch);
    /* Loss and gradients, each device on its own samples; complete for all micro-batches when the last call returns. */
    ls_status (*forward_backward)(ls_parallel *p);
    /* Gradients of the whole batch. */
    ls_status (*reduce)(ls_parallel *p);
    /* The optimizer. */
    ls_status (*apply)(ls_parallel *p);
    /* (optional) After a failure, before waiting for the devices: ends the waits of other devices and ranks for this
     * one. */
    void (*abandon)(ls_parallel *p);
    void (*destroy)(ls_parallel *p);
};

/* A mode of processes fills all slots. All are collective but give_up and the two of the resume state. */
struct ls_process_ops {
    /* Replaces `count` doubles on the host by their sums over all ranks. */
    ls_status (*sum_over_ranks)(ls_parallel *p, double *values, size_t count);
    /* Gathers `count` doubles of every rank: all[r * count + i] is rank r's values[i]. */
    ls_status (*gather_from_ranks)(ls_parallel *p, const double *values, size_t count, double *all);
    /* Tells the other ranks why this one ends, so that each of them reports this rank and the reason. False: another
     * rank was first; *status is then this rank's status, reported. */
    bool (*give_up)(ls_parallel *p, const char *reason, ls_status *status);
    /* Prepares the main model for evaluation on every rank (DDP: broadcasts rank 0's buffers). */
    ls_status (*before_evaluation)(ls_parallel *p);
    /* Join (docs/pytorch.md#join): called before each step of a run whose ranks may run out of batches at different
     * steps. `batch` is this rank's, or without inputs (NULL, count 0) if it has none left; filled in: global_count,
     * the samples of the step over all ranks. *anyone: whether any rank has a batch; if not, no step follows in this
     * epoch. Host-blocking. */
    ls_status (*join)(ls_parallel *p, ls_batch *batch, bool *anyone);
    /* The mode's own part of a checkpoint, beyond model and optimizer, as numbers (DDP: the order in which gradients
     * became ready); *values is the mode's memory. set_resume_state restores it; LS_ERR_INVALID if the numbers cannot
     * be the mode's own. */
    void (*get_resume_state)(const ls_parallel *p, const int64_t **values, size_t *count);
    ls_status (*set_resume_state)(ls_parallel *p, const int64_t *values, size_t count);
};

/* A full step: its samples over all devices, and the micro-batches that they are cut into. */
struct ls_step_size {
    size_t samples;
    int micro_batches;
};

/* Per-rank state of a parameter that training depends on: as many floats in device memory as the parameter has. */
struct ls_rank_state {
    float *values;         /* NULL: nothing */
    struct ls_comm *group; /* all ranks */
};

struct ls_mode {
    const char *name;   /* "single device", "DataParallel", "DistributedDataParallel" */
    const char *option; /* the same for options and files: "single", "dp", "ddp" */
    /* The option of the mode with the same bits of weights on several devices, under the conditions of ARCHITECTURE.md
     * (What must hold); NULL: this mode is a reference. On one device every mode has single's bits. */
    const char *equals;
    const char *kept_as; /* the mode name in its checkpoints, if not its own: that mode can read them; NULL: its own */
    const struct ls_parallel_ops *step;
    const struct ls_process_ops *process; /* NULL: one process */
    /* Queries; all optional. */
    /* The reason why forward_backward, reduce and apply cannot be captured into a graph (step_graph.h), as "ranks that
     * join ..."; NULL, or no such function: they can be captured. */
    const char *(*graph_obstacle)(const ls_parallel *p);
    /* The bytes that device `local` of this process moves in a full step of a run on several devices, phase by phase,
     * as its clock will count them (phase.h); bytes[] starts at 0. Transfers that occur once per step are included;
     * a last, shorter step, and small collectives other than the gradients' (--sync-bn, --find-unused, --join: some
     * bytes for each channel, parameter and rank) are not. */
    void (*count_bytes)(const ls_parallel *p, struct ls_step_size size, int local, uint64_t bytes[LS_PHASE_COUNT]);
    const char *gathered; /* the data transferred in phase GATHER, for the announcement; NULL: outputs */
    /* Fills in the mode's own entries of a trace's metadata; the texts must live as long as the mode. */
    void (*describe)(const ls_parallel *p, struct ls_trace_about *about);
    /* For checkpoints, which store this state of all ranks (top-k: the residuals). */
    struct ls_rank_state (*rank_state)(const ls_parallel *p, size_t parameter);
    /* After a loss that is not finite: the first tensor that is not finite, in the order of the computation, as "the
     * output of conv2 on device 1"; an empty text if there is none. No such function: p->model is searched, and the
     * place has its rank. Host-blocking. */
    ls_status (*find_nonfinite)(ls_parallel *p, char *place, size_t capacity);
};

#endif
