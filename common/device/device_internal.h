/* What the files of this folder share; nobody else includes it. */
#ifndef LS_DEVICE_DEVICE_INTERNAL_H
#define LS_DEVICE_DEVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/flag.h"
#include "common/device/device.h"

/* A back-end: every slot is required. */
struct ls_backend {
    const char *name;
    ls_status (*open)(ls_device *device); /* fills device->streams */
    void (*close)(ls_device *device);     /* waits for the work, frees the streams */
    ls_status (*bind_thread)(const ls_device *device);
    void *(*memory_alloc)(ls_device *device, size_t nbytes); /* zero-filled, 64-byte aligned, or NULL */
    void (*memory_free)(ls_device *device, void *memory);
    ls_status (*launch)(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes,
                        bool meets); /* meets: as ls_stream_launch_meeting says */
    ls_status (*copy)(ls_stream *stream, void *destination, const void *source, size_t nbytes);
    ls_status (*event_record)(ls_event *event, ls_stream *stream);
    ls_status (*stream_wait_event)(ls_stream *stream, ls_event *event);
    ls_status (*event_synchronize)(ls_event *event);
    ls_status (*stream_synchronize)(ls_stream *stream);
};

extern const struct ls_backend ls_backend_cpu;

struct ls_device {
    /* constant after open */
    const struct ls_backend *backend;
    ls_device_options options;
    const char *stream_mode;
    double spin_us;
    ls_stream *streams[LS_STREAM_COUNT];
    void *backend_state;
    /* any thread: the first failure since the last synchronise, LS_OK if none */
    _Atomic int failure;
    /* guarded by memory_lock */
    pthread_mutex_t memory_lock;
    ls_memory_report memory;
};

struct ls_event {
    const char *name;
    bool dropped;              /* LS_CPU_DROP_WAIT names it: waits do nothing */
    _Atomic uint32_t recorded; /* how often it was recorded; a wait refers to the value it reads here */
    ls_flag completed;         /* the latest record that has been reached */
    _Atomic int reaching;      /* a thread is raising `completed`, and may still read it after waiters have gone on */
    ls_stream *stream;         /* the stream of the latest record */
};

/* Keeps the first failure of the device. */
void ls_device_poison(ls_device *device, ls_status status);

#endif
