/* What the files of the CUDA back-end share. */
#ifndef LS_DEVICE_CUDA_CUDA_DEVICE_H
#define LS_DEVICE_CUDA_CUDA_DEVICE_H

#include "common/device/cuda/lane.h"
#include "common/device/device_internal.h"
#include "common/device/plugin.h"

#define LS_CUDA_MAX_GPUS 64

/* --- errors.c ---------------------------------------------------------------------------------------------------- */

/* Whether an error has made the GPU unusable for the rest of this process. Any thread. */
bool ls_cuda_is_broken(int gpu);

/* --- find.c ------------------------------------------------------------------------------------------------------ */

void ls_cuda_find(int *count, char *why, size_t capacity);
void ls_cuda_list(char *list, size_t capacity);
ls_status ls_cuda_describe(int gpu, ls_gpu_facts *facts);

/* LS_ERR_USAGE, listing the GPUs that are there, unless `gpu` is one of them. */
ls_status ls_cuda_check_index(int gpu);

/* --- waits.c ----------------------------------------------------------------------------------------------------- */

/* What the host waits for: `event`, which was recorded on `stream`, or (NULL) all of the stream's work. */
struct ls_cuda_awaited {
    cudaStream_t stream;
    cudaEvent_t event;
    const char *kind, *name; /* for messages: the event "batch ready", the stream "compute" */
};

/* Looks until it is there, asking the device's watchers meanwhile; a failure is reported and poisons the device. */
ls_status ls_cuda_wait(ls_device *device, const struct ls_cuda_awaited *awaited);

/* Waits for all of the stream's work, and reports what its kernels found wrong with their input. */
ls_status ls_cuda_wait_stream(ls_stream *stream);

/* Reports, after a wait for a part of the work, what kernels have found wrong by now; waits for their stream only if
 * they have. */
ls_status ls_cuda_look_for_faults(ls_device *device);

/* --- timing.c (its other calls: lane.h) --------------------------------------------------------------------------- */

/* The stream has been waited for, and is idle: tells the probes, if they are on, when it ran what was timed. */
void ls_cuda_time_tell(ls_stream *stream);
struct ls_cuda_timing;
void ls_cuda_timing_close(struct ls_cuda_timing *timing, bool abandon);

/* --- pool.c ------------------------------------------------------------------------------------------------------ */

struct ls_cuda_pool;

/* `device`, whose gpu must be current, waits for what the pool enqueues. On failure *out is NULL. */
ls_status ls_cuda_pool_open(struct ls_cuda_pool **out, ls_device *device, int gpu);

/* abandon: the GPU hangs or is broken; nothing that might wait for it is called. NULL is a no-op. */
void ls_cuda_pool_close(struct ls_cuda_pool *pool, bool abandon);

/* Zero-filled memory, aligned to 256 bytes, for which other devices of the GPU give back what they keep and do not use.
 * LS_ERR_NO_MEMORY is the caller's to report, other failures are reported. */
ls_status ls_cuda_pool_alloc(struct ls_cuda_pool *pool, size_t nbytes, void **out);
void ls_cuda_pool_free(struct ls_cuda_pool *pool, void *memory); /* NULL is a no-op */

/* Bytes that the pool has taken from the GPU: what is in use, and what it keeps for the next allocation. */
size_t ls_cuda_pool_reserved(struct ls_cuda_pool *pool);

/* --- workspace.c -------------------------------------------------------------------------------------------------- */

/* Bytes of the workspace that is lent to cuBLAS, for a GPU of compute capability `major`.x; 0: none, cuBLAS keeps to
 * its own (":0:0"). LS_ERR_USAGE if the environment's CUBLAS_WORKSPACE_CONFIG is damaged. Any thread. */
ls_status ls_cuda_workspace_nbytes(int major, size_t *nbytes);

/* --- device_cuda.c ------------------------------------------------------------------------------------------------ */

