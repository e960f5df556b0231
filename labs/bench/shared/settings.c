#include "labs/bench/shared/settings.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

void bench_add_options(bench_options *options, const ls_option *table, size_t count) {
    if (options->count + count <= BENCH_OPTIONS_MAX)
        memcpy(options->rows + options->count, table, count * sizeof *table);
    options->count += count;
}

ls_status bench_parse_options(const bench_options *options, const char *purpose, int argc, char **argv, bool *help) {
    const ls_command command = {.purpose = purpose, .options = options->rows, .count = options->count};
    ls_parsed parsed;
    if (options->count > BENCH_OPTIONS_MAX)
        return ls_fail(LS_ERR_INVALID, "BENCH_OPTIONS_MAX is too small for %zu rows", options->count);
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    *help = status == LS_OK && parsed.help;
    return status;
}

static int compare_ints(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

void bench_sort_numbers(ls_int_list *list) {
    int kept = 0;
    qsort(list->values, (size_t)list->count, sizeof list->values[0], compare_ints);
    for (int i = 0; i < list->count; i++)
        if (i == 0 || list->values[i] != list->values[kept - 1]) list->values[kept++] = list->values[i];
    list->count = kept;
}
