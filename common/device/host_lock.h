/* An interpreter's lock, emulated: what each launch costs the host of a Python program, and that the threads of one
 * process pay it one after another.
 *
 * While it is on, a thread that puts work on a stream (an operation, a task, a copy, a collective operation, a graph as
 * a whole) first takes the process's one lock, keeps a core busy for `us` microseconds, and gives the lock back. Then
 * it launches as always. Work that a CPU device runs inside the launching call runs without the lock, as an interpreter
 * releases its lock around long calls. Recording an event and waiting are not launches. So DataParallel's threads queue
 * for one lock; DDP's processes have a lock each and do not queue. Results are the same, bit for bit.
 *
 * While it is off, which is the default, a launch pays a predicted branch.
 *
 * Probes: each turn is a LOCK and an UNLOCK named "host lock", the same object for all threads, and the thread's time
 * between them is its own under that lock (common/trace/resolve.h).
 *
 * Threads: ls_host_lock_set while nobody launches; the rest in any thread. */
#ifndef LS_DEVICE_HOST_LOCK_H
#define LS_DEVICE_HOST_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/device/device.h"

#define LS_HOST_LOCK_MOST_US 1e6

/* What a launch of this process costs from now on; 0: nothing, off. `by_cpu_time`: those are microseconds of the
 * launching thread's own CPU time, which stands still while another thread has its core; otherwise they are the
 * clock's. LS_ERR_INVALID: `us` is no number from 0 to LS_HOST_LOCK_MOST_US. */
ls_status ls_host_lock_set(double us, bool by_cpu_time);

extern _Atomic bool ls_host_lock_is_on;

/* For ls_host_lock_pass alone. */
ls_status ls_host_lock_take_turn(const ls_stream *stream);

/* Called by whatever launches, before it does. LS_ERR_TIMEOUT: the turn did not arrive within ls_wait_timeout_s(); it
 * never will again, and the first thread to whom that happens says so. */
static inline ls_status ls_host_lock_pass(const ls_stream *stream) {
    if (!__builtin_expect(atomic_load_explicit(&ls_host_lock_is_on, memory_order_relaxed), 0)) return LS_OK;
    return ls_host_lock_take_turn(stream);
}

#endif
