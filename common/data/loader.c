/* loader — a queue of orders between the caller and one thread.
 *   idea  : the ring's slots are filled and used in turn. The caller writes an order ("step k of this epoch") into a
 *           free slot and raises `ordered`; the thread fills the slot and raises `filled`. Slot i of the ring serves
 *           order i, i + S, ...; both sides count orders from 0 for the loader's whole life, so an epoch is nothing the
 *           thread needs to know about.
 *   cost  : two flag raises per batch, no lock, no allocation.
 *   order : a slot is the caller's before its order is raised and after it is filled, the thread's in between. Epoch
 *           and batch list change only while no order is open.
 *   fails : an epoch left in the middle is drained: the thread passes over open orders once `hurry` is set. The
 *           caller's waits end after 300 s; the thread's end with the stop order that destroy always sends. */
#define _GNU_SOURCE
#include "common/data/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/flag.h"
#include "common/base/log.h"

#define LS_LOADER_DEADLINE_US 300e6
#define LS_LOADER_IDLE_US 10e6 /* the thread looks again that often; an idle caller is no error */
#define LS_BUFFER_ALIGNMENT 64 /* a cache line */

struct slot {
    bool stop;      /* an order to end the thread */
    ls_batch batch; /* epoch and step are the order; the rest is filled in */
    float *inputs;
    int64_t *labels;
    float *targets;
};

struct ls_loader {
    /* constant after create */
    const ls_dataset *dataset;
    ls_batches *batches;
    struct slot *slots;
    uint32_t slot_count;
    bool has_thread;
    pthread_t thread;

    /* the caller's */
    int64_t epoch, steps, next_step; /* next_step: the first that is not ordered yet */
    uint64_t orders, taken;          /* orders given, batches handed out, in the loader's life */
    double wait_us;

    /* between the two */
    ls_flag ordered, filled;
    _Atomic bool hurry;
};

static void fill_slot(const ls_loader *loader, struct slot *slot) {
    struct ls_batch_indices share;
    ls_batches_get(loader->batches, slot->batch.step, &share);
    (void)ls_dataset_read(loader->dataset, share.indices, share.local_count, slot->inputs, slot->labels, slot->targets);
    slot->batch.count = share.local_count;
    slot->batch.global_count = share.global_count;
}

static void *fill_orders(void *argument) {
    ls_loader *loader = argument;
    ls_run_on_any_core();
    for (uint64_t order = 0;; order++) {
        while (!ls_flag_wait(&loader->ordered, (uint32_t)(order + 1), 0, ls_now_us() + LS_LOADER_IDLE_US)) continue;
        struct slot *slot = &loader->slots[order % loader->slot_count];
        if (slot->stop) return NULL;
        if (!atomic_load(&loader->hurry)) fill_slot(loader, slot);
        ls_flag_raise(&loader->filled);
    }
}

/* Gives the next order; its slot must be free. */
static void give_order(ls_loader *loader, bool stop) {
    struct slot *slot = &loader->slots[loader->orders % loader->slot_count];
    slot->stop = stop;
    slot->batch.epoch = loader->epoch;
    slot->batch.step = stop ? 0 : loader->next_step++;
    loader->orders++;
    ls_flag_raise(&loader->ordered);
}

/* Waits until the thread has carried out `orders` orders in all. Flags count modulo 2^32. */
static ls_status wait_filled(ls_loader *loader, uint64_t orders) {
    if (ls_flag_wait(&loader->filled, (uint32_t)orders, 0, ls_now_us() + LS_LOADER_DEADLINE_US)) return LS_OK;
    return ls_fail(LS_ERR_TIMEOUT, "the loader's thread has not finished a batch within %.0f s",
                   LS_LOADER_DEADLINE_US * 1e-6);
}

/* Waits until the thread has no open order, without having it do the work. */
static ls_status drain(ls_loader *loader) {
    if (!loader->has_thread) return LS_OK;
    atomic_store(&loader->hurry, true);
    ls_status status = wait_filled(loader, loader->orders);
    atomic_store(&loader->hurry, false);
    if (status == LS_OK) loader->taken = loader->orders;
    return status;
}

static bool allocate_slot(struct slot *slot, const ls_sample_spec *spec, size_t sample_count) {
    size_t input_nbytes, label_nbytes, target_nbytes;
    if (__builtin_mul_overflow(sample_count, ls_sample_input_count(spec) * sizeof(float), &input_nbytes)) return false;
    if (__builtin_mul_overflow(sample_count, sizeof(int64_t), &label_nbytes)) return false;
    if (__builtin_mul_overflow(sample_count, spec->target_count * sizeof(float), &target_nbytes)) return false;
    void *inputs = NULL, *labels = NULL, *targets = NULL;
    bool done = posix_memalign(&inputs, LS_BUFFER_ALIGNMENT, input_nbytes) == 0;
    if (done && spec->classes > 0) done = posix_memalign(&labels, LS_BUFFER_ALIGNMENT, label_nbytes) == 0;
    if (done && spec->target_count > 0) done = posix_memalign(&targets, LS_BUFFER_ALIGNMENT, target_nbytes) == 0;
    slot->inputs = inputs;
    slot->labels = labels;
    slot->targets = targets;
    slot->batch = (ls_batch){.inputs = inputs, .labels = labels, .targets = targets};
    return done;
}

