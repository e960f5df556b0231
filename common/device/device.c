/* device — the part common to all back-ends: opening, the deadline, events' life, and the calls through the table.
 * Memory: memory.c. */
#include "common/device/device_internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/device/host_lock.h"
#include "common/device/plugin.h"

#define LS_DEFAULT_WAIT_TIMEOUT_S 300.0

static _Atomic double wait_timeout_s = LS_DEFAULT_WAIT_TIMEOUT_S; /* workers may read it at any time */

void ls_set_wait_timeout_s(double seconds) { wait_timeout_s = seconds; }
double ls_wait_timeout_s(void) { return wait_timeout_s; }

/* --- back-ends --------------------------------------------------------------------------------------------------- */

static const struct ls_cuda_plugin *cuda_plugin(char *why, size_t capacity) {
    if (!ls_plugin_driver_is_there()) {
        snprintf(why, capacity, "%s", LS_NO_DRIVER);
        return NULL;
    }
    return ls_plugin_open("ls_cuda.so", "ls_cuda_plugin", why, capacity);
}

void ls_find_gpus(int *count, char *why, size_t capacity) {
    *count = 0;
    const struct ls_cuda_plugin *plugin = cuda_plugin(why, capacity);
    if (plugin) plugin->find(count, why, capacity);
}

void ls_list_gpus(char *list, size_t capacity) {
    char why[512];
    const struct ls_cuda_plugin *plugin = cuda_plugin(why, sizeof why);
    list[0] = '\0';
    if (plugin) plugin->list(list, capacity);
}

static ls_status find_backend(const struct ls_backend **out, ls_device_kind kind) {
    *out = &ls_backend_cpu;
    if (kind == LS_DEVICE_META) *out = &ls_backend_meta;
    if (kind != LS_DEVICE_CUDA) return LS_OK;
    char why[512] = "";
    int count = 0;
    const struct ls_cuda_plugin *plugin = cuda_plugin(why, sizeof why);
    if (plugin) plugin->find(&count, why, sizeof why);
    if (count == 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "no GPU can be used: %s; use --device-kind cpu to run without one", why);
    *out = plugin->backend;
    return LS_OK;
}

ls_status ls_device_open(ls_device **out, const ls_device_options *options) {
    *out = NULL;
    const struct ls_backend *backend;
    ls_status status = find_backend(&backend, options->kind);
    if (status != LS_OK) return status;
    ls_device *device = calloc(1, sizeof *device);
    if (!device) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for device %d", options->index);
    device->backend = backend;
    device->options = *options;
    pthread_mutex_init(&device->memory_lock, NULL);
    status = device->backend->open(device);
    if (status != LS_OK) {
        pthread_mutex_destroy(&device->memory_lock);
        free(device);
        return status;
    }
    ls_device_register(device);
    *out = device;
    return LS_OK;
}

void ls_device_close(ls_device *device) {
    if (!device) return;
    ls_device_unregister(device);
    device->backend->close(device);
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        if (device->memory.current_bytes[c] == 0) continue;
        ls_warn("device %d closes with %zu bytes of %s memory not freed", device->options.index,
                device->memory.current_bytes[c], ls_memory_name((ls_memory_category)c));
    }
    ls_device_forget_allocations(device);
    pthread_mutex_destroy(&device->memory_lock);
    free(device);
}

int ls_device_index(const ls_device *device) { return device->options.index; }
ls_device_kind ls_device_kind_of(const ls_device *device) { return device->options.kind; }

const char *ls_stream_kind_name(ls_stream_kind kind) {
    static const char *const names[] = {
        [LS_STREAM_COMPUTE] = "compute", [LS_STREAM_COPY] = "copy", [LS_STREAM_COMM] = "comm"};
    _Static_assert(sizeof names / sizeof *names == LS_STREAM_COUNT, "a name for each kind of stream");
    return names[kind];
}

const char *ls_device_kind_name(ls_device_kind kind) {
    static const char *const names[] = {[LS_DEVICE_CPU] = "cpu", [LS_DEVICE_CUDA] = "cuda", [LS_DEVICE_META] = "meta"};
    return names[kind];
}

bool ls_device_computes(const ls_device *device) { return device->options.kind != LS_DEVICE_META; }
const char *ls_device_stream_mode(const ls_device *device) { return device->stream_mode; }
bool ls_device_memory_is_host(const ls_device *device) { return device->backend->memory_is_host; }
bool ls_device_runs_behind(const ls_device *device) { return device->runs_behind; }
double ls_device_spin_us(const ls_device *device) { return device->spin_us; }
ls_status ls_device_bind_thread(const ls_device *device) { return device->backend->bind_thread(device); }
ls_stream *ls_device_stream(ls_device *device, ls_stream_kind kind) { return device->streams[kind]; }
ls_device *ls_stream_device(const ls_stream *stream) { return stream->device; }
ls_op_launcher ls_device_op_launcher(const ls_device *device) { return device->backend->enqueue_op; }

