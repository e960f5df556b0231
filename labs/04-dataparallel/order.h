/* Checks that all accesses to the same memory are ordered by streams and events, independent of the threads' timing. */
#ifndef LABS_04_DATAPARALLEL_ORDER_H
#define LABS_04_DATAPARALLEL_ORDER_H

#include <stddef.h>

#include "common/base/log.h"
#include "common/device/device.h"

/* Clears the record, and records the work that is enqueued on these devices (at most 4) from now on. They must be
 * idle. */
void order_begin(ls_device *const *devices, int count);

/* Gives memory a name for messages. Returns its number, for order_copied. Call after order_begin. */
int order_name(const void *begin, size_t nbytes, const char *format, ...) LS_PRINTF(3, 4);

/* Bytes that copies have written to it, and floats that were added to others (ls_reduce_add) from it. */
size_t order_copied(int name);
size_t order_added(int name);

/* Ends the recording, and checks the work since order_begin: "every access is ordered", or the first two accesses that
 * are not. Call when the devices are idle. */
const char *order_judge(char *text, size_t capacity);

#endif
