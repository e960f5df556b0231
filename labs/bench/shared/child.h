/* One child process, run to its end. */
#ifndef LABS_BENCH_SHARED_CHILD_H
#define LABS_BENCH_SHARED_CHILD_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

enum { BENCH_CHILD_OUT_CAPACITY = 1 << 17, BENCH_CHILD_ERR_CAPACITY = 1 << 13 };

/* The last bytes that the child wrote to stdout and to stderr, NUL-terminated. */
typedef struct bench_output {
    size_t out_nbytes, err_nbytes;
    char out[BENCH_CHILD_OUT_CAPACITY], err[BENCH_CHILD_ERR_CAPACITY];
} bench_output;

/* The last line of a text, terminated in place, whether or not it ends in a newline. "" if there is none. */
const char *bench_last_line(char *text);

enum { BENCH_PATH_CAPACITY = 4096 + 16 };

/* The path of a program that is built beside this one (this one may also be a test, which is one folder below).
 * LS_ERR_IO. */
ls_status bench_find_program(char path[BENCH_PATH_CAPACITY], const char *name);

/* The path of a program in a folder of PATH, or of a name that is a path; false: there is none. */
bool bench_find_tool(char path[BENCH_PATH_CAPACITY], const char *name);

/* Runs argv[0], a path, to its end. Returns
 *     LS_OK           it exited with 0
 *     LS_ERR_USAGE    with 2
 *     LS_ERR_TIMEOUT  it was ended because it ran longer than timeout_s
 *     LS_ERR_STOPPED  SIGINT, SIGTERM or SIGHUP arrived, and a handler has returned
 *     LS_ERR_SYSTEM   it failed otherwise
 *     LS_ERR_IO       it cannot be started
 * after one line with the command and the child's last error message. Such a signal ends the child within a second or
 * so, and then acts on this process: without a handler, it kills this process. A child that is ended leaves no process
 * behind; if this process is killed, the kernel kills the child. Call it while the process has no other threads, and
 * starts no other children; existing children are not affected. */
ls_status bench_child_run(char *const *argv, double timeout_s, bench_output *output);

/* The number `name` in the summary that a child wrote; NAN if there is none. */
double bench_number_of(const cJSON *object, const char *name);

#endif