const char *ls_device_model_name(const ls_device *device) {
    return device->backend->model_name ? device->backend->model_name(device) : "CPU";
}

/* --- failures ---------------------------------------------------------------------------------------------------- */

void ls_device_fail(ls_device *device, ls_status status) {
    int none = LS_OK;
    if (status != LS_OK) atomic_compare_exchange_strong(&device->failure, &none, (int)status);
}

ls_status ls_device_status(const ls_device *device) {
    return (ls_status)atomic_load_explicit(&device->failure, memory_order_relaxed);
}

/* Every call that enqueues passes its status here. */
static void poison(ls_stream *stream, ls_status status) { ls_device_fail(stream->device, status); }

bool ls_stream_takes_work(ls_stream *stream) {
    if (ls_device_status(stream->device) != LS_OK) return false;
    ls_status turn = ls_host_lock_pass(stream);
    poison(stream, turn);
    return turn == LS_OK;
}

/* --- events and the calls through the table ---------------------------------------------------------------------- */

ls_status ls_event_create(ls_event **out, const char *name) {
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for event \"%s\"", name);
    const char *dropped = getenv("LS_CPU_DROP_WAIT");
    (*out)->name = name;
    (*out)->dropped = dropped && strcmp(dropped, name) == 0;
    return LS_OK;
}

void ls_event_destroy(ls_event *event) {
    /* the thread that raised the event may be a few instructions behind those that saw it raised */
    while (event && atomic_load(&event->reaching) > 0) sched_yield();
    if (event && event->native) event->release(event->native);
    free(event);
}

static const struct ls_backend *backend_of(const ls_stream *stream) { return ls_stream_device(stream)->backend; }

static struct ls_probe_record begin_event(ls_probe_kind kind, const ls_event *event, const ls_stream *stream) {
    struct ls_probe_record record = ls_probe_begin(kind, event->name);
    ls_probe_set_stream(&record, stream);
    record.event = (uintptr_t)event;
    record.number = atomic_load(&event->recorded); /* the record that a wait refers to */
    return record;
}

/* Written before the event is visible, so that it precedes all that a thread writes after a wait for the event. */
static void probe_event_record(const ls_event *event, const ls_stream *stream) {
    struct ls_probe_record record = begin_event(LS_PROBE_RECORD, event, stream);
    record.number++;
    ls_probe_end(&record);
}

static void put(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes,
                bool meets) {
    if (nbytes <= LS_TASK_ARGUMENTS_NBYTES) {
        poison(stream, backend_of(stream)->launch(stream, label, task, arguments, nbytes, meets));
        return;
    }
    poison(stream, ls_fail(LS_ERR_INVALID, "%s: %zu bytes of arguments do not fit; expected at most %d", label, nbytes,
                           LS_TASK_ARGUMENTS_NBYTES));
}

void ls_stream_put(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes) {
    put(stream, label, task, arguments, nbytes, false);
}

static void launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes,
                   bool meets) {
    if (!ls_stream_takes_work(stream)) return;
    bool probing = ls_probing();
    struct ls_probe_record record;
    if (probing) record = ls_stream_begin_launch(stream, label);
    put(stream, label, task, arguments, nbytes, meets);
    if (probing) ls_probe_end(&record);
}

void ls_stream_launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes) {
    launch(stream, label, task, arguments, nbytes, false);
}

void ls_stream_launch_meeting(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments,
                              size_t nbytes) {
    launch(stream, label, task, arguments, nbytes, true);
}

void ls_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    if (nbytes == 0 || !ls_stream_takes_work(stream)) return;
    bool probing = ls_probing();
    struct ls_probe_record record;
    if (probing) {
        record = ls_stream_begin_launch(stream, "copy");
        ls_probe_set_copy(&record, destination, source, nbytes);
    }
    poison(stream, backend_of(stream)->copy(stream, destination, source, nbytes));
    if (probing) ls_probe_end(&record);
}

ls_status ls_copy_now(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    ls_copy(stream, destination, source, nbytes);
    return ls_stream_synchronize(stream);
}

void ls_event_record(ls_event *event, ls_stream *stream) {
    if (ls_probing()) probe_event_record(event, stream);
    poison(stream, backend_of(stream)->event_record(event, stream));
}

