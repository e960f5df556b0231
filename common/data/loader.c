/* loader — a queue of orders between the caller and a pool of threads.
 *   idea  : the batches of an epoch are ordered from the workers in turn, and taken in the order in which they were
 *           ordered. A slow worker changes when a batch arrives, never which batch is next. An order is a slot of one
 *           ring, whose slots are used in turn. The caller writes the slot's number into the worker's queue and sets
 *           that worker's `ordered`; the worker fills the slot and raises its `filled`. All counters start at 0 and
 *           live as long as the loader, so the threads need not know about epochs, and survive them. In a stream, the
 *           first order that returns no batch ends the epoch: share k + 1 has as many samples as share k or one less.
 *           So once a worker has no batch, no later worker has one in this round, and no worker has one in the next.
 *   cost  : a flag raised per batch, and per half of the prefetch one flag set for each worker; no lock, no allocation.
 *   order : the caller owns a slot before its order is given and after it is filled, the worker in between. Epoch and
 *           batch list change only while no order is open.
 *   fails : a worker that fails keeps its error line, and the caller reports it when it gets to that batch. An epoch
 *           left in the middle is drained: workers pass over open orders once `hurry` is set. The caller's waits end
 *           after the timeout; the workers' end with the stop order that destroy always sends. */
#define _GNU_SOURCE
#include "common/data/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/flag.h"
#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/data/assembler.h"

#define LS_LOADER_TIMEOUT_S 300
#define LS_LOADER_IDLE_US 10e6 /* workers check again that often; an idle caller is no error */
#define LS_LOADER_MAX_PREFETCH (1 << 20)
#define LS_STOP UINT32_MAX /* in a queue: an order to end */

struct worker {
    ls_loader *loader;
    pthread_t thread;
    ls_assembler assembler; /* the worker's while it has open orders, else the caller's */

    /* the caller's */
    uint64_t orders; /* given in the loader's life */
    bool told;       /* the worker has been notified of all of them */

    /* between the two */
    uint32_t *queue; /* order i is slot queue[i mod slot_count] */
    ls_flag ordered, filled;
};

struct ls_loader {
    /* constant after create */
    const ls_dataset *dataset;
    ls_batches *batches; /* NULL: a stream */
    ls_batch_slot *slots;
    struct worker *workers;
    uint32_t slot_count, refill; /* refill: with so few open orders, more are given */
    int worker_count;            /* at least 1; without threads the caller is worker 0 */
    int threads;
    double timeout_us;

    /* the caller's */
    int64_t epoch, steps;   /* of the epoch; INT64_MAX: a stream */
    int64_t ordered_steps;  /* in this epoch */
    bool ended;             /* (stream) of this epoch */
    uint64_t pass;          /* epochs begun */
    uint64_t orders, taken; /* orders given and taken back in the loader's life; slot i mod slot_count is order i's */
    ls_status failed;       /* of this epoch */
    double wait_us;

    /* between caller and workers */
    _Atomic bool hurry;
};

/* --- a worker ---------------------------------------------------------------------------------------------------- */

static void *fill_orders(void *argument) {
    struct worker *worker = argument;
    ls_loader *loader = worker->loader;
    ls_run_on_any_core();
    for (uint64_t order = 0;; order++) {
        while (!ls_flag_wait(&worker->ordered, (uint32_t)(order + 1), 0, ls_now_us() + LS_LOADER_IDLE_US)) continue;
        uint32_t slot = worker->queue[order % loader->slot_count];
        if (slot == LS_STOP) return NULL;
        if (!atomic_load(&loader->hurry)) ls_assembler_fill(&worker->assembler, &loader->slots[slot]);
        ls_flag_raise(&worker->filled);
    }
}

/* --- orders ------------------------------------------------------------------------------------------------------ */

static void put_order(struct worker *worker, uint32_t slot) {
    worker->queue[worker->orders % worker->loader->slot_count] = slot;
    worker->orders++;
    worker->told = false;
}

