/* workload_deduce — deduces properties of a network that its trace does not record from the bytes that its kernels
 *   moved.
 *   norms : a weight as long as its bias is a batch norm's, which also has a running mean and variance. Batch norms run
 *           in this order in forward, and in the reverse order in backward. Unless there are as many such pairs as
 *           operations, neither is deduced
 *   memory: the activations that forward keeps for backward, and the additional memory of backward, follow from the
 *           bytes of forward's kernels: each reads the output of the previous one (the first: the input), and the
 *           remaining bytes are its own output
 *   cost  : one pass over the operations */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/engine/workload_parts.h"

static void find_batchnorms(ls_workload *w, const ls_trace *trace) {
    double floats = 0;
    int pairs = 0, forward = 0, backward = 0, room = ls_trace_parameter_count(trace) + 1;
    int *channels = calloc((size_t)room, sizeof *channels);
    for (int p = 0; channels && p + 1 < ls_trace_parameter_count(trace); p++) {
        const struct ls_trace_parameter *weight = ls_trace_parameter(trace, p);
        const struct ls_trace_parameter *bias = ls_trace_parameter(trace, p + 1);
        if (weight->count != bias->count || !strstr(weight->name, ".weight") || !strstr(bias->name, ".bias")) continue;
        floats += 2 * (double)weight->count;
        channels[pairs++] = (int)fmin((double)weight->count, INT_MAX);
    }
    for (int k = 0; k < w->work_count; k++) forward += ls_workload_kernel_is(w->work[k].name, "batchnorm_train");
    bool known = pairs == forward;
    w->buffer_bytes = known ? sizeof(float) * floats : 0;
    forward = 0;
    for (int k = 0; channels && known && k < w->work_count; k++) {
        struct ls_work *work = &w->work[k];
        if (ls_workload_kernel_is(work->name, "batchnorm_train")) work->channels = channels[forward++];
        if (ls_workload_kernel_is(work->name, "batchnorm_backward") && backward < pairs)
            work->channels = channels[pairs - 1 - backward++];
    }
    free(channels);
}

/* Estimates the memory of a sample. Operations that add a bias run in place, except the one that keeps the sum and also
 * writes its GELU. Batch norm reads its input twice, a sum reads two inputs, a pool reads each window once. */
static void estimate_memory(ls_workload *w) {
    double in = w->input_bytes, largest = 0;
    for (int k = 0; k < w->work_count; k++) {
        const struct ls_work *work = &w->work[k];
        bool gelu = ls_workload_kernel_is(work->name, "add_bias_gelu");
        bool in_place = ls_workload_kernel_is(work->name, "add_bias") && !gelu;
        if (strcmp(work->phase, "forward") != 0 || in_place || ls_workload_kernel_is(work->name, "cast")) continue;
        double moved = (work->bytes - work->fixed_bytes) / w->samples, out = moved - in;
        if (ls_workload_kernel_is(work->name, "batchnorm") || strcmp(work->name, "add") == 0 || gelu) out = moved / 3;
        if (ls_workload_kernel_is(work->name, "maxpool")) out = in / 4 * (1 + 1 / w->element_bytes);
        if (!(out > 0)) continue;
        w->activation_bytes += out;
        if (k > 0) largest = fmax(largest, in);
        in = ls_workload_kernel_is(work->name, "maxpool") ? in / 4 : out;
    }
    w->exchange_bytes = 2 * largest;
}

/* Floats of state that the optimizer keeps for each parameter. */
static int optimizer_states(const struct ls_trace_about *about) {
    if (strncmp(about->optimizer, "adam", 4) == 0) return 2;
    return strcmp(about->optimizer, "sgd-momentum") == 0 ? 1 : 0;
}

void ls_workload_deduce(ls_workload *w, const ls_trace *trace) {
    find_batchnorms(w, trace);
    estimate_memory(w);
    w->optimizer_states = optimizer_states(ls_trace_what(trace));
}
