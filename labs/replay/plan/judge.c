/* judge: rows -> their order, and the answers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/plan/planner.h"

static int compare(double left, double right) { return (left > right) - (left < right); }

/* Equal rows keep the list's order (simplest combination first), which is the order of their addresses. */
static int compare_rows(const void *left, const void *right) {
    const planner_row *a = *(planner_row *const *)left, *b = *(planner_row *const *)right;
    if (a->verdict != b->verdict) return (int)a->verdict - (int)b->verdict;
    int order = a->verdict == PLANNER_FITS        ? compare(a->step_ms, b->step_ms)
                : a->verdict == PLANNER_TOO_LARGE ? compare(a->over_bytes, b->over_bytes)
                                                  : 0;
    if (order == 0 && a->verdict == PLANNER_FITS) order = compare(a->total_bytes, b->total_bytes);
    return order != 0 ? order : (a > b) - (a < b);
}

ls_status planner_sort(planner_results *results) {
    size_t count = (size_t)results->count;
    planner_row **order = malloc((count + 1) * sizeof *order), *sorted = malloc((count + 1) * sizeof *sorted);
    for (size_t i = 0; order && sorted && i < count; i++) order[i] = &results->rows[i];
    if (order && sorted) {
        qsort(order, count, sizeof *order, compare_rows);
        for (size_t i = 0; i < count; i++) sorted[i] = *order[i];
        memcpy(results->rows, sorted, count * sizeof *sorted);
    }
    ls_status status =
        order && sorted ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to sort %zu combinations", count);
    free(order);
    free(sorted);
    return status;
}

const planner_row *planner_fastest(const planner_results *results) {
    return results->count > 0 && results->rows[0].verdict == PLANNER_FITS ? &results->rows[0] : NULL;
}

const planner_row *planner_smallest(const planner_results *results) {
    const planner_row *smallest = NULL;
    for (const planner_row *row = results->rows; row < results->rows + results->count; row++)
        if (!isnan(row->total_bytes) && (!smallest || row->total_bytes < smallest->total_bytes)) smallest = row;
    return smallest;
}

int planner_count(const planner_results *results, planner_verdict verdict) {
    int count = 0;
    for (int i = 0; i < results->count; i++) count += results->rows[i].verdict == verdict;
    return count;
}

double planner_gradients(const planner_row *row) {
    return row->bytes[LS_MEMORY_GRADIENT] + row->bytes[LS_MEMORY_BUCKET];
}

double planner_others(const planner_row *row) {
    return row->bytes[LS_MEMORY_INPUT] + row->bytes[LS_MEMORY_GATHERED_OUTPUT] + row->bytes[LS_MEMORY_WORKSPACE];
}

const char *planner_largest(const planner_row *row) {
    const struct {
        const char *name;
        double bytes;
    } parts[] = {{"parameters", row->bytes[LS_MEMORY_PARAMETER]},
                 {"gradients", planner_gradients(row)},
                 {"optimizer state", row->bytes[LS_MEMORY_OPTIMIZER]},
                 {"activations", row->bytes[LS_MEMORY_ACTIVATION]},
                 {"other memory", planner_others(row)}};
    size_t largest = 0;
    for (size_t i = 1; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].bytes > parts[largest].bytes) largest = i;
    return parts[largest].name;
}
