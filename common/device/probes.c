/* probes — the reports of devices and streams to the probes (common/base/probe.h): which stream, which device, and the
 * direction of a copy.
 *   idea  : a stream counts the items enqueued on it while the probes are on, so that a RUN finds its LAUNCH by stream
 *           and number. The owner of each of a copy's two addresses is found in the devices' trees of allocations; an
 *           address in no tree is the host's
 *   cost  : nothing while the probes are off; on, for a copy, a lock and two searches for each device of the process */
#include <pthread.h>

#include "common/device/device_internal.h"

static struct {
    pthread_mutex_t lock;
    ls_device *first;
} open_devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ls_device_register(ls_device *device) {
    pthread_mutex_lock(&open_devices.lock);
    device->next = open_devices.first;
    open_devices.first = device;
    pthread_mutex_unlock(&open_devices.lock);
}

void ls_device_unregister(ls_device *device) {
    pthread_mutex_lock(&open_devices.lock);
    ls_device **link = &open_devices.first;
    while (*link != device) link = &(*link)->next;
    *link = device->next;
    pthread_mutex_unlock(&open_devices.lock);
}

int ls_device_place(const ls_device *device) { return device->options.place; }

/* The place of the device that owns the memory; -1: none. */
static int owner_of(const void *address) {
    int place = -1;
    pthread_mutex_lock(&open_devices.lock);
    for (ls_device *device = open_devices.first; device && place < 0; device = device->next) {
        if (ls_device_owns(device, address)) place = device->options.place;
    }
    pthread_mutex_unlock(&open_devices.lock);
    return place;
}

struct ls_probe_record ls_stream_begin_launch(ls_stream *stream, const char *label) {
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_LAUNCH, label);
    record.number = atomic_fetch_add_explicit(&stream->launched, 1, memory_order_relaxed) + 1;
    ls_probe_set_stream(&record, stream);
    return record;
}

void ls_probe_set_stream(struct ls_probe_record *record, const ls_stream *stream) {
    record->object = (uintptr_t)stream;
    record->device = (int16_t)stream->device->options.place;
    record->stream_kind = (uint8_t)stream->kind;
}

void ls_probe_set_copy(struct ls_probe_record *record, const void *destination, const void *source, size_t nbytes) {
    record->bytes = nbytes;
    record->from = (int16_t)owner_of(source);
    record->to = (int16_t)owner_of(destination);
}

ls_status ls_probe_run_task(const ls_stream *stream, const char *label, uint32_t number, ls_task_fn task,
                            const void *arguments) {
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_RUN, label);
    record.number = number;
    ls_probe_set_stream(&record, stream);
    ls_status status = task(arguments);
    ls_probe_end(&record);
    return status;
}
