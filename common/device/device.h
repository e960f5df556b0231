/* Devices, streams, events and memory: one vocabulary, CUDA's, for every back-end.
 *
 * A device is a GPU, or a CPU stand-in with its own memory pool. Work is enqueued on streams and runs in order within a
 * stream; across streams the only order is the one that events declare:
 *
 *     ls_event_record(ready, compute);       // "ready" completes when all work enqueued on compute so far is done
 *     ls_stream_wait_event(comm, ready);     // later work on comm runs after that
 *
 * As in CUDA, a wait refers to the latest record at the time of the call, and waiting for an event that was never
 * recorded does nothing: which call comes first on the host matters, and is the caller's to order.
 *
 * GPUs (LS_DEVICE_CUDA) come from a plug-in, ls_cuda.so (plugin.h), that is loaded when the first of them is looked
 * for: runs on CPU devices neither load nor pay for CUDA. Their memory is not the host's: only copies reach it
 * (ls_device_memory_is_host).
 *
 * A meta device (LS_DEVICE_META) computes nothing: it accounts for memory that is not there, whose addresses must not
 * be touched, and takes work that is not run (except for tasks of ls_stream_launch_meeting, which are called at once).
 * Events complete when they are recorded, and copies to the host's memory deliver zeros: a program of any size can be
 * looked at, its memory, its operations and their order.
 *
 * How the streams of a CPU device run is chosen by the environment's LS_CPU_STREAMS:
 *     threads       compute runs inside the enqueueing call; copy and comm have a queue and a worker thread each
 *     inline        everything runs inside the enqueueing call
 *     shuffle:SEED  nothing runs until somebody synchronises, then in a random order that the declared events allow:
 *                   the race detector of a machine without GPUs
 * Default: threads where a core is free for the workers, otherwise inline.
 *
 * Threads: a stream takes work from one thread at a time; a hand-over to another thread needs an ordering of its own,
 * such as ls_flag (common/base/flag.h) gives. Waiting, memory accounting and destruction may happen in any thread.
 * Errors stick: what fails, while it is enqueued or while it runs, is reported where it happens and poisons its device.
 * What is enqueued on any of the device's streams from then on does nothing, and what is queued there is skipped; only
 * events are still recorded, so that nobody waits for ever. ls_device_status peeks; a synchronise of the device (or of
 * one of its streams) returns the first failure and clears it. */
#ifndef LS_DEVICE_DEVICE_H
#define LS_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/probe.h"
#include "common/base/status.h"

typedef struct ls_device ls_device;
typedef struct ls_stream ls_stream;
typedef struct ls_event ls_event;

/* What an allocation is for. X(NAME, text) */
#define LS_MEMORY_MAP(X)                                                                                               \
    X(PARAMETER, "parameter")                                                                                          \
    X(GRADIENT, "gradient")                                                                                            \
    X(OPTIMIZER, "optimizer")                                                                                          \
    X(ACTIVATION, "activation")                                                                                        \
    X(INPUT, "input")                                                                                                  \
    X(GATHERED_OUTPUT, "gathered output")                                                                              \
    X(BUCKET, "bucket")                                                                                                \
    X(WORKSPACE, "workspace")

#define LS_MEMORY_ENUM(name, text) LS_MEMORY_##name,
typedef enum ls_memory_category { LS_MEMORY_MAP(LS_MEMORY_ENUM) LS_MEMORY_COUNT } ls_memory_category;
#undef LS_MEMORY_ENUM

const char *ls_memory_name(ls_memory_category category);

typedef enum ls_device_kind { LS_DEVICE_CPU, LS_DEVICE_CUDA, LS_DEVICE_META } ls_device_kind;
typedef enum ls_stream_kind { LS_STREAM_COMPUTE, LS_STREAM_COPY, LS_STREAM_COMM, LS_STREAM_COUNT } ls_stream_kind;