static void publish_orders(ls_loader *loader) {
    for (int k = 0; k < loader->worker_count; k++) {
        struct worker *worker = &loader->workers[k];
        if (!worker->told) ls_flag_set(&worker->ordered, (uint32_t)worker->orders); /* flags count modulo 2^32 */
        worker->told = true;
    }
}

/* Gives orders for all free slots once so many are free that each worker has half of its prefetch left: workers are
 * usually asleep, and waking one costs the caller more than anything else here. */
static void order_ahead(ls_loader *loader) {
    if (loader->orders - loader->taken > loader->refill) return;
    while (loader->ordered_steps < loader->steps && loader->orders - loader->taken < loader->slot_count) {
        struct worker *worker = &loader->workers[loader->ordered_steps % loader->worker_count];
        uint32_t place = (uint32_t)(loader->orders++ % loader->slot_count);
        ls_batch_slot *slot = &loader->slots[place];
        slot->worker = worker->assembler.worker;
        slot->ticket = (uint32_t)(worker->orders + 1);
        slot->pass = loader->pass;
        slot->batch.epoch = loader->epoch;
        slot->batch.step = loader->ordered_steps++;
        put_order(worker, place);
    }
    publish_orders(loader);
}

/* Waits until no worker has an open order, and lets them skip the work. */
static ls_status drain(ls_loader *loader) {
    ls_status status = LS_OK;
    double until_us = ls_now_us() + loader->timeout_us;
    atomic_store(&loader->hurry, true);
    for (int k = 0; status == LS_OK && k < loader->threads; k++) {
        struct worker *worker = &loader->workers[k];
        if (ls_flag_wait(&worker->filled, (uint32_t)worker->orders, 0, until_us)) continue;
        status = ls_fail(LS_ERR_TIMEOUT, "loader worker %d hangs: its batch was not finished within %g s", k,
                         loader->timeout_us * 1e-6);
    }
    atomic_store(&loader->hurry, false);
    if (status == LS_OK) loader->taken = loader->orders;
    return status;
}

/* --- create and destroy ------------------------------------------------------------------------------------------ */

static void free_loader(ls_loader *loader) {
    for (int k = 0; loader->workers && k < loader->worker_count; k++) {
        ls_assembler_release(&loader->workers[k].assembler);
        free(loader->workers[k].assembler.samples);
        free(loader->workers[k].queue);
    }
    for (uint32_t i = 0; loader->slots && i < loader->slot_count; i++) ls_batch_slot_free(&loader->slots[i]);
    free(loader->workers);
    free(loader->slots);
    free(loader);
}

static ls_status check_options(const ls_dataset *dataset, const ls_batches *batches, const ls_loader_options *options) {
    const ls_stream_share *stream = &options->stream;
    if (options->workers < 0 || options->workers > LS_LOADER_MAX_WORKERS) {
        return ls_fail(LS_ERR_INVALID, "a loader takes 0 to %d workers, not %d", LS_LOADER_MAX_WORKERS,
                       options->workers);
    }
    if (options->workers > 0 && (options->prefetch < 1 || options->prefetch > LS_LOADER_MAX_PREFETCH)) {
        return ls_fail(LS_ERR_INVALID, "prefetch %d is out of range; expected 1 to %d batches", options->prefetch,
                       LS_LOADER_MAX_PREFETCH);
    }
    if (ls_dataset_is_stream(dataset) != (batches == NULL)) {
        return ls_fail(LS_ERR_INVALID, "a loader takes either a stream or data with indices and their batches");
    }
    if (batches) return LS_OK;
    if (stream->local_batch < 1 || stream->world_size < 1 || stream->rank < 0 || stream->rank >= stream->world_size) {
        return ls_fail(LS_ERR_INVALID, "a stream's loader cannot have batches of %zu samples on rank %d of %d",
                       stream->local_batch, stream->rank, stream->world_size);
    }
    return LS_OK;
}

