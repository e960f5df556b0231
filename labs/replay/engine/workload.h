/* ls_workload: a network as replay sees it, operation by operation, without its values.
 *
 * It is read from labs/replay/workloads/NAME.json, which describes a published network layer by layer with the source
 * of each figure (labs/replay/workloads/README.md), or from a trace of one device (workload_trace.c), whose operations
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
    double elements; /* all elements of a sum, or a rank's own part if gathered or scattered */
    bool fixed;      /* the total; else per sample */
    bool fp32;       /* in any precision */
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
        ready_count; /* backward: the parameters ready[first_ready ...] whose gradients are complete after it */
    int channels;    /* of batch norm, forward and backward: whose statistics --sync-bn merges; 0: another operation */
    struct ls_work_meeting meeting; /* LS_WORK_ALONE: not a collective; others have no flops and bytes */
};

/* The rule for the flops and bytes of a kind of layer (workload_step.c). */
enum ls_layer_rule { LS_RULE_WEIGHTS, LS_RULE_FACTORS, LS_RULE_TABLE, LS_RULE_PASS };

/* How ranks can share a layer (workload_cut.h). */
enum ls_workload_cut { LS_WORKLOAD_UNCUT, LS_WORKLOAD_BY_OUTPUTS, LS_WORKLOAD_BY_INPUTS };

/* A layer of a file. flops, input, output and kept (elements): per sample. */
struct ls_workload_layer {
    const char *name;
    enum ls_layer_rule rule;
    double flops, input, output, kept, weights;
    int kernels, first_parameter, parameter_count;
    int channels;      /* that have running statistics */
    bool begins_block; /* as each instance of the file's blocks does */
    enum ls_workload_cut cut;
    int heads; /* of attention; 0: unknown, or another layer */
    /* of a rank's part: a collective before the layer, after it, of its parameters' gradients */
    bool enters, leaves, sums_gradients;
    int first_forward, end_forward, first_backward, end_backward; /* its operations: work[first .. end - 1] */
};

/* The default settings of a network's replay: those of the published figures for which it was described. */
struct ls_workload_defaults {
    double batch; /* samples of a step over all devices; 0: no default */
    ls_dtype precision;
    bool copies, collectives; /* how DP transfers parameters and gradients: one or both; none: no default */
};

typedef struct ls_workload {
    const char *name, *source; /* one line each */
    struct ls_workload_defaults defaults;
    double samples;
    struct ls_work *work; /* in the order of execution */
    int work_count;
    struct ls_workload_layer *layers; /* in the order of the forward pass; none: unknown (a trace) */
    int layer_count;
    const char **parameter_names; /* in the model's order */
    uint64_t *parameter_counts;   /* elements */
    int parameter_count;
    int *ready; /* parameters, in the order in which their gradients become ready */
    int ready_count;
    double input_bytes, output_bytes, answer_bytes; /* of a sample */
    double activation_bytes;                        /* of a sample: kept by forward for backward */
    double exchange_bytes; /* of a sample: two of the largest gradients of activations, which backward uses in turn */
    double buffer_bytes;   /* of the model's buffers, which are not parameters: batch norm's running statistics */
    double element_bytes;  /* of activations and their copies: 4 or 2 */
    int optimizer_states;  /* floats per parameter: SGD 0, with momentum 1, Adam 2 */
    int ranks;             /* of one rank's part: ranks that share the network; 0: the whole network */
    bool sequence;         /* of a part: ranks have different rows where they would otherwise all have the same */
    double loss_rows;      /* of a sample of a part: rows of logits whose classes are split over ranks; 0: not split */
    double loader_us;      /* the host's share of a step outside of the phases above, measured; 0 if not */
    /* the time of each operation in each of the trace's whole steps, [step * work_count + operation]; NULL: unknown */
    double *step_us;
    int step_count;
    void *storage; /* owns all of it */
} ls_workload;

/* By path, or name of a file of labs/replay/workloads. LS_ERR_IO, LS_ERR_INVALID ("FILE:LINE: ..."); then *out is
 * NULL. */
ls_status ls_workload_open(ls_workload **out, const char *name);
/* The same from memory; for tests and the fuzzer. */
ls_status ls_workload_parse(ls_workload **out, const char *name, const char *text, size_t nbytes);

/* From a sealed trace that is, by its `about`, of one device (mode single, or ddp with a world of 1), or of a rank of
 * meta devices: the median over its steps of each operation. LS_ERR_INVALID: it is not such a trace, or its steps
 * differ in their operations. */
ls_status ls_workload_from_trace(ls_workload **out, const ls_trace *trace);

void ls_workload_close(ls_workload *workload); /* NULL is a no-op */

uint64_t ls_workload_parameters(const ls_workload *workload); /* total number of elements */

/* Bytes or flops, which are fractional in workloads and integers in traces: rounded, at most 9e18. */
uint64_t ls_workload_whole(double value);

#endif
