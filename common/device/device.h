/* Devices, streams, events and memory: one vocabulary, CUDA's, for every back-end.
 *
 * A device is a GPU, or a CPU stand-in with its own memory pool. Work is enqueued on streams and runs in order within a
 * stream; across streams, only events define an order:
 *
 *     ls_event_record(ready, compute);       // "ready" completes when all work enqueued on compute so far is done
 *     ls_stream_wait_event(comm, ready);     // later work on comm runs after that
 *
 * As in CUDA, a wait refers to the latest record at the time of the call, and waiting for an event that was never
 * recorded does nothing. So the order of the two calls on the host matters; the caller must ensure it.
 *
 * GPUs (LS_DEVICE_CUDA) come from a plug-in, ls_cuda.so (plugin.h), which is loaded at the first call that needs a GPU:
 * runs on CPU devices do not load CUDA. The host cannot access a GPU's memory directly, only by copies
 * (ls_device_memory_is_host).
 *
 * A meta device (LS_DEVICE_META) computes nothing: it accounts for memory that does not exist, whose addresses must not
 * be dereferenced, and accepts work that it does not run (except for tasks of ls_stream_launch_meeting, which it calls
 * at once). Events complete when they are recorded, and copies to host memory deliver zeros. So the memory, the
 * operations and the order of a program of any size can be studied.
 *
 * The environment's LS_CPU_STREAMS chooses how the streams of a CPU device run:
 *     threads       compute runs inside the enqueueing call; copy and comm have a queue and a worker thread each
 *     inline        everything runs inside the enqueueing call
 *     shuffle:SEED  nothing runs until a synchronise call, then everything in a random order that the events allow: a
 *                   race detector for machines without GPUs
 * Default: threads if a core is free for the workers, otherwise inline.
 *
 * Threads: a stream takes work from one thread at a time; to switch to another thread, synchronise the two, for example
 * by ls_flag (common/base/flag.h). Waiting, memory accounting and destruction may happen in any thread. Errors are
 * sticky: a failure, while enqueueing or while running, is reported where it happens and poisons the device. Work
 * enqueued on any stream of a poisoned device does nothing, and work already queued is skipped; only events are still
 * recorded, so that no wait lasts for ever. ls_device_status reads the failure; a synchronise of the device (or of one
 * of its streams) returns and clears it. */
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

/* The purpose of an allocation. X(NAME, text) */
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
    int index;           /* the device's number, 0 <= index; of a GPU: CUDA's index, which several devices may share */
    int devices_on_node; /* devices that train at the same time here, this one included; decides who has a core */
    int place;           /* this one's index among them, from 0: determines a CPU device's core */
    size_t memory_capacity_bytes; /* cap of the device's pool; 0: no cap but the machine's */
    bool tf32;           /* GPUs: fp32 matrix multiplies may round their inputs to TF32 (10 bits of mantissa) */
    bool check_launches; /* GPUs: wait after each operation, so that a failure is reported with its name; slow */
    /* meta devices: programs behave as on GPUs, where the host runs ahead of the device; else as on CPU devices, whose
     * work the launching thread runs */
    bool behind;
} ls_device_options;

/* Counts the GPUs that this process can use, honouring CUDA_VISIBLE_DEVICES. Never fails: without a GPU, *count is 0
 * and `why` names in one line what is missing: the plug-in, the driver, or a device. Host-blocking; loads the
 * plug-in. */
void ls_find_gpus(int *count, char *why, size_t capacity);

/* Lists the GPUs, for messages: "0: NVIDIA H200, 1: NVIDIA H200 (CUDA_VISIBLE_DEVICES=2,3)". Empty without a GPU. */
void ls_list_gpus(char *list, size_t capacity);

/* The model of a GPU, such as "NVIDIA H200"; "CPU" or "meta" for the other kinds. */
const char *ls_device_model_name(const ls_device *device);

/* Opens a device. On failure *out is NULL and there is nothing to close. Several devices may share a GPU; each has its
 * own streams and memory accounting. LS_ERR_USAGE: no such GPU; the message lists the existing ones. */
ls_status ls_device_open(ls_device **out, const ls_device_options *options);

/* Waits for the device's work and frees it; reports allocations that were not freed. NULL is a no-op. */
void ls_device_close(ls_device *device);

int ls_device_index(const ls_device *device);
int ls_device_place(const ls_device *device); /* options.place: the device's number in traces */
ls_device_kind ls_device_kind_of(const ls_device *device);
const char *ls_device_kind_name(ls_device_kind kind); /* "cpu", "cuda", "meta" */

/* Whether this device really computes: false for meta devices. */
bool ls_device_computes(const ls_device *device);

