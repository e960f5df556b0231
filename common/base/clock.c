#define _GNU_SOURCE
#include "common/base/clock.h"

#include <time.h>

static double clock_us(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

double ls_now_us(void) { return clock_us(CLOCK_MONOTONIC); }
double ls_thread_cpu_us(void) { return clock_us(CLOCK_THREAD_CPUTIME_ID); }

int64_t ls_coarse_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
