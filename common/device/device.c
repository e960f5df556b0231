/* device — what all back-ends share: memory accounting, the deadline, events' life, and the call through the table. */
#include "common/device/device_internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define LS_DEFAULT_WAIT_TIMEOUT_S 300.0

static double wait_timeout_s = LS_DEFAULT_WAIT_TIMEOUT_S; /* set before devices are used, constant afterwards */

void ls_set_wait_timeout_s(double seconds) { wait_timeout_s = seconds; }
double ls_wait_timeout_s(void) { return wait_timeout_s; }

const char *ls_memory_name(ls_memory_category category) {
    static const char *const names[] = {
#define LS_ROW(name, text) [LS_MEMORY_##name] = (text),
        LS_MEMORY_MAP(LS_ROW)
#undef LS_ROW
    };
    return names[category];
}

ls_status ls_device_open(ls_device **out, const ls_device_options *options) {
    *out = NULL;
    if (options->kind != LS_DEVICE_CPU) return ls_fail(LS_ERR_UNSUPPORTED, "this build has CPU devices only");
    ls_device *device = calloc(1, sizeof *device);
    if (!device) return ls_fail(LS_ERR_NO_MEMORY, "no memory for device %d", options->index);
    device->backend = &ls_backend_cpu;
    device->options = *options;
    pthread_mutex_init(&device->memory_lock, NULL);
    ls_status status = device->backend->open(device);
    if (status != LS_OK) {
        pthread_mutex_destroy(&device->memory_lock);
        free(device);
        return status;
    }
    *out = device;
    return LS_OK;
}

void ls_device_close(ls_device *device) {
    if (!device) return;
    device->backend->close(device);
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        if (device->memory.current_bytes[c] == 0) continue;
        ls_warn("device %d closes with %zu bytes of %s memory not freed", device->options.index,
                device->memory.current_bytes[c], ls_memory_name((ls_memory_category)c));
    }
    pthread_mutex_destroy(&device->memory_lock);
    free(device);
}

int ls_device_index(const ls_device *device) { return device->options.index; }
ls_device_kind ls_device_kind_of(const ls_device *device) { return device->options.kind; }
const char *ls_device_stream_mode(const ls_device *device) { return device->stream_mode; }
double ls_device_spin_us(const ls_device *device) { return device->spin_us; }
ls_status ls_device_bind_thread(const ls_device *device) { return device->backend->bind_thread(device); }
ls_stream *ls_device_stream(ls_device *device, ls_stream_kind kind) { return device->streams[kind]; }