typedef struct ls_device_options {
    ls_device_kind kind;
    int index;           /* the device's number, 0 <= index; of a GPU: CUDA's, which several devices may share */
    int devices_on_node; /* devices that train at the same time here, this one included; decides who has a core */
    int place;           /* which of them this one is, from 0: a CPU device's core follows from it */
    size_t memory_capacity_bytes; /* cap of the device's pool; 0: no cap but the machine's */
    bool tf32;           /* GPUs: matrix products of fp32 may round their inputs to TF32 (10 bits of mantissa) */
    bool check_launches; /* GPUs: wait after each operation, so that a failure is reported with its name; slow */
    /* meta devices: programs take the way that they take on GPUs, ahead of their devices; else that of CPU devices, whose
     * work the launching thread runs */
    bool behind;
} ls_device_options;

/* How many GPUs this process can use (CUDA_VISIBLE_DEVICES counts). Never a failure: where there is none, *count is 0
 * and `why` says in one line what is missing: the plug-in, the driver, a device. Host-blocking; loads the plug-in. */
void ls_find_gpus(int *count, char *why, size_t capacity);

/* Which they are, for messages: "0: NVIDIA H200, 1: NVIDIA H200 (CUDA_VISIBLE_DEVICES=2,3)". Empty where there is
 * none. */
void ls_list_gpus(char *list, size_t capacity);

/* The name of a GPU, as "NVIDIA H200"; "CPU" or "meta" for the other kinds. */
const char *ls_device_model_name(const ls_device *device);

/* Opens a device. On failure *out is NULL and there is nothing to close. Several devices may share a GPU: each has
 * streams and an accounting of its own. A GPU that is not there is LS_ERR_USAGE, which lists those that are. */
ls_status ls_device_open(ls_device **out, const ls_device_options *options);

/* Waits for the device's work and frees it; reports allocations that were not freed. NULL is a no-op. */
void ls_device_close(ls_device *device);

int ls_device_index(const ls_device *device);
int ls_device_place(const ls_device *device); /* options.place: what probes call it */
ls_device_kind ls_device_kind_of(const ls_device *device);
const char *ls_device_kind_name(ls_device_kind kind); /* "cpu", "cuda", "meta" */

/* Whether work on this device is done: false for meta devices. */
bool ls_device_computes(const ls_device *device);

/* "inline", "threads" or "shuffle", of a GPU "cuda", of a meta device "meta": how this device's streams run. */
const char *ls_device_stream_mode(const ls_device *device);

/* Whether the host may read and write the device's memory itself. If not, ls_copy and ls_copy_now do. */
bool ls_device_memory_is_host(const ls_device *device);

/* Whether an enqueued operation may still be in flight when the call returns, on the compute stream too. Times measured
 * around calls are then times of enqueueing. */
bool ls_device_runs_behind(const ls_device *device);

/* Microseconds that a thread of this device should spin before it sleeps (0 where devices share cores). */
double ls_device_spin_us(const ls_device *device);

/* Makes the calling thread the device's compute thread: pinned to its core (where there is a core for each device),
 * math libraries limited to this one thread. Call once at the start of the thread that enqueues on the compute
 * stream. */
ls_status ls_device_bind_thread(const ls_device *device);

/* --- failures ---------------------------------------------------------------------------------------------------- */

/* Poisons the device with a failure that has been reported (ls_fail); the first one stays. LS_OK: nothing happens. Any
 * thread. Functions that enqueue report refused arguments through it; so do all calls below. */
void ls_device_fail(ls_device *device, ls_status status);

/* The failure that the device is poisoned with, LS_OK if none. Returns at once and clears nothing; what is still on its
 * way may yet fail. Any thread. */
ls_status ls_device_status(const ls_device *device);

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Allocates `nbytes` (0 allowed), zero-filled and aligned to 64 bytes. `purpose` names it in error messages and must
 * outlive the allocation. LS_ERR_NO_MEMORY names the device, the category, the request and what is in use. */
ls_status ls_device_alloc(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose,
                          void **out);

