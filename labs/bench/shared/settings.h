/* What command lines of several options have in common. */
#ifndef LABS_BENCH_SHARED_SETTINGS_H
#define LABS_BENCH_SHARED_SETTINGS_H

#include <stdbool.h>

#include "common/base/options.h"

/* The rows of a command line, added table by table, so that each table's function fits on a screen; at first
 * zero-filled. */
enum { BENCH_OPTIONS_MAX = 32 };
typedef struct bench_options {
    ls_option rows[BENCH_OPTIONS_MAX];
    size_t count;
} bench_options;

#define BENCH_ADD_OPTIONS(options, table) bench_add_options(options, table, sizeof(table) / sizeof *(table))
void bench_add_options(bench_options *options, const ls_option *table, size_t count);

/* *help: the usage page was printed, and nothing else is to be done. LS_ERR_USAGE after one line. */
ls_status bench_parse_options(const bench_options *options, const char *purpose, int argc, char **argv, bool *help);

/* Ascending, each once. */
void bench_sort_numbers(ls_int_list *list);

#endif