void ls_device_poison(ls_device *device, ls_status status) {
    int none = LS_OK;
    atomic_compare_exchange_strong(&device->failure, &none, (int)status);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

#define LS_ALIGNMENT_NBYTES 64

size_t ls_aligned_floats(size_t count) {
    const size_t line = LS_ALIGNMENT_NBYTES / sizeof(float);
    return (count + line - 1) / line * line;
}

/* Precedes each allocation and keeps what ls_device_free needs; as long as the alignment. */
struct header {
    size_t nbytes;
    ls_memory_category category;
    char padding[LS_ALIGNMENT_NBYTES - sizeof(size_t) - sizeof(ls_memory_category)];
};
_Static_assert(sizeof(struct header) == LS_ALIGNMENT_NBYTES, "the header keeps the 64-byte alignment");

static void describe_usage(const ls_memory_report *memory, char *text, size_t capacity) {
    size_t length = 0;
    text[0] = '\0';
    for (int c = 0; c < LS_MEMORY_COUNT && length < capacity; c++) {
        if (memory->current_bytes[c] == 0) continue;
        length += (size_t)snprintf(text + length, capacity - length, "%s%s %zu", length ? ", " : "",
                                   ls_memory_name((ls_memory_category)c), memory->current_bytes[c]);
    }
}

/* What makes a category smaller, or moves it elsewhere. */
static const char *advice(ls_memory_category category) {
    static const char *const texts[] = {
        [LS_MEMORY_PARAMETER] = "use a smaller model",
        [LS_MEMORY_GRADIENT] =
            "use a smaller model; where DataParallel gathers the replicas' gradients, fewer devices or "
            "ddp_train, which gathers none",
        [LS_MEMORY_OPTIMIZER] = "use a smaller model, or an optimizer with less state (sgd has none without momentum)",
        [LS_MEMORY_ACTIVATION] = "lower the batch size, or use a smaller model",
        [LS_MEMORY_INPUT] = "lower the batch size, or use ddp_train, which gives each device its own samples only",
        [LS_MEMORY_GATHERED_OUTPUT] =
            "lower the batch size, name another --output-device, or use ddp_train, which gathers "
            "no outputs",
        [LS_MEMORY_BUCKET] = "use a smaller model: the buckets hold all its gradients",
        [LS_MEMORY_WORKSPACE] = "lower the batch size",
    };
    _Static_assert(sizeof texts / sizeof *texts == LS_MEMORY_COUNT, "an advice for each category");
    return texts[category];
}

static ls_status out_of_memory(const ls_device *device, const ls_memory_report *memory, ls_memory_category category,
                               size_t nbytes, const char *purpose) {
    char usage[400];
    describe_usage(memory, usage, sizeof usage);
    char cap[64] = "";
    if (device->options.memory_capacity_bytes > 0) {
        snprintf(cap, sizeof cap, " of %zu", device->options.memory_capacity_bytes);
    }
    return ls_fail(LS_ERR_NO_MEMORY,
                   "device %d is out of memory: %zu bytes asked for %s (%s), %zu%s bytes in use (%s); %s%s",
                   device->options.index, nbytes, purpose, ls_memory_name(category), memory->current_total_bytes, cap,
                   usage, advice(category), cap[0] != '\0' ? "; or raise --device-memory" : "");
}

/* Charges the bytes if they fit; the peaks follow when the memory is really there. */
static ls_status reserve(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose) {
    size_t capacity = device->options.memory_capacity_bytes > 0 ? device->options.memory_capacity_bytes : SIZE_MAX;
    pthread_mutex_lock(&device->memory_lock);
    ls_memory_report *memory = &device->memory;
    bool fits = nbytes <= capacity - memory->current_total_bytes;
    if (fits) {
        memory->current_bytes[category] += nbytes;
        memory->current_total_bytes += nbytes;
    }
    ls_memory_report seen = *memory;
    pthread_mutex_unlock(&device->memory_lock);
    return fits ? LS_OK : out_of_memory(device, &seen, category, nbytes, purpose);
}

static void raise_peaks(ls_device *device, ls_memory_category category) {
    pthread_mutex_lock(&device->memory_lock);
    ls_memory_report *memory = &device->memory;
    if (memory->current_bytes[category] > memory->peak_bytes[category]) {
        memory->peak_bytes[category] = memory->current_bytes[category];
    }
    if (memory->current_total_bytes > memory->peak_total_bytes) {
        memory->peak_total_bytes = memory->current_total_bytes;
    }
    pthread_mutex_unlock(&device->memory_lock);
}

ls_status ls_device_adopt(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose) {
    ls_status status = reserve(device, category, nbytes, purpose);
    if (status == LS_OK) raise_peaks(device, category);
    return status;
}

void ls_device_disown(ls_device *device, ls_memory_category category, size_t nbytes) {
    pthread_mutex_lock(&device->memory_lock);
    device->memory.current_bytes[category] -= nbytes;
    device->memory.current_total_bytes -= nbytes;
    pthread_mutex_unlock(&device->memory_lock);
}

ls_status ls_device_alloc(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose,
                          void **out) {
    *out = NULL;
    ls_status status = reserve(device, category, nbytes, purpose);
    if (status != LS_OK) return status;
    struct header *header = NULL;
    if (nbytes <= SIZE_MAX - sizeof *header) header = device->backend->memory_alloc(device, nbytes + sizeof *header);
    if (!header) {
        ls_device_disown(device, category, nbytes);
        ls_memory_report seen;
        ls_device_memory(device, &seen);
        return out_of_memory(device, &seen, category, nbytes, purpose);
    }
    raise_peaks(device, category);
    header->nbytes = nbytes;
    header->category = category;
    *out = header + 1;
    return LS_OK;
}

void ls_device_free(ls_device *device, void *memory) {
    if (!memory) return;
    struct header *header = (struct header *)memory - 1;
    ls_device_disown(device, header->category, header->nbytes);
    device->backend->memory_free(device, header);
}

void ls_device_memory(const ls_device *device, ls_memory_report *report) {
    pthread_mutex_t *lock = (pthread_mutex_t *)&device->memory_lock;
    pthread_mutex_lock(lock);
    *report = device->memory;
    pthread_mutex_unlock(lock);
}

/* --- events and the calls through the table ---------------------------------------------------------------------- */

ls_status ls_event_create(ls_event **out, const char *name) {
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_ERR_NO_MEMORY, "no memory for event \"%s\"", name);
    const char *dropped = getenv("LS_CPU_DROP_WAIT");
    (*out)->name = name;
    (*out)->dropped = dropped && strcmp(dropped, name) == 0;
    return LS_OK;
}