/* The same, with `padding` bytes more that are not counted: between the parts of an allocation, as between allocations. */
ls_status ls_device_alloc_padded(ls_device *device, ls_memory_category category, size_t nbytes, size_t padding,
                                 const char *purpose, void **out);

/* Floats of whole 64-byte lines that hold `count` floats: where the next array may begin. */
size_t ls_aligned_floats(size_t count);

/* Returns memory of ls_device_alloc; NULL is a no-op. */
void ls_device_free(ls_device *device, void *memory);

/* Whether the address lies in memory that ls_device_alloc of a GPU (of a meta device, if `device` is one) gave out in
 * this process. Any thread; false on CPU devices. */
bool ls_device_is_gpu_memory(const ls_device *device, const void *address);

/* Page-locks host memory, so that copies between it and the device need no staging and the host does not wait for them.
 * Where it cannot be done, or need not (CPU devices), nothing happens, and it is false: copies are then slower, not
 * wrong. Unpin before it is freed. */
bool ls_device_pin_host(ls_device *device, void *memory, size_t nbytes);
void ls_device_unpin_host(ls_device *device, void *memory);

/* Charges `nbytes` that the device uses but somebody else allocated (gradient buckets in shared memory) to a category,
 * or gives them back. Adopting beyond the capacity fails as ls_device_alloc does. */
ls_status ls_device_adopt(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose);
void ls_device_disown(ls_device *device, ls_memory_category category, size_t nbytes);

typedef struct ls_memory_report {
    size_t current_bytes[LS_MEMORY_COUNT];
    size_t peak_bytes[LS_MEMORY_COUNT]; /* each category's own peak; they need not coincide */
    size_t current_total_bytes;
    size_t peak_total_bytes;
} ls_memory_report;

void ls_device_memory(const ls_device *device, ls_memory_report *report);

/* Bytes that a GPU's device has taken from the GPU: what is allocated, what it needs itself, and what it keeps for
 * later allocations. 0 for CPU devices. For tests: nothing else tells one device of a GPU from another. */
size_t ls_device_reserved_bytes(const ls_device *device);

/* The free and the total bytes of the GPU, over all processes; false for CPU devices. */
bool ls_device_memory_left(const ls_device *device, size_t *free_bytes, size_t *total_bytes);

/* --- streams and events ------------------------------------------------------------------------------------------ */

/* The device's streams live as long as the device. */
ls_stream *ls_device_stream(ls_device *device, ls_stream_kind kind);
ls_device *ls_stream_device(const ls_stream *stream);
const char *ls_stream_kind_name(ls_stream_kind kind); /* "compute", "copy", "comm" */

/* One piece of work of the host: called once with a copy of its arguments. On a GPU's stream the call that enqueues it
 * waits until the stream has come to it, and runs it. */
typedef ls_status (*ls_task_fn)(const void *arguments);

#define LS_TASK_ARGUMENTS_NBYTES 192

/* Enqueues `task`, copying `nbytes` (at most LS_TASK_ARGUMENTS_NBYTES) of `arguments`; what the task returns poisons
 * the device. `label` names the work in traces and must be a string that lives for ever. */
void ls_stream_launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes);

/* The same for a task that waits inside for tasks of other devices or processes, as a collective operation does. While
 * it waits the other streams of the process must go on, since what it waits for may be among them. */
void ls_stream_launch_meeting(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments,
                              size_t nbytes);

/* Copies `nbytes` in stream order, between any two devices' memory (or the host's), which must stay until the stream
 * has passed it. The ranges must not overlap. */
void ls_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes);

/* The same, and waits for the stream: afterwards the host may use either range. */
ls_status ls_copy_now(ls_stream *stream, void *destination, const void *source, size_t nbytes);

/* `name` (a string that lives for ever) says what completes; LS_CPU_DROP_WAIT=name makes every wait for events of that
 * name do nothing, which is how the tests show that each wait is needed. */
