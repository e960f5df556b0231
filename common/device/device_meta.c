/* device_meta — a device that computes nothing: it shows a program's allocations and the order of its operations,
 * without the memory and the time.
 *   idea  : operations, tasks and copies between devices are not run; probes see only the calls. Every event completes
 *           when it is recorded. Data copied to the host are zeros. So the program takes the same path as on CPU
 *           devices, or with `behind` as on GPUs, in the time that its host threads need, and a model of any size fits
 *   memory: accounting is that of all devices (memory.c). Addresses come from one counter for all meta devices of
 *           the process and are never given out again. They lie where nothing is ever mapped: with bit 54 set and
 *           bit 55 clear they are not canonical on x86-64, where the larger address space is only given to programs
 *           that ask for it, and out of range on 64-bit Arm. A read or write there kills the process at that
 *           instruction, also in a build without sanitizers. A mapping without rights would do the same, but takes
 *           address space, of which the thread sanitizer and `ulimit -v` leave little
 *   cost  : an allocation is an addition; a copy to the host fills it with zeros
 *   fails : beyond --device-memory, or 2^53 bytes in the life of the process: out of memory, as elsewhere */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/device/device_internal.h"

_Static_assert(sizeof(void *) == 8, "meta devices need 64-bit addresses");

#define LS_META_BEGIN ((uintptr_t)1 << 54)
#define LS_META_NBYTES ((uintptr_t)1 << 53)

static _Atomic uintptr_t given_out; /* bytes, by all meta devices */

static bool is_meta(const void *address) { return (uintptr_t)address - LS_META_BEGIN < LS_META_NBYTES; }

static bool meta_is_device_memory(const ls_device *device, const void *address) {
    (void)device;
    return is_meta(address);
}

/* Whole cache lines, as on other devices, and one between any two ranges. */
static ls_status meta_memory_alloc(ls_device *device, size_t nbytes, void **out) {
    (void)device;
    if (nbytes > LS_META_NBYTES / 2) return LS_ERR_NO_MEMORY;
    uintptr_t taken = (nbytes + 127) / 64 * 64;
    uintptr_t offset = atomic_fetch_add(&given_out, taken);
    if (offset > LS_META_NBYTES - taken) {
        atomic_fetch_sub(&given_out, taken);
        return LS_ERR_NO_MEMORY;
    }
    *out = (void *)(LS_META_BEGIN + offset);
    return LS_OK;
}

static void meta_memory_free(ls_device *device, void *memory) {
    (void)device;
    (void)memory;
}

static ls_status bind_nothing(const ls_device *device) {
    (void)device; /* its thread only enqueues, on any core */
    return LS_OK;
}

static void meta_close(ls_device *device) {
    for (int s = 0; s < LS_STREAM_COUNT; s++) free(device->streams[s]);
}

static ls_status meta_open(ls_device *device) {
    device->stream_mode = "meta";
    device->runs_behind = device->options.behind;
    for (int s = 0; s < LS_STREAM_COUNT; s++) {
        ls_stream *stream = device->streams[s] = calloc(1, sizeof *stream);
        if (!stream) {
            meta_close(device);
            return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a stream");
        }
        stream->device = device;
        stream->kind = (ls_stream_kind)s;
    }
    return LS_OK;
}

/* A collective's task is called, since its group knows that there are no other ranks and has to answer for them
 * (common/comm/meta_group.c). */
static ls_status meta_launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments,
                             size_t nbytes, bool meets) {
    (void)stream, (void)label, (void)nbytes;
    return meets ? task(arguments) : LS_OK;
}

static ls_status meta_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    (void)stream, (void)source;
    if (!is_meta(destination)) memset(destination, 0, nbytes);
    return LS_OK;
}

static ls_status meta_event_record(ls_event *event, ls_stream *stream) {
    event->stream = stream;
    ls_flag_set(&event->completed, atomic_fetch_add(&event->recorded, 1) + 1);
    return LS_OK;
}

static ls_status no_event_to_wait_for(ls_stream *stream, ls_event *event) {
    (void)stream, (void)event;
    return LS_OK;
}

static ls_status event_is_there(ls_event *event) {
    (void)event;
    return LS_OK;
}

static ls_status stream_is_done(ls_stream *stream) {
    (void)stream;
    return LS_OK;
}

static const char *meta_model_name(const ls_device *device) {
    (void)device;
    return "meta";
}

const struct ls_backend ls_backend_meta = {
    .name = "meta",
    .memory_is_host = false,
    .open = meta_open,
    .close = meta_close,
    .bind_thread = bind_nothing,
    .memory_alloc = meta_memory_alloc,
    .memory_free = meta_memory_free,
    .launch = meta_launch,
    .copy = meta_copy,
    .event_record = meta_event_record,
    .stream_wait_event = no_event_to_wait_for,
    .event_synchronize = event_is_there,
    .stream_synchronize = stream_is_done,
    .model_name = meta_model_name,
    .is_gpu_memory = meta_is_device_memory,
};
