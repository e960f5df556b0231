/* What check.sh puts below correct code, which keeps all points: each of these may be used, and warnings only warn. */
#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/comm/comm.h"

static void *begin_thread(void *argument) { return argument; }
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((unused, noinline)) static int use_the_c_library(const char *text, size_t count) {
    int values[3] = {3, 1, 2}, digits = 0;
    for (int i = 0; i < count; i++) digits += isdigit(text[i]) != 0; /* signed beside unsigned: a warning */
    qsort(values, 3, sizeof *values, compare);
    pthread_t thread;
    if (pthread_create(&thread, NULL, begin_thread, values) == 0) pthread_join(thread, NULL);
    printf("%g %d %s\n", sin(1.0) + ls_now_us(), tolower('A'), strchr("asm", 's'));
    return digits + (int)strtol(text, NULL, 10) + ls_comm_rank((ls_comm *)values);
}
static int (*volatile used)(const char *, size_t) = use_the_c_library;
