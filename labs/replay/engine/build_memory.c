/* build_memory — what the programs allocate on a device, by category, from what is known of a workload.
 *   source: data_parallel.c, distributed.c, single.c, model.c, optimizer.c, reducer_assign.c and parallel.c; where
 *           they cut a batch into pieces, every device has room for the largest
 *   exact : parameters, gradients, optimizer, input, gathered output and buckets of the programs' own models
 *           (tests/replay). Activations are as exact as the workload's activation_bytes. Of the workspace only the
 *           losses are known: what products and convolutions need as scratch is their library's affair
 *   not   : what --metrics, --clip-norm, loss scaling and --sync-bn add (a few kilobytes) */
#include <math.h>

#include "labs/replay/engine/build.h"

/* kernels.h: a row of the optimizer's list, and its state; parallel.h: places for losses. */
static const double update_tensor_bytes = 48, update_state_bytes = 40, loss_bytes = (64 + 2) * 4.0;

int ls_build_places(const struct ls_build_options *options, const ls_node *node) {
    int places = options->batch_places > 0 ? options->batch_places : ls_node_host(node)->runs_compute ? 1 : 2;
    return places > 2 ? 2 : places;
}

static bool is_half(ls_dtype precision) { return precision == LS_FP16 || precision == LS_BF16; }

/* With the gaps between tensors. */
static double parameter_floats(const ls_workload *w) {
    double floats = 0;
    for (int p = 0; p < w->parameter_count; p++) floats += ls_build_aligned((double)w->parameter_counts[p]);
    return floats;
}

static double largest_piece(const struct ls_build_options *o) {
    double share = o->batch / o->micro_batches / o->devices;
    return ls_build_is_whole(o->batch) ? ceil(share) : share;
}

static double activation_bytes(const ls_workload *w, const struct ls_build_options *o, bool has_dy) {
    bool half = is_half(o->precision);
    double elements = (half ? 2 : 4) / w->element_bytes;
    double bytes = (w->activation_bytes + w->exchange_bytes) * elements;
    if (has_dy) bytes += w->output_bytes;
    if (half) bytes += w->output_bytes; /* the output cast to fp32 */
    if (half && w->element_bytes == sizeof(float))
        bytes += w->input_bytes / 2; /* samples that travel as fp32: a cast */
    return largest_piece(o) * bytes;
}

double ls_memory_total(const struct ls_memory_prediction *m) {
    return m->parameter + m->gradient + m->optimizer + m->activation + m->input + m->gathered_output + m->bucket +
           m->workspace;
}

void ls_build_memory(struct ls_memory_prediction *memory, const ls_workload *w, const ls_node *node,
                     const struct ls_build_options *o, int device) {
    bool dp = o->mode == LS_BUILD_DP, ddp = o->mode == LS_BUILD_DDP, first = device == 0;
    double floats = parameter_floats(w), piece = largest_piece(o), fp32 = sizeof(float);
    double places = ls_build_places(o, node);
    *memory = (struct ls_memory_prediction){0};
    memory->parameter = fp32 * (floats + ls_build_aligned(w->buffer_bytes / fp32));
    if (is_half(o->precision)) memory->parameter += 2 * floats;
    if (!ddp) memory->gradient = fp32 * floats;
    if (dp && first && !o->replicate_by_collectives)
        memory->gradient *= o->devices; /* its own, and room for each other's */
    if (!dp || first) {
        memory->optimizer =
            w->parameter_count * update_tensor_bytes + update_state_bytes + w->optimizer_states * fp32 * floats;
        memory->workspace = loss_bytes;
    }
    memory->activation = activation_bytes(w, o, !dp || !first);
    if (!dp) {
        memory->input = places * piece * (w->input_bytes + w->answer_bytes);
    } else if (first) {
        double together = ceil(o->batch / o->micro_batches);
        memory->input = places * together * (w->input_bytes + w->answer_bytes);
        memory->gathered_output = together * w->output_bytes;
    } else {
        memory->input = piece * w->input_bytes;
    }
    if (ddp) memory->bucket = fp32 * floats;
    if (ddp && o->gradient_element_bytes < fp32) memory->bucket += o->gradient_element_bytes * floats;
}