ls_status ls_event_create(ls_event **out, const char *name);
/* No work that is still enqueued may refer to the event. NULL is a no-op. */
void ls_event_destroy(ls_event *event);
void ls_event_record(ls_event *event, ls_stream *stream);
void ls_stream_wait_event(ls_stream *stream, ls_event *event);

/* Blocks the host until the latest record has completed (LS_OK at once if there is none). The deadline is that of
 * ls_set_wait_timeout_s(); LS_ERR_TIMEOUT names the event. On GPUs also returns, and does not clear, a failure that
 * shows meanwhile. */
ls_status ls_event_synchronize(ls_event *event);

/* Blocks the host until all work enqueued so far is done; returns and clears the first failure since the last call. */
ls_status ls_stream_synchronize(ls_stream *stream);
ls_status ls_device_synchronize(ls_device *device);

/* --- what only GPUs do ------------------------------------------------------------------------------------------- */

/* A graph (CUDA's stream capture): the operations enqueued between begin and end on `stream`, and on streams that
 * follow it by events. One call then launches them all, instead of hundreds. A launch uses the addresses, counts and
 * numbers of the capture. Streams that joined must be joined back (by events) before the end; begin, end and what is
 * between them are one thread's. LS_ERR_UNSUPPORTED on CPU devices, and for what needs the host (its tasks, waits,
 * allocations); a capture in which something failed gives no graph.
 *
 * Events: one that is recorded during a capture completes at each launch of the graph. A wait, during a capture, for an
 * event from outside is not part of the graph: the host waits once, and what later launches must wait for is waited for
 * before them. */
typedef struct ls_graph ls_graph;
ls_status ls_graph_begin(ls_stream *stream);
ls_status ls_graph_end(ls_stream *stream, ls_graph **out); /* on failure *out is NULL; ends the capture in any case */
ls_status ls_graph_launch(ls_graph *graph, ls_stream *stream);
void ls_graph_destroy(ls_graph *graph); /* after its launches have completed; NULL is a no-op */

/* A watcher is called every few microseconds to milliseconds while a host thread waits for this device. It can end
 * enqueued work that may never end by itself, such as a collective operation whose peer has died. If it returns
 * anything but LS_OK (reported by it), that poisons the device and ends the wait with that status. It is called on the
 * waiting thread; waited_us is how long that wait has lasted. Add and remove watchers only while no thread waits. */
typedef ls_status (*ls_watch_fn)(void *context, double waited_us);
ls_status ls_device_watch(ls_device *device, ls_watch_fn watcher, void *context);
void ls_device_unwatch(ls_device *device, void *context);

/* Names, for profilers, what the calling thread does from now on, until the next call; NULL: nothing. A no-op on CPU
 * devices. */
void ls_device_mark(const ls_device *device, const char *name);

/* For kernels.c: what puts an operation on a stream of this device; NULL where operations run as tasks
 * (ls_stream_put). */
struct ls_op;
typedef ls_status (*ls_op_launcher)(ls_stream *stream, const struct ls_op *op);
ls_op_launcher ls_device_op_launcher(const ls_device *device);

/* Whether the stream takes work: its device has not failed, and its turn at the host lock has come. Asked by whatever
 * launches, before it does. */
bool ls_stream_takes_work(ls_stream *stream);

/* ls_stream_launch for callers that have asked ls_stream_takes_work and write the probe's record themselves. That
 * record begins with ls_stream_begin_launch, which numbers it as the stream's next launch; the caller ends it
 * (ls_probe_end) when the work is on the stream. begin_launch is called only while probes are on. */
void ls_stream_put(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes);
struct ls_probe_record ls_stream_begin_launch(ls_stream *stream, const char *label);

/* Every wait's deadline, for the whole process; default 300 s. It counts for waits that begin afterwards. Any
 * thread. */
void ls_set_wait_timeout_s(double seconds);
double ls_wait_timeout_s(void);

#endif
