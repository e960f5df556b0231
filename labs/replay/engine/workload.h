/* ls_workload: a network as replay sees it, operation by operation, without its numbers.
 *
 * It comes from labs/replay/workloads/NAME.json, which describes a published network layer by layer with the source of
 * each figure (labs/replay/workloads/README.md), or from a trace of one device (workload_trace.c), whose operations
 * have measured times. */
#ifndef LABS_REPLAY_ENGINE_WORKLOAD_H
#define LABS_REPLAY_ENGINE_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/status.h"
#include "common/trace/trace.h"

/* A collective operation of the ranks that share the network (workload_cut.h). */
enum ls_work_meeting_kind { LS_WORK_ALONE, LS_WORK_SUMS, LS_WORK_GATHERS, LS_WORK_SCATTERS };
struct ls_work_meeting {
    enum ls_work_meeting_kind kind;
    double elements; /* all that are added up, or a rank's own part of those that are gathered or scattered */
    bool fixed;      /* so many in all; else of a sample */
    bool fp32;       /* whatever the precision is */
};

/* One operation of a training step on one device. flops and bytes are for `samples` samples. For n samples, flops and
 * bytes - fixed_bytes grow like n / samples; the optimizer's do not grow. */
struct ls_work {
    const char *name;  /* "gemm", "conv2d_forward", or the layer's name */
    const char *phase; /* "forward", "loss", "backward" or "optimizer" */
    double flops, bytes, fixed_bytes;
    bool is_product; /* a matrix multiply or convolution: runs at the device's rate for the run's precision */
    double us;       /* measured with `samples` samples; < 0: not measured */
    double host_us;  /* host time before it, launch included, measured; < 0: not measured */
    int first_ready,
        ready_count; /* backward: the parameters ready[first_ready ...] whose gradients are complete behind it */
    int channels;    /* of batch norm, forward and backward: whose statistics --sync-bn merges; 0: another operation */
    struct ls_work_meeting meeting; /* LS_WORK_ALONE: it is none; others have no flops and bytes */
};

/* What a kind of layer reads, writes and computes (workload.c). */
enum ls_layer_rule { LS_RULE_WEIGHTS, LS_RULE_FACTORS, LS_RULE_TABLE, LS_RULE_PASS };

/* How ranks can share a layer (workload_cut.h). */
enum ls_workload_cut { LS_WORKLOAD_UNCUT, LS_WORKLOAD_BY_OUTPUTS, LS_WORKLOAD_BY_INPUTS };

/* A layer of a file. flops, input, output and kept (elements): of a sample. */
struct ls_workload_layer {
    const char *name;
    enum ls_layer_rule rule;
    double flops, input, output, kept, weights;
    int kernels, first_parameter, parameter_count;
    int channels;      /* with running statistics */
    bool begins_block; /* as the file's blocks do, each time that they are there */
    enum ls_workload_cut cut;
    int heads; /* of attention; 0: not said, or another layer */
    /* of a rank's part: it meets the others in front of the layer, behind it, with the gradients of its parameters */
    bool enters, leaves, sums_gradients;
    int first_forward, end_forward, first_backward, end_backward; /* its operations: work[first .. end - 1] */
};

/* How a network is replayed by default: the setting that the figures are about for which it was described. */
struct ls_workload_defaults {
    double batch; /* samples of a step over all devices; 0: there is none */
    ls_dtype precision;
    bool copies, collectives; /* DP's parameters and gradients, by either way or by both; none: not said */
};

typedef struct ls_workload {
    const char *name, *source; /* one line each */
    struct ls_workload_defaults defaults;
    double samples;
    struct ls_work *work; /* in the order of execution */
    int work_count;
    struct ls_workload_layer *layers; /* in the order of the forward pass; none: not known (a trace) */
    int layer_count;
    const char **parameter_names; /* in the model's order */
    uint64_t *parameter_counts;   /* elements */
    int parameter_count;
    int *ready; /* parameters, in the order in which their gradients become ready */
    int ready_count;
    double input_bytes, output_bytes, answer_bytes; /* of a sample */
    double activation_bytes;                        /* of a sample: what forward leaves for backward */
    double exchange_bytes; /* of a sample: two of the largest gradients of activations, which backward uses in turn */
    double buffer_bytes;   /* of what belongs to the model and is no parameter: batch norm's running statistics */
    double element_bytes;  /* of activations and their copies: 4 or 2 */
    int optimizer_states;  /* floats per parameter: SGD 0, with momentum 1, Adam 2 */
    int ranks;             /* of one rank's part: how many share the network; 0: it is whole */
    bool sequence;         /* of a part: ranks have rows of their own where others would have all alike */
    double loss_rows;      /* of a sample of a part: rows of logits whose classes are split over ranks; 0: not split */
    double loader_us;      /* the host's share of a step outside of the phases above, measured; 0 if not */
    /* what each operation took in each of the trace's whole steps, [step * work_count + operation]; NULL: not known */
    double *step_us;
    int step_count;
    void *storage; /* owns all of it */
} ls_workload;

/* By path, or name of a file of labs/replay/workloads. LS_ERR_IO, LS_ERR_INVALID ("FILE:LINE: ..."); then *out is
 * NULL. */
ls_status ls_workload_open(ls_workload **out, const char *name);
/* The same from memory; for tests and the fuzzer. */
ls_status ls_workload_parse(ls_workload **out, const char *name, const char *text, size_t nbytes);

/* From a sealed trace whose about says one device (mode single, or ddp with a world of 1), or a rank of meta devices:
 * the median over its steps of each operation. LS_ERR_INVALID: it is no such trace, or its steps differ in their
 * operations. */
ls_status ls_workload_from_trace(ls_workload **out, const ls_trace *trace);

void ls_workload_close(ls_workload *workload); /* NULL is a no-op */

uint64_t ls_workload_parameters(const ls_workload *workload); /* elements in all */

/* Bytes or flops, which workloads have as fractions and traces as whole numbers: rounded, at most 9e18. */
uint64_t ls_workload_whole(double value);

#endif