static bool allocate_parts(ls_loader *loader, const ls_loader_options *options, size_t sample_count) {
    loader->slots = calloc(loader->slot_count, sizeof *loader->slots);
    loader->workers = calloc((size_t)loader->worker_count, sizeof *loader->workers);
    bool done = loader->slots && loader->workers;
    for (int k = 0; done && k < loader->worker_count; k++) {
        struct worker *worker = &loader->workers[k];
        worker->loader = loader;
        worker->told = true;
        worker->assembler = (ls_assembler){.dataset = loader->dataset,
                                           .batches = loader->batches,
                                           .stream = options->stream,
                                           .precision = options->precision,
                                           .worker = k,
                                           .workers = loader->worker_count};
        worker->queue = calloc(loader->slot_count, sizeof *worker->queue);
        done = worker->queue && ls_assembler_alloc(&worker->assembler);
    }
    for (uint32_t i = 0; done && i < loader->slot_count; i++) {
        done = ls_batch_slot_alloc(&loader->slots[i], ls_dataset_spec(loader->dataset), sample_count,
                                   options->precision, options->pin_for);
    }
    return done;
}

static ls_status allocate(ls_loader **out, const ls_dataset *dataset, ls_batches *batches,
                          const ls_loader_options *options) {
    size_t sample_count = batches ? ls_batches_max_local_count(batches) : options->stream.local_batch;
    int prefetch = options->workers > 0 ? options->prefetch : 0;
    uint32_t slot_count = (uint32_t)options->workers * (uint32_t)prefetch + 1;
    ls_loader *loader = calloc(1, sizeof *loader);
    if (loader) {
        loader->dataset = dataset;
        loader->batches = batches;
        loader->worker_count = options->workers > 0 ? options->workers : 1;
        loader->slot_count = slot_count;
        loader->refill = (uint32_t)options->workers * (((uint32_t)prefetch + 1) / 2);
        loader->timeout_us = (options->timeout_s > 0 ? options->timeout_s : LS_LOADER_TIMEOUT_S) * 1e6;
    }
    if (loader && allocate_parts(loader, options, sample_count)) {
        *out = loader;
        return LS_OK;
    }
    if (loader) free_loader(loader);
    return ls_fail(LS_ERR_NO_MEMORY,
                   "cannot allocate memory for %u batches of %zu samples: choose smaller batches or less prefetch",
                   slot_count, sample_count);
}

ls_status ls_loader_create(ls_loader **out, const ls_dataset *dataset, ls_batches *batches,
                           const ls_loader_options *options) {
    *out = NULL;
    ls_loader *loader = NULL;
    ls_status status = check_options(dataset, batches, options);
    if (status == LS_OK) status = allocate(&loader, dataset, batches, options);
    for (int k = 0; status == LS_OK && k < options->workers; k++) {
        struct worker *worker = &loader->workers[k];
        int error = pthread_create(&worker->thread, NULL, fill_orders, worker);
        if (error == 0) {
            loader->threads++;
        } else {
            status = ls_fail(LS_ERR_SYSTEM, "cannot start loader worker %d: %s", k, strerror(error));
        }
    }
    if (status == LS_OK)
        *out = loader;
    else
        ls_loader_destroy(loader);
    return status;
}

void ls_loader_destroy(ls_loader *loader) {
    if (!loader) return;
    if (drain(loader) != LS_OK) return; /* reported; a thread that hangs still uses the memory */
    for (int k = 0; k < loader->threads; k++) put_order(&loader->workers[k], LS_STOP);
    publish_orders(loader);
    for (int k = 0; k < loader->threads; k++) pthread_join(loader->workers[k].thread, NULL);
    free_loader(loader);
}

/* --- epochs and batches ------------------------------------------------------------------------------------------ */

