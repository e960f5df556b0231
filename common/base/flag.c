/* flag — spin-then-futex waiting.
 *   order : the waiter announces itself (sleepers) before it looks at the value a last time; the raiser writes the value
 *           before it looks at sleepers. Both are sequentially consistent, so one of the two always sees the other.
 *   fails : a sleeper that is killed leaves sleepers too high: later raises cost a needless futex call, nothing worse. */
#define _GNU_SOURCE
#include "common/base/flag.h"

#include <linux/futex.h>
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

bool ls_flag_wait(ls_flag *flag, uint32_t value, double spin_us, double until_us) {
    if (ls_flag_reached(flag, value)) return true;
    if (spin_us > 0) {
        double spin_until_us = ls_now_us() + spin_us;
        do {
            for (int i = 0; i < 64; i++) {
                if (ls_flag_reached(flag, value)) return true;
                relax();
            }
        } while (ls_now_us() < spin_until_us);
    }
    bool reached = false;
    atomic_fetch_add(&flag->sleepers, 1);
    for (;;) {
        uint32_t seen = atomic_load(&flag->value);
        reached = (int32_t)(seen - value) >= 0;
        double left_us = until_us - ls_now_us();
        if (reached || left_us <= 0) break;
        sleep_while(flag, seen, left_us < LS_SLEEP_SLICE_US ? left_us : LS_SLEEP_SLICE_US);
    }
    atomic_fetch_sub(&flag->sleepers, 1);
    return reached;
}