struct ls_cuda_device {
    /* constant after open */
    int gpu;
    char name[256];
    struct ls_cuda_pool *pool;
    void *workspace;              /* cuBLAS's */
    struct ls_cuda_fault *faults; /* page-locked, one for each stream */
    /* any thread: a stream for which a wait has missed its deadline, and which has not come to rest since */
    _Atomic(cudaStream_t) stuck;
};

/* Host memory through which copies from pageable memory go (copies.c); made at the first of them. */
#define LS_CUDA_STAGES 4
struct ls_cuda_staging {
    char *memory;                       /* LS_CUDA_STAGES pieces, page-locked */
    cudaEvent_t passed[LS_CUDA_STAGES]; /* the stream has read the piece; NULL: it was never used */
    int next;
};

/* What has been put on a stream while the probes were on, and not been told them yet (timing.c). */
struct ls_cuda_timed;
struct ls_cuda_timing {
    pthread_mutex_t lock;
    struct ls_cuda_timed *timed;
    _Atomic size_t count; /* changed under the lock; read by threads that have waited for the stream */
    size_t room;
    cudaEvent_t now[2];
};

struct ls_cuda_stream {
    struct ls_stream base;
    struct ls_cuda_lane lane; /* constant after open */
    struct ls_cuda_timing timing;
    /* the enqueueing thread's */
    struct ls_cuda_staging staging;
};

static inline struct ls_cuda_stream *ls_cuda_stream_of(ls_stream *stream) { return (struct ls_cuda_stream *)stream; }
static inline struct ls_cuda_device *ls_cuda_device_of(const ls_device *device) { return device->backend_state; }

/* Whether the GPU is broken, or a stream hangs on it: calls that may wait for it would not come back. If not, it is the
 * calling thread's current GPU afterwards. */
bool ls_cuda_must_be_left_alone(const ls_device *device);

/* --- copies.c and host_memory.c ----------------------------------------------------------------------------------- */

ls_status ls_cuda_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes);
void ls_cuda_staging_close(struct ls_cuda_staging *staging);

bool ls_cuda_is_gpu_memory(const ls_device *device, const void *address);
bool ls_cuda_pin_host(ls_device *device, void *memory, size_t nbytes);
void ls_cuda_unpin_host(ls_device *device, void *memory);
/* What is still pinned for a device that closes. */
void ls_cuda_unpin_all(const ls_device *device);

/* --- events.c and graph.c ----------------------------------------------------------------------------------------- */

/* The capture of one graph, in progress or ended. Events that were recorded in it complete at each launch of the
 * graph. */
struct ls_cuda_capture {
    _Atomic int holders; /* the graph, and the events recorded in it */
    int gpu;
    cudaEvent_t done; /* recorded behind each launch of the graph */
    _Atomic bool launched;
    ls_status failure; /* the capturing thread's: why there is no graph, reported already */
};

/* The calling thread's capture, NULL if there is none. */
struct ls_cuda_capture *ls_cuda_current_capture(void);
void ls_cuda_capture_release(struct ls_cuda_capture *capture);

/* Notes, if the thread captures, that there will be no graph, for a reason that was reported; returns `status`. */
ls_status ls_cuda_capture_failed(ls_status status);

/* CUDA forbids a capturing thread all that might concern the capture: querying streams and events, allocating. A caller
 * that knows its call does not swaps the mode for cudaStreamCaptureModeRelaxed, and back afterwards. A no-op if the
 * thread does not capture. */
ls_status ls_cuda_swap_capture_mode(int gpu, enum cudaStreamCaptureMode *mode);

ls_status ls_cuda_event_record(ls_event *event, ls_stream *stream);
ls_status ls_cuda_stream_wait_event(ls_stream *stream, ls_event *event);
ls_status ls_cuda_event_synchronize(ls_event *event);

ls_status ls_cuda_graph_begin(ls_stream *stream);
ls_status ls_cuda_graph_end(ls_stream *stream, ls_graph **out);
ls_status ls_cuda_graph_launch(ls_graph *graph, ls_stream *stream);
void ls_cuda_graph_destroy(ls_graph *graph);

#endif
