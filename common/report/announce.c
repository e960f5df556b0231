/* announce — prints the options in the run's own numbers: a line for each fact that has surprised users.
 *   idea  : every number follows from the options, the model and the devices. The bytes are those that the phases'
 *           clocks count later (--summary: bytes_per_step_by_phase); a test compares both
 *   cost  : a few lines on stdout; with loss scaling, one wait for its device */
#include "common/report/announce.h"

#include <inttypes.h>
#include <string.h>

#include "common/nn/tensor_parallel.h"

/* --- the batch ---------------------------------------------------------------------------------------------------- */

static void announce_batch(FILE *file, const ls_parallel *p, const ls_train_options *o) {
    size_t most = 0, least = SIZE_MAX;
    const struct ls_step_size size = {(size_t)o->batch_size, o->accumulate};
    int replicas = ls_parallel_replicas(p);
    const char *replica = replicas < p->device_count ? "replica" : "device", *plural = replicas == 1 ? "" : "s";
    for (int r = 0; r < replicas; r++) {
        for (int k = 0; k < o->accumulate; k++) {
            size_t rows = ls_parallel_rows(p, size, r, k);
            most = rows > most ? rows : most;
            least = rows < least ? rows : least;
        }
    }
    fprintf(file, "batch: %" PRId64 " samples a step", o->batch_size);
    bool cut = replicas > 1 || o->accumulate > 1;
    if (cut && most == least) {
        fputs(" = ", file);
        if (replicas > 1) fprintf(file, "%d %ss x ", replicas, replica);
        fprintf(file, "%zu", most);
        if (o->accumulate > 1) fprintf(file, " x %d micro-batches", o->accumulate);
    } else if (cut) {
        fprintf(file, " on %d %s%s", replicas, replica, plural);
        if (o->accumulate > 1) fprintf(file, " in %d micro-batches", o->accumulate);
        fprintf(file, ", not evenly: %zu to %zu on a %s at a time", least, most, replica);
    }
    size_t tokens = ls_train_sample_tokens(p->model);
    if (tokens > 0) fprintf(file, ", of %zu tokens each", tokens);
    fputc('\n', file);
}

/* --- the learning rate -------------------------------------------------------------------------------------------- */

static void announce_rate(FILE *file, const ls_parallel *p, const ls_train_options *o, const ls_schedule *s) {
    int devices = ls_parallel_replicas(p);
    const char *plural = devices == 1 ? "" : "s";
    fprintf(file, "learning rate: %.9g", s->rate);
    if (o->lr_scale == LS_RATE_LINEAR)
        fprintf(file, " = %.9g x %d device%s (linear)", o->learning_rate, devices, plural);
    if (o->lr_scale == LS_RATE_SQRT) fprintf(file, " = %.9g x sqrt(%d device%s)", o->learning_rate, devices, plural);
    if (s->warmup_steps > 0) fprintf(file, ", %" PRId64 " steps of warm-up", s->warmup_steps);
    const char *then = s->warmup_steps > 0 ? ", then" : ",";
    if (s->kind == LS_SCHEDULE_COSINE) {
        fprintf(file, "%s cosine to %.9g in %" PRId64 " steps", then, s->min_rate, s->total_steps - s->warmup_steps);
    }
    if (s->kind == LS_SCHEDULE_STEP) {
        fprintf(file, "%s times %.9g every %" PRId64 " epoch%s", then, s->decay_factor, s->decay_epochs,
                s->decay_epochs == 1 ? "" : "s");
    }
    fputc('\n', file);
}

/* --- the samples -------------------------------------------------------------------------------------------------- */

/* All steps of an epoch except the last are full; rank 0 has the most samples in each. */
static void announce_epoch(FILE *file, const struct ls_run_announcement *a) {
    int64_t steps = ls_batches_per_epoch(a->batches), batch = a->options->batch_size, world = a->parallel->data_size;
    struct ls_batch_indices first, last;
    ls_batches_get(a->batches, 0, &first);
    ls_batches_get(a->batches, steps - 1, &last);
    int64_t taken = (steps - 1) * batch + (int64_t)last.global_count;
    int64_t of_rank_0 = (steps - 1) * (int64_t)first.local_count + (int64_t)last.local_count;
    fprintf(file, "samples: %" PRId64 " an epoch in %" PRId64 " step%s", a->dataset_count, steps,
            steps == 1 ? "" : "s");
    if ((int64_t)last.global_count < batch) fprintf(file, " (the last of %zu)", last.global_count);
    if (world > 1) fprintf(file, ", %s%" PRId64 " a rank", of_rank_0 * world == taken ? "" : "at most ", of_rank_0);
    if (taken > a->dataset_count) fprintf(file, ", %" PRId64 " repeated", taken - a->dataset_count);
    if (taken < a->dataset_count) fprintf(file, ", %" PRId64 " dropped", a->dataset_count - taken);
    if (a->options->shuffle && !a->options->set_epoch) fputs(", in the same order each epoch", file);
}

