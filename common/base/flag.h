/* ls_flag: a counter that one thread or process raises and others wait for. A wait spins first, then sleeps.
 *
 * It works between threads and, in shared memory, between processes. Raising costs one store if no thread sleeps, a
 * futex call otherwise. Counters compare modulo 2^32, so they may wrap.
 *
 * The caller says how long to poll before sleeping (ls_patience; cores.h has a value for a number of participants). */
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

/* Sets the value and wakes all waiters. A thread that sees the value also sees everything the caller wrote before. */
void ls_flag_set(ls_flag *flag, uint32_t value);

/* Adds 1, likewise; returns the new value. */
uint32_t ls_flag_raise(ls_flag *flag);

uint32_t ls_flag_value(ls_flag *flag);

/* Whether the flag has reached `value` (modulo 2^32). */
bool ls_flag_reached(ls_flag *flag, uint32_t value);

/* Waits until the flag reaches `value` or ls_now_us() passes `until_us`; true if it was reached. */
bool ls_flag_wait(ls_flag *flag, uint32_t value, double spin_us, double until_us);

/* How long a thread polls before it sleeps. For spin_us it polls without a pause, which suits threads that have a core
 * of their own. Then, for yield_us, it yields its core between two polls, which suits threads that share cores with the
 * ones that they wait for. */
typedef struct ls_patience {
    double spin_us, yield_us;
} ls_patience;

/* Waits for a condition other than the flag's value: until there(context) returns true, or for `limit_us`. Returns
 * whether the condition became true. A thread that may have made it true calls ls_flag_ring afterwards. Both sides'
 * reads and writes of the condition must be sequentially consistent. */
bool ls_flag_await(ls_flag *bell, bool (*there)(void *context), void *context, ls_patience patience, double limit_us);

/* Wakes the sleepers. If there are none, it only reads memory that no thread is writing. */
void ls_flag_ring(ls_flag *bell);

#endif
