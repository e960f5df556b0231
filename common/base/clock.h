/* The monotonic clock. Times of the project are in microseconds (_us) or milliseconds (_ms), as a double. */
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <stdint.h>

/* Microseconds since an arbitrary origin that all processes of the machine share. */
double ls_now_us(void);

/* Milliseconds since the same origin, up to 10 ms behind. A call costs a few nanoseconds. */
int64_t ls_coarse_now_ms(void);

/* CPU time of the calling thread, in microseconds. A system call. */
double ls_thread_cpu_us(void);

#endif
