/* The monotonic clock. Times of the project are in microseconds (_us) or milliseconds (_ms), as a double. */
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <stdint.h>

/* Microseconds since an arbitrary origin that all processes of the machine share. */
double ls_now_us(void);

/* Milliseconds since the same origin, up to ten too few: a few nanoseconds' work. */
int64_t ls_coarse_now_ms(void);

/* Microseconds of CPU time that the calling thread has had; they go on only while it runs. A system call. */
double ls_thread_cpu_us(void);

#endif