static void announce_samples(FILE *file, const struct ls_run_announcement *a) {
    int64_t total = a->schedule->total_steps;
    if (a->options->resident_batches > 0) {
        int kept = a->options->resident_batches;
        fprintf(file, "samples: %d resident batch%s, loaded in the first steps and used in turn", kept,
                kept == 1 ? "" : "es");
    } else if (a->batches) {
        announce_epoch(file, a);
    } else {
        fputs("samples: a stream of unknown length", file);
    }
    if (total > 0) fprintf(file, "; %" PRId64 " step%s in all", total, total == 1 ? "" : "s");
    if (a->parallel->step > 0) fprintf(file, ", %" PRIu64 " of them done", a->parallel->step);
    fputc('\n', file);
}

/* Numbers that follow from the data are shown; --help has the others. */
static void announce_normalization(FILE *file, const ls_train_options *o) {
    if (o->normalize == LS_NORMALIZE_AUTO) fprintf(file, "normalization: %s\n", o->normalization);
}

/* --- precision ---------------------------------------------------------------------------------------------------- */

static void announce_precision(FILE *file, const ls_parallel *p, const ls_train_options *o) {
    if (o->precision == LS_FP32) return;
    fprintf(file, "precision: %s", ls_dtype_name((ls_dtype)o->precision));
    const ls_grad_scaler *scaler = ls_optimizer_scaler(p->optimizer);
    struct ls_scaler_state state;
    if (scaler && ls_device_computes(p->devices[0]) && ls_grad_scaler_read(scaler, &state) == LS_OK) {
        fprintf(file, ", loss scale %.9g, doubled after %d steps in a row without infinities", (double)state.scale,
                o->growth_interval);
    }
    fputc('\n', file);
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

/* The payload of each phase. */
static const char *const kinds[LS_PHASE_COUNT] = {
    [LS_PHASE_SCATTER] = "inputs and output gradients",
    [LS_PHASE_REPLICATE] = "parameters",
    [LS_PHASE_GATHER] = "outputs",
    [LS_PHASE_REDUCE] = "gradients",
    [LS_PHASE_BROADCAST] = "buffers",
    [LS_PHASE_ALL_REDUCE] = "gradients",
    [LS_PHASE_STAGES] = "activations to the next stage",
    [LS_PHASE_TENSOR] = "terms of activations and of their gradients",
    [LS_PHASE_OPTIMIZER] = "gradients to the host, parameters back",
};

static const char *kind_of(const ls_parallel *p, ls_phase phase) {
    return phase == LS_PHASE_GATHER && p->mode->gathered ? p->mode->gathered : kinds[phase];
}

/* The number of ranks in a phase's collective. */
static int ranks_of(const ls_parallel *p, ls_phase phase) {
    return phase == LS_PHASE_TENSOR ? p->tensor_size : p->data_size;
}

/* Whether counted bytes are not sent, as the collective has one rank: without replicas, gradients and buffers. */
static bool stays_on_rank(const ls_parallel *p, ls_phase phase) {
    bool is_collective = phase != LS_PHASE_OPTIMIZER && phase != LS_PHASE_STAGES;
    return p->process && is_collective && ranks_of(p, phase) == 1;
}

/* Prints the share of the bytes that a rank sends. */
static void print_share(FILE *file, const ls_parallel *p, ls_phase phase) {
    int ranks = ranks_of(p, phase);
    if (phase == LS_PHASE_ALL_REDUCE || phase == LS_PHASE_TENSOR)
        fprintf(file, "; ring and direct send 2 x %d/%d of them", ranks - 1, ranks);
    else if (p->process && (phase == LS_PHASE_REDUCE || phase == LS_PHASE_GATHER))
        fprintf(file, "; a rank sends %d/%d of them", ranks - 1, ranks);
    else if (phase == LS_PHASE_OPTIMIZER && ls_optimizer_group(p->optimizer))
        fputs("; rank 0's share", file); /* padding is in the last ranks' shares */
}

static void print_bytes(FILE *file, const ls_parallel *p, const uint64_t bytes[LS_PHASE_COUNT]) {
    const char *comma = "";
    for (int phase = 0; phase < LS_PHASE_COUNT; phase++) {
        if (bytes[phase] == 0 || stays_on_rank(p, (ls_phase)phase)) continue;
        fprintf(file, "%s %s %" PRIu64 " (%s", comma, ls_phase_name((ls_phase)phase), bytes[phase],
                kind_of(p, (ls_phase)phase));
        bool gradients = phase == LS_PHASE_ALL_REDUCE || phase == LS_PHASE_REDUCE;
        if (gradients && p->sent_as != LS_FP32) fprintf(file, " in %s", ls_dtype_name(p->sent_as));
        print_share(file, p, (ls_phase)phase);
        fputc(')', file);
        comma = ",";
    }
    if (comma[0] == '\0') fputs(" nothing", file);
}

/* Counts the bytes of a step as the clocks of device `local` will. */
static void count_bytes(const ls_parallel *p, struct ls_step_size size, int local, uint64_t bytes[LS_PHASE_COUNT]) {
    const ls_offload_report *offload = ls_optimizer_offload_report(p->optimizer);
    if (p->device_count > 1 && p->mode->count_bytes) p->mode->count_bytes(p, size, local, bytes);
    for (int k = 0; k < size.micro_batches && p->tensor_size > 1; k++)
        bytes[LS_PHASE_TENSOR] += ls_tensor_step_nbytes(p->model, ls_parallel_rows(p, size, p->data_rank, k));
    if (offload && local == 0) bytes[LS_PHASE_OPTIMIZER] = offload->step_nbytes;
}

/* Whether device `next` continues the range of numbers from device `first`, with the same bytes. */
static bool continues(const ls_parallel *p, struct ls_step_size size, int first, int next,
                      const uint64_t bytes[LS_PHASE_COUNT]) {
    uint64_t of_next[LS_PHASE_COUNT] = {0};
    if (ls_device_index(p->devices[next]) != ls_device_index(p->devices[first]) + next - first) return false;
    count_bytes(p, size, next, of_next);
    return memcmp(bytes, of_next, sizeof of_next) == 0;
}

static void announce_bytes(FILE *file, const ls_parallel *p, struct ls_step_size size) {
    bool travels = p->device_count > 1 && p->mode->count_bytes;
    if (!travels && !ls_optimizer_offload_report(p->optimizer)) return;
    fputs("bytes a step:", file);
    for (int first = 0, end; first < p->local_device_count; first = end) {
        uint64_t bytes[LS_PHASE_COUNT] = {0};
        count_bytes(p, size, first, bytes);
        for (end = first + 1; end < p->local_device_count && continues(p, size, first, end, bytes);) end++;
        if (p->world_size > 1) { /* stages differ */
            fputs(ls_parallel_replicas(p) * p->tensor_size < p->device_count ? " rank 0" : " each rank", file);
        } else {
            fprintf(file, "%s device%s %d", first > 0 ? ";" : "", end > first + 1 ? "s" : "",
                    ls_device_index(p->devices[first]));
            if (end > first + 1) fprintf(file, " to %d", ls_device_index(p->devices[end - 1]));
        }
        print_bytes(file, p, bytes);
    }
    fputc('\n', file);
}

static void announce_offload(FILE *file, const ls_parallel *p) {
    const ls_offload_report *offload = ls_optimizer_offload_report(p->optimizer);
    if (!offload) return;
    fprintf(file, "offload: the optimizer takes %zu bytes of the host's memory%s\n", offload->host_nbytes,
            p->world_size > 1 ? " for each rank" : "");
}

static void announce_tensor(FILE *file, const ls_parallel *p, const ls_train_options *o) {
    if (p->tensor_size == 1) return;
    fprintf(file, "tensor: %d ranks share each pair of layers%s\n", p->tensor_size,
            o->tensor.sequence ? ", and the positions between pairs" : "");
}

void ls_announce(FILE *file, const struct ls_run_announcement *a) {
    ls_train_note_idle(a->options, ls_parallel_replicas(a->parallel));
    if (a->options->quiet) return;
    announce_tensor(file, a->parallel, a->options);
    announce_batch(file, a->parallel, a->options);
    announce_rate(file, a->parallel, a->options, a->schedule);
    announce_samples(file, a);
    announce_normalization(file, a->options);
    announce_precision(file, a->parallel, a->options);
    announce_offload(file, a->parallel);
    announce_bytes(file, a->parallel, (struct ls_step_size){(size_t)a->options->batch_size, a->options->accumulate});
    fflush(file);
}