/* Reads and drops `count` batches of a stream, or the rest of it. */
static ls_status drop_batches(ls_loader *loader, int64_t count) {
    ls_status status = LS_OK;
    const ls_batch *dropped = NULL;
    for (int64_t i = 0; i < count; i++) {
        status = ls_loader_next(loader, &dropped);
        if (status != LS_OK || !dropped) break;
    }
    return status;
}

ls_status ls_loader_begin_epoch(ls_loader *loader, int64_t epoch, int64_t first) {
    loader->failed = drain(loader);
    if (loader->failed != LS_OK) return loader->failed;
    if (loader->batches) ls_batches_set_epoch(loader->batches, epoch);
    loader->steps = loader->batches ? ls_batches_per_epoch(loader->batches) : INT64_MAX;
    loader->epoch = epoch;
    loader->pass++;
    loader->ordered_steps = loader->batches ? first : 0;
    loader->ended = false;
    if (loader->threads > 0) order_ahead(loader);
    return loader->batches ? LS_OK : drop_batches(loader, first);
}

/* Reports why the slot's batch could not be read. */
static ls_status fail_batch(ls_loader *loader, ls_status status, const ls_batch_slot *slot, const char *cause) {
    char who[32] = "loader";
    if (loader->threads > 0) snprintf(who, sizeof who, "loader worker %d", slot->worker);
    loader->failed = status;
    return ls_fail(status, "%s, epoch %" PRId64 ", batch %" PRId64 ": %s", who, slot->batch.epoch, slot->batch.step,
                   cause);
}

/* Records the wait for a worker, whose own thread has no probes. */
static void probe_wait(struct ls_probe_record *record, const struct worker *worker, const ls_batch_slot *slot) {
    record->object = (uintptr_t)&worker->filled;
    record->number = slot->ticket;
    ls_probe_end(record);
}

/* Waits until the slot is filled, or fills it. */
static ls_status obtain(ls_loader *loader, ls_batch_slot *slot) {
    struct worker *worker = &loader->workers[slot->worker];
    bool probing = ls_probing() && loader->threads > 0;
    struct ls_probe_record record = {0};
    if (probing) record = ls_probe_begin(LS_PROBE_AWAIT, "batch");
    double begin_us = ls_now_us();
    bool done = true;
    if (loader->threads > 0) {
        done = ls_flag_wait(&worker->filled, slot->ticket, 0, begin_us + loader->timeout_us);
        /* a process that was stopped meanwhile finds its deadline past, though no worker hangs */
        if (!done) done = ls_flag_wait(&worker->filled, slot->ticket, 0, ls_now_us() + loader->timeout_us / 20);
    } else {
        ls_assembler_fill(&worker->assembler, slot);
    }
    loader->wait_us += ls_now_us() - begin_us;
    if (probing) probe_wait(&record, worker, slot);
    if (!done) {
        char cause[64];
        snprintf(cause, sizeof cause, "not finished within %g s; the worker hangs", loader->timeout_us * 1e-6);
        return fail_batch(loader, LS_ERR_TIMEOUT, slot, cause);
    }
    loader->taken++;
    if (slot->status == LS_OK) return LS_OK;
    const char *cause = worker->assembler.cause; /* safe to read: the worker does not write it again in this epoch */
    return fail_batch(loader, slot->status, slot, cause[0] ? cause : ls_status_text(slot->status));
}

ls_status ls_loader_next(ls_loader *loader, const ls_batch **batch) {
    *batch = NULL;
    if (loader->failed != LS_OK) return loader->failed;
    if (loader->ended) return LS_OK;
    order_ahead(loader); /* the batch handed out last has just become a free slot */
    if (loader->taken == loader->orders) return LS_OK;
    ls_batch_slot *slot = &loader->slots[loader->taken % loader->slot_count];
    ls_status status = obtain(loader, slot);
    if (status != LS_OK) return status;
    loader->ended = slot->end;
    if (!slot->end) *batch = &slot->batch;
    return LS_OK;
}

double ls_loader_wait_us(const ls_loader *loader) { return loader->wait_us; }
