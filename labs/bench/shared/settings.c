#include "labs/bench/shared/settings.h"

#include <stdlib.h>

ls_status bench_parse_options(const ls_option *table, size_t count, const char *purpose, int argc, char **argv,
                              bool *help) {
    ls_parsed parsed;
    ls_status status =
        ls_options_parse(&(ls_command){.purpose = purpose, .options = table, .count = count}, argc, argv, &parsed);
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
