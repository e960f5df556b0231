/* Common parts of command lines. */
#ifndef LABS_BENCH_SHARED_SETTINGS_H
#define LABS_BENCH_SHARED_SETTINGS_H

#include <stdbool.h>

#include "common/base/options.h"

/* A command line without operands. *help: the usage page was printed, and nothing else is to be done. LS_ERR_USAGE after
 * one line. */
#define BENCH_PARSE(table, purpose, argc, argv, help)                                                                  \
    bench_parse_options(table, sizeof(table) / sizeof *(table), purpose, argc, argv, help)
ls_status bench_parse_options(const ls_option *table, size_t count, const char *purpose, int argc, char **argv,
                              bool *help);

/* Sorts the list, and removes duplicates. */
void bench_sort_numbers(ls_int_list *list);

#endif
