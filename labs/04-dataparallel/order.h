/* Whether all accesses to the same memory are ordered by streams and events, whatever the threads' luck. */
#ifndef LABS_04_DATAPARALLEL_ORDER_H
#define LABS_04_DATAPARALLEL_ORDER_H

#include <stddef.h>

#include "common/base/log.h"
#include "common/device/device.h"

/* Forgets what was written down, and writes down what is enqueued on these devices (at most 4) from now on. They are at
 * rest. */
void order_begin(ls_device *const *devices, int count);

/* Gives memory a name, for what is told; the number by which order_copied knows it. After order_begin. */
int order_name(const void *begin, size_t nbytes, const char *format, ...) LS_PRINTF(3, 4);

/* Bytes that copies have written to it, and floats that were added to others (ls_reduce_add) from it. */
size_t order_copied(int name);
size_t order_added(int name);

/* Judges what was enqueued since order_begin, and ends the writing down: "every access is ordered", or the first two
 * accesses that are not. Call when the devices are at rest. */
const char *order_judge(char *text, size_t capacity);

#endif
