/* Tasks that tests enqueue on streams. */
#ifndef TESTS_DEVICE_TASKS_H
#define TESTS_DEVICE_TASKS_H

#include "common/device/device.h"

void sleep_us(long microseconds);

/* After delay_us, sets *to = value. As a task: store_task, with these arguments. */
struct store {
    int *to;
    int value;
    int delay_us;
};
ls_status store_task(const void *store);
void store(ls_stream *stream, int *to, int value, int delay_us);

#endif
