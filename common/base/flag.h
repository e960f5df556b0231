/* ls_flag: a counter that one thread or process raises and others wait for; spin first, then sleep.
 *
 * It works between threads and, when it lies in shared memory, between processes. Raising costs one store when
 * nobody sleeps, a futex call otherwise. Counters compare modulo 2^32, so they may wrap.
 *
 * How long to spin is the caller's knowledge: `spin_us` > 0 where every participant has a core of its own, 0 where they
 * share cores (spinning would then keep the one we wait for from running). */
#ifndef LS_BASE_FLAG_H
#define LS_BASE_FLAG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ls_flag {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers; /* processes or threads in, or on their way to, futex_wait */
} ls_flag;

/* Zero-filled memory is a valid flag of value 0. */

/* Sets the value and wakes everybody who waits for it. What the caller wrote before is visible to who sees the value. */
void ls_flag_set(ls_flag *flag, uint32_t value);

/* Adds 1, likewise; returns the new value. */
uint32_t ls_flag_raise(ls_flag *flag);

uint32_t ls_flag_value(ls_flag *flag);

/* Whether the flag has reached `value` (modulo 2^32). */
bool ls_flag_reached(ls_flag *flag, uint32_t value);

/* Waits until the flag reaches `value` or ls_now_us() passes `until_us`; true if it was reached. */
bool ls_flag_wait(ls_flag *flag, uint32_t value, double spin_us, double until_us);

#endif
