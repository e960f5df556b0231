/* Shared by the files of this folder. The only other user is tests/kernels/backends.c, a back-end for tests. */
#ifndef LS_DEVICE_DEVICE_INTERNAL_H
#define LS_DEVICE_DEVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/flag.h"
#include "common/base/probe.h"
#include "common/device/device.h"

/* A back-end. Every slot is required unless marked optional. device.c poisons the device with failures that launch,
 * copy, the event calls and enqueue_op return. A failure that happens later, in another thread, must be passed to
 * ls_device_fail. */
struct ls_backend {
    const char *name;
    bool memory_is_host;
    ls_status (*open)(ls_device *device); /* fills device->streams, stream_mode, runs_behind */
    void (*close)(ls_device *device);     /* waits for the work, frees the streams */
    ls_status (*bind_thread)(const ls_device *device);
    /* zero-filled, 64-byte aligned. The caller reports LS_ERR_NO_MEMORY, since it knows the purpose */
    ls_status (*memory_alloc)(ls_device *device, size_t nbytes, void **out);
    void (*memory_free)(ls_device *device, void *memory);
    ls_status (*launch)(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes,
                        bool meets); /* meets: as ls_stream_launch_meeting says */
    ls_status (*copy)(ls_stream *stream, void *destination, const void *source, size_t nbytes);
    ls_status (*event_record)(ls_event *event, ls_stream *stream); /* raises event->recorded, sets event->stream */
    ls_status (*stream_wait_event)(ls_stream *stream, ls_event *event);
    ls_status (*event_synchronize)(ls_event *event);
    ls_status (*stream_synchronize)(ls_stream *stream);
    /* (optional) for GPUs only, see device.h */
    const char *(*model_name)(const ls_device *device);
    bool (*is_gpu_memory)(const ls_device *device, const void *address);
    bool (*pin_host)(ls_device *device, void *memory, size_t nbytes);
    void (*unpin_host)(ls_device *device, void *memory);
    ls_status (*graph_begin)(ls_stream *stream);
    ls_status (*graph_end)(ls_stream *stream, ls_graph **out);
    ls_status (*graph_launch)(ls_graph *graph, ls_stream *stream);
    void (*graph_destroy)(ls_graph *graph);
    void (*mark)(const ls_device *device, const char *name);
    ls_op_launcher enqueue_op;
    /* (optional) the free and total bytes of the machine's memory behind the device, for messages */
    bool (*memory_free_total)(const ls_device *device, size_t *free_bytes, size_t *total_bytes);
    /* (optional) as ls_device_reserved_bytes says */
    size_t (*memory_reserved)(const ls_device *device);
};

extern const struct ls_backend ls_backend_cpu, ls_backend_meta;

/* All back-ends' streams begin with this. */
struct ls_stream {
    ls_device *device;
    ls_stream_kind kind;
    /* The number of the latest LAUNCH that the probes recorded. Written by the enqueueing thread before it calls the
     * back-end, which reads it as the number of the current launch (ls_stream_launch_number). */
    _Atomic uint32_t launched;
};

/* For back-ends, in launch, copy and enqueue_op: the number for the RUN record of the current launch; 0: the probes are
 * off, write none. */
static inline uint32_t ls_stream_launch_number(const ls_stream *stream) {
    return ls_probing() ? atomic_load_explicit(&stream->launched, memory_order_relaxed) : 0;
}

/* All graphs begin with this. */
struct ls_graph {
    const struct ls_backend *backend;
};

#define LS_MAX_WATCHERS                                                                                                \
    8 /* enough for a mesh: the groups of the job and of three axes, each perhaps with a second group */

struct ls_device {
    /* constant after open */
    const struct ls_backend *backend;
    ls_device_options options;
    const char *stream_mode;
    bool runs_behind;
    double spin_us;
    ls_stream *streams[LS_STREAM_COUNT];
    void *backend_state;
    ls_device *next; /* in the list of open devices; guarded by its lock (probes.c) */
    /* any thread: the first failure since the last synchronise, LS_OK if none (ls_device_fail) */
    _Atomic int failure;
    /* guarded by memory_lock */
    pthread_mutex_t memory_lock;
    ls_memory_report memory;
    void *allocations; /* a tree (tsearch) of struct ls_allocation, by address */
    /* changed only while no thread waits for the device */
    int watcher_count;
    struct {
        ls_watch_fn ask;
        void *context;
    } watchers[LS_MAX_WATCHERS];
};

struct ls_event {
    const char *name;
    bool dropped;              /* named by LS_CPU_DROP_WAIT: waits do nothing */
    _Atomic uint32_t recorded; /* number of records so far; a wait refers to the value it reads here */
    ls_flag completed;         /* the latest record that has been reached */
    _Atomic int reaching;      /* a thread is raising `completed`, and may still read it after waiters have returned */
    ls_stream *stream;         /* the stream of the latest record */
    void *native;              /* (optional) the back-end's own, made at the first record */
    void (*release)(void *native); /* (with native) frees it, possibly after the device was closed */
};

/* Forgets all allocations of a device that is being closed. (memory.c) */
void ls_device_forget_allocations(ls_device *device);

/* Whether the address is in memory that the device has allocated. (memory.c) */
bool ls_device_owns(ls_device *device, const void *address);

/* --- for probes (probes.c) --------------------------------------------------------------------------------------- */

/* Add a device to, and remove it from, the list in which the owner of an address is searched. Called at the end of open
 * and at the beginning of close. */
void ls_device_register(ls_device *device);
void ls_device_unregister(ls_device *device);

/* Fills in a record's device and stream. */
void ls_probe_set_stream(struct ls_probe_record *record, const ls_stream *stream);

/* Fills in a copy's bytes, source and destination. */
void ls_probe_set_copy(struct ls_probe_record *record, const void *destination, const void *source, size_t nbytes);

/* Runs a task as the RUN of launch `number` of the stream. */
ls_status ls_probe_run_task(const ls_stream *stream, const char *label, uint32_t number, ls_task_fn task,
                            const void *arguments);

/* Calls all watchers; the first failure poisons the device and is returned. For the wait loops of asynchronous
 * back-ends. */
ls_status ls_device_ask_watchers(ls_device *device, double waited_us);

#endif
