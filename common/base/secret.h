/* Telling the processes of a job from strangers: secrets, and the user at the other end of a Unix socket. */
#ifndef LS_BASE_SECRET_H
#define LS_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

/* Writes `digits` (an even number, at most 64) hexadecimal digits that nobody can foresee (getrandom), and the end.
 * LS_ERR_SYSTEM, reported: there is no randomness to be had. */
ls_status ls_secret_make(char *text, size_t digits);

/* Whether the bytes are the same, in a time that does not depend on them: how long a refusal takes tells nothing about
 * how much of a guess was right. */
bool ls_secret_equal(const void *left, const void *right, size_t nbytes);

/* Whether the process at the other end of a connected Unix socket runs as the same user as this one (SO_PEERCRED: as
 * it was when it connected, or began to listen). False if that cannot be learnt. */
bool ls_peer_is_own_user(int fd);

#endif
