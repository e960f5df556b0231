/* reference — the lines of a log as one object, as plots/reference keeps them:
 *     how, date, commit, machine, gpu (with the versions of driver, cuBLAS and NCCL), peaks, operations, steps, checks
 * A truncated log gives an object of its complete lines. */
#include <stdio.h>
#include <string.h>

#include "labs/bench/gpu_check/gpu_check.h"
#include "labs/bench/shared/output.h"

/* Adds the figures of each line of a stage that has any. */
static void add_rows(cJSON *array, const cJSON *lines, const char *stage) {
    const cJSON *line;
    cJSON_ArrayForEach(line, lines) {
        const cJSON *figures = cJSON_GetObjectItemCaseSensitive(line, "figures");
        if (figures && strcmp(gpu_check_text(line, "stage"), stage) == 0)
            cJSON_AddItemToArray(array, cJSON_Duplicate(figures, true));
    }
}

static void add_checks(cJSON *root, const cJSON *lines) {
    cJSON *checks = cJSON_AddArrayToObject(root, "checks");
    const cJSON *line;
    cJSON_ArrayForEach(line, lines) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "stage", gpu_check_text(line, "stage"));
        cJSON_AddStringToObject(row, "check", gpu_check_text(line, "name"));
        cJSON_AddStringToObject(row, "verdict", gpu_check_text(line, "verdict"));
        cJSON_AddStringToObject(row, "detail", gpu_check_text(line, "detail"));
        cJSON_AddItemToArray(checks, row);
    }
}

static ls_status put(FILE *file, const void *lines) {
    const cJSON *machine = cJSON_GetObjectItemCaseSensitive(gpu_check_find_line(lines, "run", "machine"), "figures");
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "how", "measured");
    cJSON_AddStringToObject(root, "date", gpu_check_text(machine, "date"));
    cJSON_AddStringToObject(root, "commit", gpu_check_text(machine, "commit"));
    cJSON_AddItemToObject(root, "gpu", gpu_check_merge(lines, "look"));
    cJSON_AddItemToObject(root, "machine", machine ? cJSON_Duplicate(machine, true) : cJSON_CreateObject());
    cJSON_AddItemToObject(root, "peaks", gpu_check_merge(lines, "peaks"));
    add_rows(cJSON_AddArrayToObject(root, "operations"), lines, "rates");
    cJSON *steps = cJSON_AddArrayToObject(root, "steps");
    add_rows(steps, lines, "steps");
    add_rows(steps, lines, "matrix");
    add_checks(root, lines);
    return bench_put_json(file, root);
}

ls_status gpu_check_write_reference(const cJSON *lines, const char *path) { return bench_write_to(path, put, lines); }
