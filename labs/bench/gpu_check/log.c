/* log — a line of JSON for each result, appended at once by one write(2), by this process or by a child. The screen
 * output is read from the file, so the two cannot differ. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "labs/bench/gpu_check/gpu_check.h"

enum { MOST_BYTES = 1 << 24 };

static const char *verdict_text(gpu_check_verdict verdict) {
#define NAME(name, text) text,
    static const char *const texts[] = {GPU_CHECK_VERDICT_MAP(NAME) ""};
#undef NAME
    return texts[verdict];
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static bool append(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    size_t nbytes = strlen(text);
    bool written = fd >= 0 && write(fd, text, nbytes) == (ssize_t)nbytes;
    if (fd >= 0 && close(fd) != 0) written = false;
    return written;
}

void gpu_check_say(gpu_check *check, const char *name, gpu_check_verdict verdict, double seconds, cJSON *figures,
                   const char *format, ...) {
    char detail[2 * GPU_CHECK_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "stage", gpu_check_stage_name(check->stage));
    cJSON_AddStringToObject(line, "name", name);
    cJSON_AddStringToObject(line, "verdict", verdict_text(verdict));
    if (seconds >= 0) cJSON_AddNumberToObject(line, "seconds", round(seconds * 1e3) * 1e-3);
    if (detail[0]) cJSON_AddStringToObject(line, "detail", detail);
    if (figures) cJSON_AddItemToObject(line, "figures", figures);
    char *json = cJSON_PrintUnformatted(line), *text = NULL;
    cJSON_Delete(line);
    bool written = json && asprintf(&text, "%s\n", json) > 0 && append(check->path, text);
    if (!written && !check->log_failed) ls_report_error("cannot write %s: %s", check->path, ls_write_error(errno));
    check->log_failed |= !written;
    free(json);
    free(text);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

const char *gpu_check_text(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

gpu_check_verdict gpu_check_verdict_in(const cJSON *line) {
    int verdict = 0;
    while (verdict < GPU_CHECK_VERDICTS &&
           strcmp(gpu_check_text(line, "verdict"), verdict_text((gpu_check_verdict)verdict)) != 0)
        verdict++;
    return (gpu_check_verdict)verdict;
}

const cJSON *gpu_check_find_line(const cJSON *lines, const char *stage, const char *name) {
    const cJSON *line;
    cJSON_ArrayForEach(line, lines) {
        if (strcmp(gpu_check_text(line, "stage"), stage) == 0 && strcmp(gpu_check_text(line, "name"), name) == 0)
            return line;
    }
    return NULL;
}

double gpu_check_figure(const cJSON *line, const char *name) {
    return cJSON_GetNumberValue(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(line, "figures"), name));
}

cJSON *gpu_check_merge(const cJSON *lines, const char *stage) {
    cJSON *merged = cJSON_CreateObject();
    const cJSON *line, *figure;
    cJSON_ArrayForEach(line, lines) {
        if (strcmp(gpu_check_text(line, "stage"), stage) != 0) continue;
        cJSON_ArrayForEach(figure, cJSON_GetObjectItemCaseSensitive(line, "figures"))
            cJSON_AddItemToObject(merged, figure->string, cJSON_Duplicate(figure, true));
    }
    return merged;
}

/* A valid line has these three; any other, such as a truncated line, is ignored. */
static cJSON *parse_line(const char *text) {
    cJSON *line = cJSON_Parse(text);
    bool whole = gpu_check_text(line, "stage")[0] && gpu_check_text(line, "name")[0] &&
                 gpu_check_verdict_in(line) != GPU_CHECK_VERDICTS;
    if (whole) return line;
    cJSON_Delete(line);
    return NULL;
}

/* Takes the line, in place of an older one of the same stage and name; a "not run" line does not replace an older
 * one. */
static void take_line(cJSON *lines, cJSON *line) {
    const cJSON *older = gpu_check_find_line(lines, gpu_check_text(line, "stage"), gpu_check_text(line, "name"));
    if (older && gpu_check_verdict_in(line) == GPU_CHECK_NOT_RUN) {
        cJSON_Delete(line);
        return;
    }
    if (older) cJSON_Delete(cJSON_DetachItemViaPointer(lines, (cJSON *)(uintptr_t)older));
    cJSON_AddItemToArray(lines, line);
}

ls_status gpu_check_read(const char *path, cJSON **lines) {
    char *text, *rest;
    size_t nbytes;
    *lines = NULL;
    ls_status status = ls_file_read(path, MOST_BYTES, &text, &nbytes);
    if (status != LS_OK) return status;
    *lines = cJSON_CreateArray();
    for (char *at = strtok_r(text, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        cJSON *line = parse_line(at);
        if (line) take_line(*lines, line);
    }
    free(text);
    return LS_OK;
}

/* --- showing ------------------------------------------------------------------------------------------------------ */

/* Items without time left are not shown: the summary counts them. */
static void show_line(const cJSON *line) {
    const cJSON *seconds = cJSON_GetObjectItemCaseSensitive(line, "seconds"), *figure;
    if (!seconds && gpu_check_verdict_in(line) == GPU_CHECK_NOT_RUN) return;
    printf("%-9s %-20s", gpu_check_text(line, "stage"), gpu_check_text(line, "verdict"));
    seconds ? printf(" %6.1f s  ", seconds->valuedouble) : printf("%11s", "");
    printf("%s", gpu_check_text(line, "name"));
    if (gpu_check_text(line, "detail")[0]) printf(": %s", gpu_check_text(line, "detail"));
    const char *mark = ": ";
    cJSON_ArrayForEach(figure, cJSON_GetObjectItemCaseSensitive(line, "figures")) {
        if (!cJSON_IsNumber(figure)) continue;
        printf("%s%s %.5g", mark, figure->string, figure->valuedouble);
        mark = ", ";
    }
    printf("\n");
}

void gpu_check_show(gpu_check *check) {
    FILE *file = fopen(check->path, "re");
    char *text = NULL;
    size_t capacity = 0;
    if (file && fseek(file, check->shown_nbytes, SEEK_SET) == 0) {
        for (ssize_t nbytes; (nbytes = getline(&text, &capacity, file)) > 0 && text[nbytes - 1] == '\n';) {
            check->shown_nbytes += nbytes;
            cJSON *line = parse_line(text);
            if (line) show_line(line);
            cJSON_Delete(line);
        }
    }
    free(text);
    if (file) fclose(file);
    fflush(stdout);
}
