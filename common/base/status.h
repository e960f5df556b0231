/* Status codes: the one error convention of the project.
 *
 * Every function that can fail returns an ls_status: 0 done, < 0 failed. The function that detects a failure reports it
 * once, with ls_fail() (log.h). Its callers only return the status and undo what they built. Nothing below main() ends
 * the process; main() converts the status with ls_status_exit_code(). */
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

/* X(name, value, exit status of a program that ends with it, text) */
#define LS_STATUS_MAP(X)                                                                                               \
    X(OK, 0, 0, "success")                                                                                             \
    X(ERR_INVALID, -1, 1, "invalid argument or input")                                                                 \
    X(ERR_USAGE, -2, 2, "wrong usage")                                                                                 \
    X(ERR_NO_MEMORY, -3, 1, "out of memory")                                                                           \
    X(ERR_IO, -4, 1, "input or output failed")                                                                         \
    X(ERR_FORMAT, -5, 1, "malformed file")                                                                             \
    X(ERR_UNSUPPORTED, -6, 1, "not supported here")                                                                    \
    X(ERR_SYSTEM, -7, 1, "a system call failed")                                                                       \
    X(ERR_PEER, -8, 3, "a peer failed")                                                                                \
    X(ERR_TIMEOUT, -9, 3, "a peer missed its deadline")                                                                \
    X(ERR_DIVERGED, -10, 1, "the loss is not finite")                                                                  \
    X(ERR_STOPPED, -11, 1, "stopped by a signal")

#define LS_STATUS_ENUM(name, value, exit_code, text) LS_##name = (value),
typedef enum ls_status { LS_STATUS_MAP(LS_STATUS_ENUM) } ls_status;
#undef LS_STATUS_ENUM

/* The text of the map above; never NULL, "unknown status" for a value that is not in it. */
const char *ls_status_text(ls_status status);

/* 0 for LS_OK, else 1 (failed), 2 (wrong usage) or 3 (a peer failed or timed out). */
int ls_status_exit_code(ls_status status);

#endif
