/* flag — waiting: spin, then yield, then sleep on a futex.
 *   order : the waiter announces itself (sleepers) before it reads the value for the last time; the raiser writes the
 *           value before it reads sleepers. Both are sequentially consistent, so one of the two always sees the other.
 *   fails : a sleeper that is killed leaves sleepers too high: later raises cost a needless futex call, nothing worse. */
#define _GNU_SOURCE
#include "common/base/flag.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

#define LS_SLEEP_SLICE_US 2e5 /* upper bound of one sleep; guards against a wake-up lost with a killed peer */

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wake_all(ls_flag *flag) {
    if (atomic_load(&flag->sleepers) == 0) return;
    syscall(SYS_futex, (uint32_t *)&flag->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void ls_flag_set(ls_flag *flag, uint32_t value) {
    atomic_store(&flag->value, value);
    wake_all(flag);
}

uint32_t ls_flag_raise(ls_flag *flag) {
    uint32_t value = atomic_fetch_add(&flag->value, 1) + 1;
    wake_all(flag);
    return value;
}

uint32_t ls_flag_value(ls_flag *flag) { return atomic_load(&flag->value); }

bool ls_flag_reached(ls_flag *flag, uint32_t value) { return (int32_t)(atomic_load(&flag->value) - value) >= 0; }

static void sleep_while(ls_flag *flag, uint32_t seen, double slice_us) {
    struct timespec slice = {.tv_sec = 0, .tv_nsec = (long)(slice_us * 1e3)};
    syscall(SYS_futex, (uint32_t *)&flag->value, FUTEX_WAIT, seen, &slice, NULL, 0);
}

/* The sleeper checks the condition after it has announced itself and read the value: after a raise in between, the
 * futex call returns at once. */
static bool sleep_for(ls_flag *flag, bool (*there)(void *context), void *context, double until_us) {
    bool reached = false;
    atomic_fetch_add(&flag->sleepers, 1);
    for (;;) {
        uint32_t seen = atomic_load(&flag->value);
        reached = there(context);
        double left_us = until_us - ls_now_us();
        if (reached || left_us <= 0) break;
        sleep_while(flag, seen, left_us < LS_SLEEP_SLICE_US ? left_us : LS_SLEEP_SLICE_US);
    }
    atomic_fetch_sub(&flag->sleepers, 1);
    return reached;
}

/* Polls for about a microsecond. */
static bool spin(bool (*there)(void *context), void *context) {
    for (int i = 0; i < 64; i++) {
        if (there(context)) return true;
        relax();
    }
    return false;
}

bool ls_flag_await(ls_flag *bell, bool (*there)(void *context), void *context, ls_patience patience, double limit_us) {
    if (there(context)) return true;
    if (patience.spin_us > 0 && spin(there, context)) return true; /* most waits end here, without the clock */
    double begin_us = ls_now_us(), spin_until_us = begin_us + patience.spin_us;
    while (ls_now_us() < spin_until_us)
        if (spin(there, context)) return true;
    while (ls_now_us() < spin_until_us + patience.yield_us) {
        sched_yield();
        if (there(context)) return true;
    }
    return sleep_for(bell, there, context, begin_us + limit_us);
}

void ls_flag_ring(ls_flag *bell) {
    if (atomic_load(&bell->sleepers) > 0) (void)ls_flag_raise(bell);
}

struct goal {
    ls_flag *flag;
    uint32_t value;
};

static bool goal_reached(void *context) {
    const struct goal *goal = context;
    return ls_flag_reached(goal->flag, goal->value);
}

bool ls_flag_wait(ls_flag *flag, uint32_t value, double spin_us, double until_us) {
    struct goal goal = {flag, value};
    if (goal_reached(&goal)) return true;
    return ls_flag_await(flag, goal_reached, &goal, (ls_patience){.spin_us = spin_us}, until_us - ls_now_us());
}