static void free_loader(ls_loader *loader) {
    for (uint32_t i = 0; loader->slots && i < loader->slot_count; i++) {
        free(loader->slots[i].inputs);
        free(loader->slots[i].labels);
        free(loader->slots[i].targets);
    }
    free(loader->slots);
    free(loader);
}

static ls_status allocate(ls_loader **out, const ls_dataset *dataset, ls_batches *batches, int prefetch) {
    size_t sample_count = ls_batches_max_local_count(batches);
    ls_loader *loader = calloc(1, sizeof *loader);
    bool done = loader != NULL;
    if (done) {
        loader->dataset = dataset;
        loader->batches = batches;
        loader->slot_count = (uint32_t)prefetch + 1;
        loader->slots = calloc(loader->slot_count, sizeof *loader->slots);
        done = loader->slots != NULL;
    }
    for (uint32_t i = 0; done && i < loader->slot_count; i++) {
        done = allocate_slot(&loader->slots[i], ls_dataset_spec(dataset), sample_count);
    }
    if (!done) {
        if (loader) free_loader(loader);
        return ls_fail(LS_ERR_NO_MEMORY,
                       "no memory for %d batches of %zu samples: choose smaller batches or less prefetch", prefetch + 1,
                       sample_count);
    }
    *out = loader;
    return LS_OK;
}

ls_status ls_loader_create(ls_loader **out, const ls_dataset *dataset, ls_batches *batches,
                           const ls_loader_options *options) {
    *out = NULL;
    int prefetch = options->workers > 0 ? options->prefetch : 0;
    if (prefetch < 0 || prefetch > 1 << 20) return ls_fail(LS_ERR_INVALID, "invalid prefetch %d", prefetch);
    ls_loader *loader = NULL;
    ls_status status = allocate(&loader, dataset, batches, prefetch);
    if (status != LS_OK) return status;
    if (prefetch > 0) {
        int error = pthread_create(&loader->thread, NULL, fill_orders, loader);
        if (error != 0) {
            free_loader(loader);
            return ls_fail(LS_ERR_SYSTEM, "cannot start the loader's thread: %s", strerror(error));
        }
        loader->has_thread = true;
    }
    *out = loader;
    return LS_OK;
}

/* Orders as many steps as there are free slots, once half of them are free: the thread is usually asleep, and waking it costs
 * the caller more than anything else here. */
static void order_ahead(ls_loader *loader) {
    if (loader->orders - loader->taken > loader->slot_count / 2) return;
    while (loader->next_step < loader->steps && loader->orders - loader->taken < loader->slot_count) {
        give_order(loader, false);
    }
}

ls_status ls_loader_begin_epoch(ls_loader *loader, int64_t epoch) {
    ls_status status = drain(loader);
    if (status != LS_OK) return status;
    ls_batches_set_epoch(loader->batches, epoch);
    loader->epoch = epoch;
    loader->steps = ls_batches_per_epoch(loader->batches);
    loader->next_step = 0;
    if (loader->has_thread) order_ahead(loader);
    return LS_OK;
}

ls_status ls_loader_next(ls_loader *loader, const ls_batch **batch) {
    *batch = NULL;
    order_ahead(loader); /* the batch handed out last has just become a free slot */
    if (loader->taken == loader->orders) return LS_OK;
    struct slot *slot = &loader->slots[loader->taken % loader->slot_count];
    double begin_us = ls_now_us();
    if (loader->has_thread) {
        ls_status status = wait_filled(loader, loader->taken + 1);
        if (status != LS_OK) return status;
    } else {
        fill_slot(loader, slot);
    }
    loader->wait_us += ls_now_us() - begin_us;
    loader->taken++;
    *batch = &slot->batch;
    return LS_OK;
}

double ls_loader_wait_us(const ls_loader *loader) { return loader->wait_us; }

void ls_loader_destroy(ls_loader *loader) {
    if (!loader) return;
    if (loader->has_thread) {
        if (drain(loader) != LS_OK) return; /* reported; a thread that hangs still uses the memory */
        give_order(loader, true);
        pthread_join(loader->thread, NULL);
    }
    free_loader(loader);
}