/* How this device's streams run: "inline", "threads" or "shuffle"; "cuda" for a GPU, "meta" for a meta device. */
const char *ls_device_stream_mode(const ls_device *device);

/* Whether the host may access the device's memory directly. If not, use ls_copy and ls_copy_now. */
bool ls_device_memory_is_host(const ls_device *device);

/* Whether an enqueued operation may still be in flight when the call returns, on the compute stream too. Times measured
 * around calls are then times of enqueueing. */
bool ls_device_runs_behind(const ls_device *device);

/* Microseconds that a thread of this device should spin before it sleeps (0 if devices share cores). */
double ls_device_spin_us(const ls_device *device);

/* Makes the calling thread the device's compute thread: pinned to its core (if there is one for each device), with math
 * libraries limited to this thread. Call once at the start of the thread that enqueues on the compute stream. */
ls_status ls_device_bind_thread(const ls_device *device);

/* --- failures ---------------------------------------------------------------------------------------------------- */

/* Poisons the device with a failure that has been reported (ls_fail); the first one stays. LS_OK: nothing happens. Any
 * thread. Functions that enqueue report refused arguments through it; so do all calls below. */
void ls_device_fail(ls_device *device, ls_status status);

/* The failure that the device is poisoned with, LS_OK if none. Returns at once and clears nothing; unfinished work may
 * still fail. Any thread. */
ls_status ls_device_status(const ls_device *device);

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Allocates `nbytes` (0 allowed), zero-filled and aligned to 64 bytes. `purpose` names it in error messages and must
 * outlive the allocation. LS_ERR_NO_MEMORY names the device, the category, the request and what is in use. */
ls_status ls_device_alloc(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose,
                          void **out);

/* The same with `padding` additional bytes that are not counted, for gaps between the parts of one allocation. */
ls_status ls_device_alloc_padded(ls_device *device, ls_memory_category category, size_t nbytes, size_t padding,
                                 const char *purpose, void **out);

/* `count` floats rounded up to whole 64-byte lines: the offset of the next array. */
size_t ls_aligned_floats(size_t count);

/* Frees memory of ls_device_alloc; NULL is a no-op. */
void ls_device_free(ls_device *device, void *memory);

/* Whether the address lies in memory that ls_device_alloc of a GPU (of a meta device, if `device` is one) gave out in
 * this process. Any thread; false on CPU devices. */
bool ls_device_is_gpu_memory(const ls_device *device, const void *address);

/* Pins (page-locks) host memory, so that copies to and from the device need no staging and the host does not wait for
 * them. Returns false, and does nothing, if pinning fails or is not needed (CPU devices): copies then still work, more
 * slowly. Unpin the memory before freeing it. */
bool ls_device_pin_host(ls_device *device, void *memory, size_t nbytes);
void ls_device_unpin_host(ls_device *device, void *memory);

/* Adds `nbytes` that the device uses but did not allocate (gradient buckets in shared memory) to a category, or
 * subtracts them. Adopting beyond the capacity fails as ls_device_alloc does. */
ls_status ls_device_adopt(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose);
void ls_device_disown(ls_device *device, ls_memory_category category, size_t nbytes);

typedef struct ls_memory_report {
    size_t current_bytes[LS_MEMORY_COUNT];
    size_t peak_bytes[LS_MEMORY_COUNT]; /* each category's own peak; they need not coincide */
    size_t current_total_bytes;
    size_t peak_total_bytes;
} ls_memory_report;

void ls_device_memory(const ls_device *device, ls_memory_report *report);

/* Bytes that this device has reserved on its GPU: allocated, needed by the device itself, or cached for later
 * allocations. 0 for CPU devices. For tests, which need the figures of one device of a shared GPU. */
size_t ls_device_reserved_bytes(const ls_device *device);

/* The free and the total bytes of the GPU, over all processes; false for CPU devices. */
bool ls_device_memory_left(const ls_device *device, size_t *free_bytes, size_t *total_bytes);

/* --- streams and events ------------------------------------------------------------------------------------------ */

/* The device's streams live as long as the device. */
ls_stream *ls_device_stream(ls_device *device, ls_stream_kind kind);
ls_device *ls_stream_device(const ls_stream *stream);
const char *ls_stream_kind_name(ls_stream_kind kind); /* "compute", "copy", "comm" */

/* A task: a host function that is called once with a copy of its arguments. On a GPU's stream the enqueueing call waits
 * until the stream reaches the task, and runs it. */
typedef ls_status (*ls_task_fn)(const void *arguments);

#define LS_TASK_ARGUMENTS_NBYTES 192

/* Enqueues `task`, copying `nbytes` (at most LS_TASK_ARGUMENTS_NBYTES) of `arguments`; a failure that the task returns
 * poisons the device. `label` names the work in traces and must be a static string. */
