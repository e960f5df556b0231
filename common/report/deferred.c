/* deferred — the values that ranks exchange while they train, and when.
 *   idea  : in one read each rank sends all others its losses since the last read and its devices' rows. So every rank
 *           has the global losses, and rank 0 can show and write all devices. The step of the next read follows from
 *           the gathered values (whether rank 0 wants a view, and its clock), so all ranks agree on it without another
 *           message
 *   cost  : an all-gather of a double per step, 2 per rank and 41 per device: after the first step, then every
 *           LEAST_STEPS, or some five times a second if that many steps take less, at most LS_LOSS_RING steps apart,
 *           at the end of an epoch and after an evaluation; outside of the step times. With a view, some four a
 *           second. With --metrics rank 0 also reads its optimizer's records of the steps: all ranks' are the same
 *   order : losses are added in rank order, so that all ranks get the same bits
 *   fails : a loss that is not finite ends the run; by then all ranks have seen it */
#include "common/report/deferred.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define PERIOD_US 2e5

enum { LEAST_STEPS = 64 };

/* The values before the losses: whether the rank wants a view, and the time since the last read. */
enum { WANTS_VIEW, ELAPSED_US, EXTRA };

static size_t row_doubles(const ls_parallel *p) { return (size_t)p->local_device_count * LS_DEVICE_ROW_DOUBLES; }

ls_status ls_deferred_open(ls_deferred *deferred, ls_parallel *p, const ls_train_options *options, ls_report *report,
                           int64_t total_steps) {
    *deferred =
        (ls_deferred){.parallel = p, .report = report, .total_steps = total_steps, .interval = 1, .last_loss = NAN};
    deferred->read_steps = (int64_t)p->step;
    deferred->next = deferred->read_steps + 1;
    size_t room = EXTRA + LS_LOSS_RING + row_doubles(p);
    deferred->sent = calloc(room, sizeof *deferred->sent);
    deferred->received = calloc(room * (size_t)p->world_size, sizeof *deferred->received);
    deferred->rows = calloc((size_t)p->device_count, sizeof *deferred->rows);
    deferred->wants_view = p->rank == 0 && ls_live_view_wanted(options);
    deferred->samples_per_step = (double)options->batch_size;
    deferred->since_us = ls_now_us();
    if (deferred->sent && deferred->received && deferred->rows) {
        ls_live_view_begin(&deferred->view, deferred->wants_view, p->device_count);
        return LS_OK;
    }
    ls_deferred_close(deferred);
    return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to gather the losses of %d ranks", p->world_size);
}

void ls_deferred_begin_epoch(ls_deferred *deferred) {
    deferred->epoch_loss_sum = 0;
    deferred->epoch_losses = 0;
    deferred->since_us = ls_now_us();
}

void ls_deferred_epoch_losses(const ls_deferred *deferred, double *sum, int64_t *losses) {
    *sum = deferred->epoch_loss_sum;
    *losses = deferred->epoch_losses;
}

void ls_deferred_resume_epoch(ls_deferred *deferred, double sum, int64_t losses) {
    deferred->epoch_loss_sum = sum;
    deferred->epoch_losses = losses;
}

void ls_deferred_note(ls_deferred *deferred, double step_ms, double loader_wait_ms) {
    size_t slot = deferred->parallel->step % LS_LOSS_RING;
    deferred->step_ms[slot] = step_ms;
    deferred->loader_wait_ms[slot] = loader_wait_ms;
}

bool ls_deferred_is_due(const ls_deferred *deferred) { return (int64_t)deferred->parallel->step >= deferred->next; }

/* --- gathering --------------------------------------------------------------------------------------------------- */

static ls_status read_ring(const ls_deferred *deferred, float ring[LS_LOSS_RING]) {
    ls_parallel *p = deferred->parallel;
    ls_stream *stream = ls_device_stream(p->loss_device, LS_STREAM_COMPUTE);
    return ls_copy_now(stream, ring, p->losses, LS_LOSS_RING * sizeof *ring);
}

/* Fills `received`: EXTRA + steps + row_doubles doubles of each rank. */
static ls_status gather(ls_deferred *deferred, size_t steps) {
    ls_parallel *p = deferred->parallel;
    float ring[LS_LOSS_RING];
    struct ls_device_row row;
    ls_status status = read_ring(deferred, ring);
    if (status != LS_OK) return status;
    double *at = deferred->sent;
    at[WANTS_VIEW] = deferred->wants_view;
    at[ELAPSED_US] = ls_now_us() - deferred->since_us;
    at += EXTRA;
    for (size_t i = 0; i < steps; i++)
        *at++ = p->loss_elsewhere ? 0 : (double)ring[((size_t)deferred->read_steps + i) % LS_LOSS_RING];
    for (int d = 0; d < p->local_device_count; d++, at += LS_DEVICE_ROW_DOUBLES) {
        ls_device_row_read(&row, p, d);
        memcpy(at, &row, sizeof row);
    }
    size_t count = (size_t)(at - deferred->sent);
    if (p->process) return p->process->gather_from_ranks(p, deferred->sent, count, deferred->received);
    memcpy(deferred->received, deferred->sent, count * sizeof *deferred->sent);
    return LS_OK;
}

static void take_rows(ls_deferred *deferred, size_t steps) {
    const ls_parallel *p = deferred->parallel;
    size_t stride = EXTRA + steps + row_doubles(p);
    for (int r = 0; r < p->world_size; r++) {
        const double *rows = deferred->received + (size_t)r * stride + EXTRA + steps;
        memcpy(deferred->rows + r * p->local_device_count, rows, row_doubles(p) * sizeof *rows);
    }
}

