/* deferred — what ranks tell each other while they train, and when.
 *   idea  : in one look each rank hands all others its losses since the last one and its devices' rows, so that every rank has the
 *           global losses and rank 0 can show and write down all devices. The step of the next look follows from what the look
 *           has gathered (rank 0's wish for a view, and its clock), so all ranks agree on it without another word
 *   cost  : an all-gather of a double per step, 2 per rank and 41 per device: after the first step, then every
 *           LEAST_STEPS, or some five times a second where that many steps take less, at most LS_LOSS_RING steps apart,
 *           at the end of an epoch and after an evaluation; outside of the step times. A view makes it some four a
 *           second. With --metrics rank 0 reads its optimizer's records of the steps, too: all ranks' are the same
 *   order : losses are added in rank order, so that all ranks get the same bits
 *   fails : a loss that is not finite ends the run; by then all ranks have seen it */
#include "common/report/deferred.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define PERIOD_US 2e5

enum { LEAST_STEPS = 64 };

/* What goes before the losses: whether the rank wants a view, and how long it took since the last look. */
enum { WANTS_VIEW, ELAPSED_US, EXTRA };

static size_t row_doubles(const ls_parallel *p) { return (size_t)p->local_device_count * LS_DEVICE_ROW_DOUBLES; }

ls_status ls_deferred_open(ls_deferred *look, ls_parallel *p, const ls_train_options *options, ls_report *report,
                           int64_t total_steps) {
    *look = (ls_deferred){.parallel = p, .report = report, .total_steps = total_steps, .interval = 1, .last_loss = NAN};
    look->read_steps = (int64_t)p->step;
    look->next = look->read_steps + 1;
    size_t room = EXTRA + LS_LOSS_RING + row_doubles(p);
    look->sent = calloc(room, sizeof *look->sent);
    look->received = calloc(room * (size_t)p->world_size, sizeof *look->received);
    look->rows = calloc((size_t)p->device_count, sizeof *look->rows);
    look->wants_view = p->rank == 0 && ls_live_view_wanted(options);
    look->samples_per_step = (double)options->batch_size;
    look->since_us = ls_now_us();
    if (look->sent && look->received && look->rows) {
        ls_live_view_begin(&look->view, look->wants_view, p->device_count);
        return LS_OK;
    }
    ls_deferred_close(look);
    return ls_fail(LS_ERR_NO_MEMORY, "no memory to gather the losses of %d ranks", p->world_size);
}

void ls_deferred_begin_epoch(ls_deferred *look) {
    look->epoch_loss_sum = 0;
    look->epoch_losses = 0;
    look->since_us = ls_now_us();
}

void ls_deferred_epoch_losses(const ls_deferred *look, double *sum, int64_t *losses) {
    *sum = look->epoch_loss_sum;
    *losses = look->epoch_losses;
}

void ls_deferred_resume_epoch(ls_deferred *look, double sum, int64_t losses) {
    look->epoch_loss_sum = sum;
    look->epoch_losses = losses;
}

void ls_deferred_note(ls_deferred *look, double step_ms, double loader_wait_ms) {
    size_t slot = look->parallel->step % LS_LOSS_RING;
    look->step_ms[slot] = step_ms;
    look->loader_wait_ms[slot] = loader_wait_ms;
}

bool ls_deferred_is_due(const ls_deferred *look) { return (int64_t)look->parallel->step >= look->next; }

/* --- gathering --------------------------------------------------------------------------------------------------- */

static ls_status read_ring(const ls_deferred *look, float ring[LS_LOSS_RING]) {
    ls_parallel *p = look->parallel;
    ls_stream *stream = ls_device_stream(p->loss_device, LS_STREAM_COMPUTE);
    return ls_copy_now(stream, ring, p->losses, LS_LOSS_RING * sizeof *ring);
}

/* Fills `received`: EXTRA + steps + row_doubles doubles of each rank. */
static ls_status gather(ls_deferred *look, size_t steps) {
    ls_parallel *p = look->parallel;
    float ring[LS_LOSS_RING];
    struct ls_device_row row;
    ls_status status = read_ring(look, ring);
    if (status != LS_OK) return status;
    double *at = look->sent;
    at[WANTS_VIEW] = look->wants_view;
    at[ELAPSED_US] = ls_now_us() - look->since_us;
    at += EXTRA;
    for (size_t i = 0; i < steps; i++) *at++ = (double)ring[((size_t)look->read_steps + i) % LS_LOSS_RING];
    for (int d = 0; d < p->local_device_count; d++, at += LS_DEVICE_ROW_DOUBLES) {
        ls_device_row_read(&row, p, d);
        memcpy(at, &row, sizeof row);
    }
    size_t count = (size_t)(at - look->sent);
    if (p->ops->gather_from_ranks) return p->ops->gather_from_ranks(p, look->sent, count, look->received);
    memcpy(look->received, look->sent, count * sizeof *look->sent);
    return LS_OK;
}

static void take_rows(ls_deferred *look, size_t steps) {
    const ls_parallel *p = look->parallel;
    size_t stride = EXTRA + steps + row_doubles(p);
    for (int r = 0; r < p->world_size; r++) {
        const double *rows = look->received + (size_t)r * stride + EXTRA + steps;
        memcpy(look->rows + r * p->local_device_count, rows, row_doubles(p) * sizeof *rows);
    }
}

