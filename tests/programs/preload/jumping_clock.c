/* Loaded before the C library (LD_PRELOAD): the date jumps by a day, forward or back, between any two readings of a
 * program. Clocks that cannot be set, the monotonic one and those of CPU time, are unchanged. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { DAY_S = 86400 };

static time_t jump(void) {
    static _Atomic unsigned asked;
    return atomic_fetch_add(&asked, 1) % 2 == 0 ? DAY_S : -DAY_S;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    *now = (struct timeval){.tv_sec = precise.tv_sec, .tv_usec = precise.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) { return clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0; }
