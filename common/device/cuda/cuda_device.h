/* Shared by the files of the CUDA back-end. */
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

/* LS_ERR_USAGE unless `gpu` exists; the message lists the existing GPUs. */
ls_status ls_cuda_check_index(int gpu);

/* --- waits.c ----------------------------------------------------------------------------------------------------- */

/* The target of a host wait: `event`, which was recorded on `stream`, or (NULL) all of the stream's work. */
struct ls_cuda_awaited {
    cudaStream_t stream;
    cudaEvent_t event;
    const char *kind, *name; /* for messages: the event "batch ready", the stream "compute" */
};

/* Polls until the target is reached, calling the device's watchers meanwhile; a failure is reported and poisons the
 * device. */
ls_status ls_cuda_wait(ls_device *device, const struct ls_cuda_awaited *awaited);

/* Waits for all of the stream's work, and reports input faults that its kernels found. */
ls_status ls_cuda_wait_stream(ls_stream *stream);

/* After a wait for a part of the work: reports input faults that kernels have found so far; waits for their stream only
 * if there are any. */
ls_status ls_cuda_look_for_faults(ls_device *device);

/* --- timing.c (its other calls: lane.h) --------------------------------------------------------------------------- */

/* Call when the stream is idle after a wait: if the probes are on, records when the timed work ran. */
void ls_cuda_time_tell(ls_stream *stream);
struct ls_cuda_timing;
void ls_cuda_timing_close(struct ls_cuda_timing *timing, bool abandon);

/* --- pool.c ------------------------------------------------------------------------------------------------------ */

struct ls_cuda_pool;

/* `device`, whose gpu must be current, waits for what the pool enqueues. On failure *out is NULL. */
ls_status ls_cuda_pool_open(struct ls_cuda_pool **out, ls_device *device, int gpu);

/* abandon: the GPU hangs or is broken; nothing that might wait for it is called. NULL is a no-op. */
void ls_cuda_pool_close(struct ls_cuda_pool *pool, bool abandon);

/* Allocates zero-filled memory, aligned to 256 bytes; if necessary, other devices of the GPU first free their cached
 * memory. The caller reports LS_ERR_NO_MEMORY; other failures are reported here. */
ls_status ls_cuda_pool_alloc(struct ls_cuda_pool *pool, size_t nbytes, void **out);
void ls_cuda_pool_free(struct ls_cuda_pool *pool, void *memory); /* NULL is a no-op */

/* Bytes that the pool has reserved on the GPU: in use, or cached for later allocations. */
size_t ls_cuda_pool_reserved(struct ls_cuda_pool *pool);

/* --- workspace.c -------------------------------------------------------------------------------------------------- */

/* Bytes of the workspace for cuBLAS on a GPU of compute capability `major`.x; 0: none, cuBLAS uses its own (":0:0").
 * LS_ERR_USAGE if the environment's CUBLAS_WORKSPACE_CONFIG is malformed. Any thread. */
ls_status ls_cuda_workspace_nbytes(int major, size_t *nbytes);

/* --- device_cuda.c ------------------------------------------------------------------------------------------------ */

struct ls_cuda_device {
    /* constant after open */
    int gpu;
    char name[256];
    struct ls_cuda_pool *pool;
    void *workspace;              /* cuBLAS's */
    struct ls_cuda_fault *faults; /* pinned, one for each stream */
    /* any thread: a stream on which a wait timed out and which has not become idle since */
    _Atomic(cudaStream_t) stuck;
};

/* Staging buffers for copies from pageable host memory (copies.c); allocated at the first such copy. */
#define LS_CUDA_STAGES 4
struct ls_cuda_staging {
    char *memory;                       /* LS_CUDA_STAGES buffers, pinned */
    cudaEvent_t passed[LS_CUDA_STAGES]; /* the stream has read the buffer; NULL: never used */
    int next;
};

/* Timed work on a stream that the probes have not recorded yet (timing.c). */
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

/* Whether the GPU is broken or one of its streams hangs, so that calls that wait for it would not return. If not, makes
 * it the calling thread's current GPU. */
bool ls_cuda_must_be_left_alone(const ls_device *device);

/* --- copies.c and host_memory.c ----------------------------------------------------------------------------------- */

ls_status ls_cuda_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes);
void ls_cuda_staging_close(struct ls_cuda_staging *staging);

bool ls_cuda_is_gpu_memory(const ls_device *device, const void *address);
bool ls_cuda_pin_host(ls_device *device, void *memory, size_t nbytes);
void ls_cuda_unpin_host(ls_device *device, void *memory);
/* Unpins everything that is still pinned for a device that is being closed. */
void ls_cuda_unpin_all(const ls_device *device);

/* --- events.c and graph.c ----------------------------------------------------------------------------------------- */

/* The capture of one graph, in progress or ended. Events that were recorded in it complete at each launch of the
 * graph. */
struct ls_cuda_capture {
    _Atomic int holders; /* the graph, and the events recorded in it */
    int gpu;
    cudaEvent_t done; /* recorded after each launch of the graph */
    _Atomic bool launched;
    ls_status failure; /* set by the capturing thread: the reported reason why there is no graph */
};

/* The calling thread's capture, NULL if there is none. */
struct ls_cuda_capture *ls_cuda_current_capture(void);
void ls_cuda_capture_release(struct ls_cuda_capture *capture);

/* If the thread is capturing, marks the capture as failed with `status`, which was reported. Returns `status`. */
ls_status ls_cuda_capture_failed(ls_status status);

/* CUDA forbids a capturing thread all calls that might affect the capture: querying streams and events, allocating. A
 * caller whose call does not affect it swaps the mode for cudaStreamCaptureModeRelaxed, and back afterwards. A no-op if
 * the thread is not capturing. */
ls_status ls_cuda_swap_capture_mode(int gpu, enum cudaStreamCaptureMode *mode);

ls_status ls_cuda_event_record(ls_event *event, ls_stream *stream);
ls_status ls_cuda_stream_wait_event(ls_stream *stream, ls_event *event);
ls_status ls_cuda_event_synchronize(ls_event *event);

ls_status ls_cuda_graph_begin(ls_stream *stream);
ls_status ls_cuda_graph_end(ls_stream *stream, ls_graph **out);
ls_status ls_cuda_graph_launch(ls_graph *graph, ls_stream *stream);
void ls_cuda_graph_destroy(ls_graph *graph);

#endif
