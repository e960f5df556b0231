/* host_lock — each launch holds the one lock of the process for some microseconds of a busy core: a turn.
 *   idea  : a ticket lock: a thread draws a number, and waits until the counter of those served has reached it: first
 *           come, first served, as a replay's locks are (labs/replay/engine). It spins first where its device has a
 *           core of its own, since waking a sleeper takes longer than a turn
 *   cost  : off, a branch. On, `us` at each launch and two readings of the clock more (by CPU time system calls, some
 *           0.3 us each); where several threads launch, the wait for the threads before it
 *   order : the LOCK is written by the thread that has the lock, and the UNLOCK before it gives the lock back. So
 *           records of different threads end in the order of the turns
 *   fails : a thread that misses its deadline leaves a number that blocks all later ones. So after a missed deadline
 *           there are no further turns, and every later launch ends with the same status, until the lock is set
 *           again */
#include "common/device/host_lock.h"

#include "common/base/clock.h"
#include "common/base/flag.h"
#include "common/base/log.h"
#include "common/base/probe.h"

#define NAME "host lock"

_Atomic bool ls_host_lock_is_on;

static struct {
    /* written by set */
    double us;
    bool by_cpu_time;
    /* any thread */
    _Atomic uint32_t drawn; /* numbers so far: the next one's */
    ls_flag served;         /* turns that are over: the number of the thread that has the lock */
    _Atomic bool is_stuck;
} host_lock;

ls_status ls_host_lock_set(double us, bool by_cpu_time) {
    if (!(us >= 0 && us <= LS_HOST_LOCK_MOST_US)) {
        return ls_fail(LS_ERR_INVALID, "a host lock of %g us is out of range; expected 0 to %g", us,
                       LS_HOST_LOCK_MOST_US);
    }
    atomic_store(&ls_host_lock_is_on, us > 0);
    if (us == 0) return LS_OK;
    host_lock.us = us;
    host_lock.by_cpu_time = by_cpu_time;
    atomic_store(&host_lock.drawn, 0);
    ls_flag_set(&host_lock.served, 0);
    atomic_store(&host_lock.is_stuck, false);
    return LS_OK;
}

static ls_status wait_for_turn(uint32_t number, double spin_us) {
    double until_us = ls_now_us() + ls_wait_timeout_s() * 1e6;
    if (!atomic_load(&host_lock.is_stuck) && ls_flag_wait(&host_lock.served, number, spin_us, until_us)) return LS_OK;
    if (atomic_exchange(&host_lock.is_stuck, true)) return LS_ERR_TIMEOUT; /* somebody has said so */
    return ls_fail(LS_ERR_TIMEOUT, "timed out after %g s waiting for the host lock, which each launch holds for %g us",
                   ls_wait_timeout_s(), host_lock.us);
}

static double busy_us(void) { return host_lock.by_cpu_time ? ls_thread_cpu_us() : ls_now_us(); }

static void keep_busy(void) {
    double until_us = busy_us() + host_lock.us;
    while (busy_us() < until_us) continue;
}

ls_status ls_host_lock_take_turn(const ls_stream *stream) {
    bool probing = ls_probing();
    struct ls_probe_record record;
    if (probing) record = ls_probe_begin(LS_PROBE_LOCK, NAME);
    uint32_t number = atomic_fetch_add(&host_lock.drawn, 1);
    ls_status status = wait_for_turn(number, ls_device_spin_us(ls_stream_device(stream)));
    if (status != LS_OK) return status;
    if (probing) {
        record.object = (uintptr_t)&host_lock;
        ls_probe_end(&record);
    }
    keep_busy();
    if (probing) ls_probe_instant(LS_PROBE_UNLOCK, NAME, (uintptr_t)&host_lock, 0);
    (void)ls_flag_raise(&host_lock.served);
    return LS_OK;
}
