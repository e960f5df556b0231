/* cpu_streams — running items, and the two orderly policies: inline (at once, in the caller) and worker (a queue and a
 * thread per stream).
 *   order : the queue has one producer (the thread that owns the stream) and one consumer (the worker); the two flags are
 *           its only synchronisation, so enqueueing takes no lock and, while the worker is awake, no system call. A brief
 *           item for an idle worker is run by the caller, since waking the worker would take longer
 *   fails : a wait that misses its deadline poisons the device; its stream continues without running tasks, so that
 *           no wait for a later record hangs */
#include "common/device/cpu_streams.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define LS_AWAKE_US 1e6 /* if the process was stopped past its deadline: time for the awaited worker to record */

double ls_wait_until_us(void) { return ls_now_us() + ls_wait_timeout_s() * 1e6; }

/* Blocks until the event's record `ticket` has been reached; LS_ERR_TIMEOUT names the event. */
static ls_status wait_reached(ls_event *event, uint32_t ticket, double spin_us) {
    if (ls_flag_reached(&event->completed, ticket)) return LS_OK;
    if (ls_flag_wait(&event->completed, ticket, spin_us, ls_wait_until_us())) return LS_OK;
    if (ls_flag_wait(&event->completed, ticket, 0, ls_now_us() + LS_AWAKE_US)) return LS_OK;
    return ls_fail(LS_ERR_TIMEOUT, "timed out after %g s waiting for the event \"%s\"", ls_wait_timeout_s(),
                   event->name);
}

ls_status ls_stream_run_item(ls_stream *stream, const struct ls_item *item) {
    ls_device *device = stream->device;
    ls_status status = LS_OK;
    switch (item->kind) {
    case LS_ITEM_TASK:
        status = ls_device_status(device);
        if (status != LS_OK) return status;
        status = item->number == 0 ? item->task(item->arguments)
                                   : ls_probe_run_task(stream, item->label, item->number, item->task, item->arguments);
        break;
    case LS_ITEM_RECORD:
        atomic_fetch_add(&item->event->reaching, 1);
        ls_flag_set(&item->event->completed, item->ticket);
        atomic_fetch_sub(&item->event->reaching, 1);
        break;
    case LS_ITEM_WAIT: status = wait_reached(item->event, item->ticket, device->spin_us); break;
    }
    ls_device_fail(device, status);
    return status;
}

static ls_status nothing_to_start(ls_stream *stream) {
    (void)stream;
    return LS_OK;
}

static void nothing_to_stop(ls_stream *stream) { (void)stream; }

static ls_status reach_by_waiting(ls_event *event, uint32_t ticket) {
    return wait_reached(event, ticket, event->stream->device->spin_us);
}

/* --- inline ------------------------------------------------------------------------------------------------------ */

const struct ls_stream_policy ls_policy_inline = {
    .name = "inline",
    .start = nothing_to_start,
    .stop = nothing_to_stop,
    .enqueue = ls_stream_run_item,
    .drain = nothing_to_start,
    .reach = reach_by_waiting,
};

/* --- worker ------------------------------------------------------------------------------------------------------ */

ls_status ls_queue_create(struct ls_queue *queue) {
    memset(queue, 0, sizeof *queue);
    queue->items = calloc(LS_QUEUE_CAPACITY, sizeof *queue->items);
    return queue->items ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a stream's queue");
}

void ls_queue_destroy(struct ls_queue *queue) { free(queue->items); }

static void *worker_main(void *argument) {
    ls_stream *stream = argument;
    struct ls_queue *queue = &ls_cpu_stream_of(stream)->queue;
    ls_probe_name_thread("%s stream of device %d", ls_stream_kind_name(stream->kind), stream->device->options.index);
    for (uint32_t next = 0;; next++) {
        while (!ls_flag_wait(&queue->produced, next + 1, stream->device->spin_us, ls_wait_until_us())) {
        }
        if (atomic_load(&ls_cpu_stream_of(stream)->stopping) && ls_flag_value(&queue->produced) == next + 1) break;
        (void)ls_stream_run_item(stream, &queue->items[next % LS_QUEUE_CAPACITY]);
        ls_flag_set(&queue->consumed, next + 1);
    }
    return NULL;
}

static ls_status worker_start(ls_stream *stream) {
    ls_status status = ls_queue_create(&ls_cpu_stream_of(stream)->queue);
    if (status != LS_OK) return status;
    int error = pthread_create(&ls_cpu_stream_of(stream)->worker, NULL, worker_main, stream);
    if (error == 0) return LS_OK;
    ls_queue_destroy(&ls_cpu_stream_of(stream)->queue);
    return ls_fail(LS_ERR_SYSTEM, "cannot start a stream's worker thread: %s", strerror(error));
}

static ls_status wait_consumed(ls_stream *stream, uint32_t count) {
    if (ls_flag_wait(&ls_cpu_stream_of(stream)->queue.consumed, count, stream->device->spin_us, ls_wait_until_us()))
        return LS_OK;
    return ls_fail(LS_ERR_TIMEOUT, "a stream of device %d made no progress for %g s", stream->device->options.index,
                   ls_wait_timeout_s());
}

static bool is_brief(const struct ls_item *item) {
    return item->brief || item->kind == LS_ITEM_RECORD ||
           (item->kind == LS_ITEM_WAIT && ls_flag_reached(&item->event->completed, item->ticket));
}

static ls_status worker_enqueue(ls_stream *stream, const struct ls_item *item) {
    struct ls_queue *queue = &ls_cpu_stream_of(stream)->queue;
    uint32_t next = ls_flag_value(&queue->produced);
    if (is_brief(item) && ls_flag_reached(&queue->consumed, next)) return ls_stream_run_item(stream, item);
    ls_status status = wait_consumed(stream, next - LS_QUEUE_CAPACITY + 1);
    if (status != LS_OK) return status;
    queue->items[next % LS_QUEUE_CAPACITY] = *item;
    ls_flag_set(&queue->produced, next + 1);
    return LS_OK;
}

static ls_status worker_drain(ls_stream *stream) {
    return wait_consumed(stream, ls_flag_value(&ls_cpu_stream_of(stream)->queue.produced));
}

static void worker_stop(ls_stream *stream) {
    (void)worker_drain(stream);
    atomic_store(&ls_cpu_stream_of(stream)->stopping, 1);
    ls_flag_raise(&ls_cpu_stream_of(stream)->queue.produced); /* one item past the end tells the worker to exit */
    pthread_join(ls_cpu_stream_of(stream)->worker, NULL);
    ls_queue_destroy(&ls_cpu_stream_of(stream)->queue);
}

const struct ls_stream_policy ls_policy_worker = {
    .name = "threads",
    .start = worker_start,
    .stop = worker_stop,
    .enqueue = worker_enqueue,
    .drain = worker_drain,
    .reach = reach_by_waiting,
};