void ls_stream_launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes);

/* The same for a task that waits for tasks of other devices or processes, such as a collective operation. While it
 * waits, the other streams of the process keep running, since the awaited task may be on one of them. */
void ls_stream_launch_meeting(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments,
                              size_t nbytes);

/* Copies `nbytes` in stream order, between the memories of any two devices (or the host), which must stay valid until
 * the copy has completed. The ranges must not overlap. */
void ls_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes);

/* The same, then waits for the stream: afterwards the host may use both ranges. */
ls_status ls_copy_now(ls_stream *stream, void *destination, const void *source, size_t nbytes);

/* `name`, a static string, describes the event. LS_CPU_DROP_WAIT=name makes every wait for events of that name do
 * nothing; tests use it to show that each wait is needed. */
ls_status ls_event_create(ls_event **out, const char *name);
/* No work that is still enqueued may refer to the event. NULL is a no-op. */
void ls_event_destroy(ls_event *event);
void ls_event_record(ls_event *event, ls_stream *stream);
void ls_stream_wait_event(ls_stream *stream, ls_event *event);

/* Blocks the host until the latest record has completed (LS_OK at once if there is none). The deadline is that of
 * ls_set_wait_timeout_s(); LS_ERR_TIMEOUT names the event. On GPUs also returns, without clearing it, a failure
 * detected meanwhile. */
ls_status ls_event_synchronize(ls_event *event);

/* Blocks the host until all work enqueued so far is done; returns and clears the first failure since the last call. */
ls_status ls_stream_synchronize(ls_stream *stream);
ls_status ls_device_synchronize(ls_device *device);

/* --- GPUs only --------------------------------------------------------------------------------------------------- */

/* A graph (CUDA's stream capture): the operations enqueued between begin and end on `stream`, and on streams that
 * follow it by events. One call then launches them all, instead of hundreds. A launch uses the addresses, counts and
 * numbers of the capture. Streams that joined must be joined back (by events) before the end; begin, end and all calls
 * between them must come from one thread. LS_ERR_UNSUPPORTED on CPU devices, and for calls that need the host (tasks,
 * waits, allocations); a capture in which a call failed yields no graph.
 *
 * Events: an event recorded during a capture completes at each launch of the graph. A wait during a capture for an
 * event recorded outside is not part of the graph: the host waits once, and the caller must make later launches wait
 * themselves. */
typedef struct ls_graph ls_graph;
ls_status ls_graph_begin(ls_stream *stream);
ls_status ls_graph_end(ls_stream *stream, ls_graph **out); /* on failure *out is NULL; ends the capture in any case */
ls_status ls_graph_launch(ls_graph *graph, ls_stream *stream);
void ls_graph_destroy(ls_graph *graph); /* after its launches have completed; NULL is a no-op */

/* A watcher is called every few microseconds to milliseconds while a host thread waits for this device. It can end
 * enqueued work that would never end, such as a collective operation whose peer has died. Any status other than LS_OK,
 * which the watcher must report, poisons the device and ends the wait. Watchers run on the waiting thread; waited_us is
 * the duration of the wait so far. Add and remove watchers only while no thread waits. */
typedef ls_status (*ls_watch_fn)(void *context, double waited_us);
ls_status ls_device_watch(ls_device *device, ls_watch_fn watcher, void *context);
void ls_device_unwatch(ls_device *device, void *context);

/* Names the calling thread's activity for profilers, until the next call; NULL: none. A no-op on CPU devices. */
void ls_device_mark(const ls_device *device, const char *name);

/* For kernels.c: the function that enqueues an operation on a stream of this device; NULL: operations run as tasks
 * (ls_stream_put). */
struct ls_op;
typedef ls_status (*ls_op_launcher)(ls_stream *stream, const struct ls_op *op);
ls_op_launcher ls_device_op_launcher(const ls_device *device);

/* Whether the stream accepts work: its device has not failed, and the caller has had its turn at the host lock. Call
 * before each launch. */
bool ls_stream_takes_work(ls_stream *stream);

/* ls_stream_launch for callers that have called ls_stream_takes_work and write the probe record themselves.
 * ls_stream_begin_launch begins the record and gives it the stream's next launch number; the caller ends it
 * (ls_probe_end) when the work is enqueued. Call begin_launch only while probes are on. */
void ls_stream_put(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes);
struct ls_probe_record ls_stream_begin_launch(ls_stream *stream, const char *label);

/* Sets the deadline of every wait in the process that begins afterwards; default 300 s. Any thread. */
void ls_set_wait_timeout_s(double seconds);
double ls_wait_timeout_s(void);

#endif