/* Reads the values of each step that the report has beside the loss: rank 0 waits for its own optimizer. */
static ls_status read_updates(ls_deferred *deferred) {
    const ls_optimizer *optimizer = deferred->parallel->optimizer;
    deferred->has_updates = false;
    if (!deferred->report || ls_optimizer_record_count(optimizer) != LS_LOSS_RING) return LS_OK;
    ls_status status = ls_optimizer_read_records(optimizer, deferred->updates);
    deferred->has_updates = status == LS_OK;
    return status;
}

static void report_step(const ls_deferred *deferred, double loss) {
    size_t slot = (size_t)deferred->read_steps % LS_LOSS_RING;
    if (!deferred->report) return;
    ls_report_step(deferred->report,
                   &(struct ls_report_line){.step = deferred->read_steps,
                                            .epoch = deferred->parallel->epoch,
                                            .loss = loss,
                                            .step_ms = deferred->step_ms[slot],
                                            .loader_wait_ms = deferred->loader_wait_ms[slot],
                                            .update = deferred->has_updates ? &deferred->updates[slot] : NULL});
}

/* --- the losses -------------------------------------------------------------------------------------------------- */

static double global_loss(const ls_deferred *deferred, size_t steps, size_t i) {
    const ls_parallel *p = deferred->parallel;
    size_t stride = EXTRA + steps + row_doubles(p);
    double sum = 0;
    for (int r = 0; r < p->world_size; r++) sum += deferred->received[(size_t)r * stride + EXTRA + i];
    return sum / p->data_size;
}

static ls_status take_losses(ls_deferred *deferred, size_t steps) {
    ls_parallel *p = deferred->parallel;
    for (size_t i = 0; i < steps; i++, deferred->read_steps++) {
        double loss = global_loss(deferred, steps, i);
        if (!isfinite(loss)) return ls_loss_diverged(p, (uint64_t)deferred->read_steps, loss, false);
        deferred->last_loss = loss;
        deferred->epoch_loss_sum += loss;
        deferred->epoch_losses++;
        report_step(deferred, loss);
    }
    return LS_OK;
}

/* --- the read ----------------------------------------------------------------------------------------------------- */

/* Depends on rank 0's values only, which all ranks have. */
static int64_t next_interval(const ls_deferred *deferred, size_t steps) {
    const double *first = deferred->received;
    bool view = first[WANTS_VIEW] != 0;
    int64_t least = view ? 1 : LEAST_STEPS;
    if (steps == 0) return deferred->interval;
    /* for a view, twice as often as frames are shown, so that none is late by more than half a period */
    double wanted = (view ? LS_LIVE_PERIOD_US / 2 : PERIOD_US) * (double)steps / fmax(first[ELAPSED_US], 1);
    return wanted >= LS_LOSS_RING ? LS_LOSS_RING : wanted <= (double)least ? least : (int64_t)wanted;
}

static void show(ls_deferred *deferred, size_t steps) {
    if (!deferred->wants_view || steps == 0) return;
    double step_ms = deferred->received[ELAPSED_US] * 1e-3 / (double)steps;
    struct ls_live_step step = {.step = deferred->read_steps,
                                .total_steps = deferred->total_steps,
                                .epoch = deferred->parallel->epoch,
                                .loss = deferred->last_loss,
                                .step_ms = step_ms,
                                .samples_per_s = deferred->samples_per_step / fmax(step_ms, 1e-6) * 1e3};
    ls_live_view_show(&deferred->view, &step, deferred->rows);
}

/* Excludes the time of the read itself from the devices' work and waiting. */
static void leave_out(ls_parallel *p, double us) {
    for (int d = 0; d < p->local_device_count; d++) p->clocks[d].since_us += us;
}

ls_status ls_deferred_read(ls_deferred *deferred) {
    double begin_us = ls_now_us();
    size_t steps = (size_t)((int64_t)deferred->parallel->step - deferred->read_steps);
    ls_status status = gather(deferred, steps);
    if (status == LS_OK && steps > 0) status = read_updates(deferred);
    if (status == LS_OK) {
        take_rows(deferred, steps);
        status = take_losses(deferred, steps);
    }
    if (status != LS_OK) return status;
    if (deferred->report) ls_report_flush(deferred->report);
    show(deferred, steps);
    deferred->interval = next_interval(deferred, steps);
    deferred->next = (int64_t)deferred->parallel->step + deferred->interval;
    deferred->since_us = ls_now_us();
    leave_out(deferred->parallel, deferred->since_us - begin_us);
    return LS_OK;
}

void ls_deferred_salvage(ls_deferred *deferred) {
    const ls_parallel *p = deferred->parallel;
    float ring[LS_LOSS_RING];
    if (!deferred->report || p->world_size > 1 || p->stuck || read_ring(deferred, ring) != LS_OK) return;
    if (read_updates(deferred) != LS_OK) return;
    for (; deferred->read_steps < (int64_t)p->step; deferred->read_steps++) {
        float loss = ring[(size_t)deferred->read_steps % LS_LOSS_RING];
        if (!isfinite(loss)) return;
        report_step(deferred, (double)loss);
    }
}

double ls_deferred_epoch_loss(const ls_deferred *deferred) {
    return deferred->epoch_losses > 0 ? deferred->epoch_loss_sum / (double)deferred->epoch_losses : NAN;
}

void ls_deferred_close(ls_deferred *deferred) {
    ls_live_view_end(&deferred->view, false);
    free(deferred->sent);
    free(deferred->received);
    free(deferred->rows);
    *deferred = (ls_deferred){0};
}