/* What the report says of each step beside its loss: rank 0 asks its own optimizer, for which it waits. */
static ls_status read_updates(ls_deferred *look) {
    const ls_optimizer *optimizer = look->parallel->optimizer;
    look->has_updates = false;
    if (!look->report || ls_optimizer_record_count(optimizer) != LS_LOSS_RING) return LS_OK;
    ls_status status = ls_optimizer_read_records(optimizer, look->updates);
    look->has_updates = status == LS_OK;
    return status;
}

static void report_step(const ls_deferred *look, double loss) {
    size_t slot = (size_t)look->read_steps % LS_LOSS_RING;
    if (!look->report) return;
    ls_report_step(look->report, &(struct ls_report_line){.step = look->read_steps,
                                                          .epoch = look->parallel->epoch,
                                                          .loss = loss,
                                                          .step_ms = look->step_ms[slot],
                                                          .loader_wait_ms = look->loader_wait_ms[slot],
                                                          .update = look->has_updates ? &look->updates[slot] : NULL});
}

/* --- the losses -------------------------------------------------------------------------------------------------- */

static double global_loss(const ls_deferred *look, size_t steps, size_t i) {
    const ls_parallel *p = look->parallel;
    size_t stride = EXTRA + steps + row_doubles(p);
    double sum = 0;
    for (int r = 0; r < p->world_size; r++) sum += look->received[(size_t)r * stride + EXTRA + i];
    return sum / p->world_size;
}

static ls_status take_losses(ls_deferred *look, size_t steps) {
    ls_parallel *p = look->parallel;
    for (size_t i = 0; i < steps; i++, look->read_steps++) {
        double loss = global_loss(look, steps, i);
        if (!isfinite(loss)) return ls_loss_diverged(p, (uint64_t)look->read_steps, loss, false);
        look->last_loss = loss;
        look->epoch_loss_sum += loss;
        look->epoch_losses++;
        report_step(look, loss);
    }
    return LS_OK;
}

/* --- the look ---------------------------------------------------------------------------------------------------- */

/* By rank 0's values, which all ranks have. */
static int64_t next_interval(const ls_deferred *look, size_t steps) {
    const double *first = look->received;
    bool view = first[WANTS_VIEW] != 0;
    int64_t least = view ? 1 : LEAST_STEPS;
    if (steps == 0) return look->interval;
    /* for a view twice as often as frames are shown, so that none is late by more than half a period */
    double wanted = (view ? LS_LIVE_PERIOD_US / 2 : PERIOD_US) * (double)steps / fmax(first[ELAPSED_US], 1);
    return wanted >= LS_LOSS_RING ? LS_LOSS_RING : wanted <= (double)least ? least : (int64_t)wanted;
}

static void show(ls_deferred *look, size_t steps) {
    if (!look->wants_view || steps == 0) return;
    double step_ms = look->received[ELAPSED_US] * 1e-3 / (double)steps;
    struct ls_live_step step = {.step = look->read_steps,
                                .total_steps = look->total_steps,
                                .epoch = look->parallel->epoch,
                                .loss = look->last_loss,
                                .step_ms = step_ms,
                                .samples_per_s = look->samples_per_step / fmax(step_ms, 1e-6) * 1e3};
    ls_live_view_show(&look->view, &step, look->rows);
}

/* The look itself is no time in which a device did something or waited. */
static void leave_out(ls_parallel *p, double us) {
    for (int d = 0; d < p->local_device_count; d++) p->clocks[d].since_us += us;
}

ls_status ls_deferred_now(ls_deferred *look) {
    double begin_us = ls_now_us();
    size_t steps = (size_t)((int64_t)look->parallel->step - look->read_steps);
    ls_status status = gather(look, steps);
    if (status == LS_OK && steps > 0) status = read_updates(look);
    if (status == LS_OK) {
        take_rows(look, steps);
        status = take_losses(look, steps);
    }
    if (status != LS_OK) return status;
    if (look->report) ls_report_flush(look->report);
    show(look, steps);
    look->interval = next_interval(look, steps);
    look->next = (int64_t)look->parallel->step + look->interval;
    look->since_us = ls_now_us();
    leave_out(look->parallel, look->since_us - begin_us);
    return LS_OK;
}

void ls_deferred_salvage(ls_deferred *look) {
    const ls_parallel *p = look->parallel;
    float ring[LS_LOSS_RING];
    if (!look->report || p->world_size > 1 || p->stuck || read_ring(look, ring) != LS_OK) return;
    if (read_updates(look) != LS_OK) return;
    for (; look->read_steps < (int64_t)p->step; look->read_steps++) {
        float loss = ring[(size_t)look->read_steps % LS_LOSS_RING];
        if (!isfinite(loss)) return;
        report_step(look, (double)loss);
    }
}

double ls_deferred_epoch_loss(const ls_deferred *look) {
    return look->epoch_losses > 0 ? look->epoch_loss_sum / (double)look->epoch_losses : NAN;
}

void ls_deferred_close(ls_deferred *look) {
    ls_live_view_end(&look->view, false);
    free(look->sent);
    free(look->received);
    free(look->rows);
    *look = (ls_deferred){0};
}
