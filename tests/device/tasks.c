#define _GNU_SOURCE
#include "tests/device/tasks.h"

#include <time.h>

void sleep_us(long microseconds) {
    struct timespec time = {.tv_sec = 0, .tv_nsec = microseconds * 1000};
    nanosleep(&time, NULL);
}

ls_status store_task(const void *argument) {
    const struct store *store = argument;
    if (store->delay_us > 0) sleep_us(store->delay_us);
    *store->to = store->value;
    return LS_OK;
}

void store(ls_stream *stream, int *to, int value, int delay_us) {
    struct store arguments = {to, value, delay_us};
    ls_stream_launch(stream, "store", store_task, &arguments, sizeof arguments);
}
