/* Authenticates the processes of a job: secrets, and the user at the other end of a Unix socket. */
#ifndef LS_BASE_SECRET_H
#define LS_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

/* Writes `digits` (an even number, at most 64) unpredictable hexadecimal digits (getrandom) and a terminating zero.
 * LS_ERR_SYSTEM, reported: getrandom failed. */
ls_status ls_secret_make(char *text, size_t digits);

/* Compares bytes in constant time, so that the time of a refusal does not reveal how much of a guess was right. */
bool ls_secret_equal(const void *left, const void *right, size_t nbytes);

/* Whether the process at the other end of a connected Unix socket runs as the same user as this one (SO_PEERCRED: as
 * it was when it connected, or began to listen). False if the kernel does not say. */
bool ls_peer_is_own_user(int fd);

#endif
