/* Emulates Python's global interpreter lock: each launch costs host time, and the threads of one process pay for it one
 * after another.
 *
 * While it is on, a thread that puts work on a stream (an operation, a task, a copy, a collective operation, a graph as
 * a whole) first takes the process's one lock, keeps a core busy for `us` microseconds, and releases the lock. Then it
 * launches as usual. Work that a CPU device runs inside the launching call runs without the lock, as an interpreter
 * releases its lock around long calls. Recording an event and waiting are not launches. So DataParallel's threads
 * contend for one lock; each of DDP's processes has its own. Results are bit-identical.
 *
 * While it is off, which is the default, a launch pays a predicted branch.
 *
 * Probes: each turn is a LOCK and an UNLOCK named "host lock", with the same object for all threads; the time between
 * them is host time under that lock (common/trace/resolve.h).
 *
 * Threads: call ls_host_lock_set while no thread launches; everything else in any thread. */
#ifndef LS_DEVICE_HOST_LOCK_H
#define LS_DEVICE_HOST_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/device/device.h"

#define LS_HOST_LOCK_MOST_US 1e6

/* Sets the cost of each launch in this process; 0: off. `by_cpu_time`: microseconds of the launching thread's CPU time,
 * which does not advance while another thread has its core; otherwise of wall-clock time. LS_ERR_INVALID: `us` is not
 * within 0 .. LS_HOST_LOCK_MOST_US. */
ls_status ls_host_lock_set(double us, bool by_cpu_time);

extern _Atomic bool ls_host_lock_is_on;

/* For ls_host_lock_pass alone. */
ls_status ls_host_lock_take_turn(const ls_stream *stream);

/* Call before each launch. LS_ERR_TIMEOUT: no turn within ls_wait_timeout_s(); every later call fails, too, and the
 * first thread that fails reports it. */
static inline ls_status ls_host_lock_pass(const ls_stream *stream) {
    if (!__builtin_expect(atomic_load_explicit(&ls_host_lock_is_on, memory_order_relaxed), 0)) return LS_OK;
    return ls_host_lock_take_turn(stream);
}

#endif