void ls_event_destroy(ls_event *event) {
    /* whoever raised the event may be a few instructions behind those who saw it raised */
    while (event && atomic_load(&event->reaching) > 0) sched_yield();
    free(event);
}

static const struct ls_backend *backend_of(const ls_stream *stream) { return ls_stream_device(stream)->backend; }

static ls_status launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes,
                        bool meets) {
    if (nbytes > LS_TASK_ARGUMENTS_NBYTES) {
        return ls_fail(LS_ERR_INVALID, "%s: %zu bytes of arguments, at most %d fit", label, nbytes,
                       LS_TASK_ARGUMENTS_NBYTES);
    }
    return backend_of(stream)->launch(stream, label, task, arguments, nbytes, meets);
}

ls_status ls_stream_launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments,
                           size_t nbytes) {
    return launch(stream, label, task, arguments, nbytes, false);
}

ls_status ls_stream_launch_meeting(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments,
                                   size_t nbytes) {
    return launch(stream, label, task, arguments, nbytes, true);
}

ls_status ls_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    if (nbytes == 0) return LS_OK;
    return backend_of(stream)->copy(stream, destination, source, nbytes);
}

ls_status ls_event_record(ls_event *event, ls_stream *stream) {
    return backend_of(stream)->event_record(event, stream);
}

ls_status ls_stream_wait_event(ls_stream *stream, ls_event *event) {
    if (event->dropped) return LS_OK;
    return backend_of(stream)->stream_wait_event(stream, event);
}

ls_status ls_event_synchronize(ls_event *event) {
    if (atomic_load(&event->recorded) == 0) return LS_OK;
    return backend_of(event->stream)->event_synchronize(event);
}

/* The device's failure, which is thereby cleared, or else `status`. */
static ls_status take_failure(ls_device *device, ls_status status) {
    ls_status failure = (ls_status)atomic_exchange(&device->failure, LS_OK);
    return failure != LS_OK ? failure : status;
}

ls_status ls_stream_synchronize(ls_stream *stream) {
    return take_failure(ls_stream_device(stream), backend_of(stream)->stream_synchronize(stream));
}

/* The failure is cleared only when all streams have come to rest: work that is still queued must be skipped. */
ls_status ls_device_synchronize(ls_device *device) {
    ls_status first = LS_OK;
    for (int s = 0; s < LS_STREAM_COUNT; s++) {
        ls_status status = device->backend->stream_synchronize(device->streams[s]);
        if (first == LS_OK) first = status;
    }
    return take_failure(device, first);
}