void ls_stream_wait_event(ls_stream *stream, ls_event *event) {
    if (event->dropped || ls_device_status(stream->device) != LS_OK) return;
    bool probing = ls_probing() && atomic_load(&event->recorded) > 0;
    struct ls_probe_record record;
    if (probing) record = begin_event(LS_PROBE_WAIT, event, stream);
    poison(stream, backend_of(stream)->stream_wait_event(stream, event));
    if (probing) ls_probe_end(&record);
}

ls_status ls_event_synchronize(ls_event *event) {
    if (atomic_load(&event->recorded) == 0) return LS_OK;
    if (!ls_probing()) return backend_of(event->stream)->event_synchronize(event);
    struct ls_probe_record record = begin_event(LS_PROBE_SYNC_EVENT, event, event->stream);
    ls_status status = backend_of(event->stream)->event_synchronize(event);
    ls_probe_end(&record);
    return status;
}

static ls_status synchronize(ls_stream *stream) {
    if (!ls_probing()) return backend_of(stream)->stream_synchronize(stream);
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_SYNC_STREAM, "synchronize");
    ls_probe_set_stream(&record, stream);
    record.number = ls_stream_launch_number(stream);
    ls_status status = backend_of(stream)->stream_synchronize(stream);
    ls_probe_end(&record);
    return status;
}

/* Returns and clears the device's failure; if there is none, returns `status`. */
static ls_status take_failure(ls_device *device, ls_status status) {
    ls_status failure = (ls_status)atomic_exchange(&device->failure, LS_OK);
    return failure != LS_OK ? failure : status;
}

ls_status ls_stream_synchronize(ls_stream *stream) {
    return take_failure(ls_stream_device(stream), synchronize(stream));
}

/* The failure is cleared only when all streams are idle: work that is still queued must be skipped. */
ls_status ls_device_synchronize(ls_device *device) {
    ls_status first = LS_OK;
    for (int s = 0; s < LS_STREAM_COUNT; s++) {
        ls_status status = synchronize(device->streams[s]);
        if (first == LS_OK) first = status;
    }
    return take_failure(device, first);
}

/* --- GPUs only --------------------------------------------------------------------------------------------------- */

ls_status ls_graph_begin(ls_stream *stream) {
    if (!backend_of(stream)->graph_begin)
        return ls_fail(LS_ERR_UNSUPPORTED, "a step can be recorded as a graph on GPUs only");
    ls_status status = backend_of(stream)->graph_begin(stream);
    ls_probe_mute(status == LS_OK); /* nothing runs yet */
    return status;
}

ls_status ls_graph_end(ls_stream *stream, ls_graph **out) {
    *out = NULL;
    ls_probe_mute(false);
    if (backend_of(stream)->graph_end) return backend_of(stream)->graph_end(stream, out);
    return LS_ERR_UNSUPPORTED; /* begin has reported it */
}

ls_status ls_graph_launch(ls_graph *graph, ls_stream *stream) {
    if (!ls_stream_takes_work(stream)) return ls_device_status(stream->device);
    bool probing = ls_probing();
    struct ls_probe_record record;
    if (probing) record = ls_stream_begin_launch(stream, "graph");
    ls_status status = graph->backend->graph_launch(graph, stream);
    poison(stream, status);
    if (probing) ls_probe_end(&record);
    return status;
}

void ls_graph_destroy(ls_graph *graph) {
    if (graph) graph->backend->graph_destroy(graph);
}

ls_status ls_device_watch(ls_device *device, ls_watch_fn watcher, void *context) {
    if (device->watcher_count == LS_MAX_WATCHERS)
        return ls_fail(LS_ERR_INVALID, "device %d has %d watchers already", ls_device_index(device), LS_MAX_WATCHERS);
    device->watchers[device->watcher_count].ask = watcher;
    device->watchers[device->watcher_count++].context = context;
    return LS_OK;
}

void ls_device_unwatch(ls_device *device, void *context) {
    for (int w = device->watcher_count - 1; w >= 0; w--) {
        if (device->watchers[w].context == context) device->watchers[w] = device->watchers[--device->watcher_count];
    }
}

ls_status ls_device_ask_watchers(ls_device *device, double waited_us) {
    ls_status first = LS_OK;
    for (int w = 0; w < device->watcher_count; w++) {
        ls_status status = device->watchers[w].ask(device->watchers[w].context, waited_us);
        if (first == LS_OK) first = status;
    }
    ls_device_fail(device, first);
    return first;
}

void ls_device_mark(const ls_device *device, const char *name) {
    if (device->backend->mark) device->backend->mark(device, name);
}
