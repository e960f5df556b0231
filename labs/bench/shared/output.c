#define _GNU_SOURCE
#include "labs/bench/shared/output.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/log.h"

/* --- texts ------------------------------------------------------------------------------------------------------- */

FILE *bench_text_open(bench_text *text) {
    *text = (bench_text){.text = NULL};
    return text->file = open_memstream(&text->text, &text->nbytes);
}

char *bench_text_close(bench_text *text) {
    bool whole = !ferror(text->file);
    if (fclose(text->file) == 0 && whole) return text->text;
    free(text->text);
    return NULL;
}

char *bench_text_of(bench_put *put, const void *results) {
    bench_text written;
    FILE *file = bench_text_open(&written);
    ls_status status = file ? put(file, results) : LS_OK;
    char *text = file ? bench_text_close(&written) : NULL;
    if (text && status == LS_OK) return text;
    if (status == LS_OK) ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the results' text");
    free(text);
    return NULL;
}

ls_status bench_put_json(FILE *file, cJSON *object) {
    char *text = cJSON_Print(object);
    cJSON_Delete(object);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the JSON");
    fputs(text, file);
    cJSON_free(text);
    return LS_OK;
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static ls_status find_path(char path[PATH_MAX], const char *folder, const char *name) {
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX) return LS_OK;
    return ls_fail(LS_ERR_IO, "the folder's name is too long: %.60s...", folder);
}

ls_status bench_write_to(const char *path, bench_put *put, const void *results) {
    char *text = bench_text_of(put, results);
    ls_status status = text ? ls_file_write_text(path, text) : LS_ERR_NO_MEMORY;
    free(text);
    return status;
}

ls_status bench_write_outputs(const char *folder, const bench_file *outputs, const void *results) {
    char path[PATH_MAX];
    ls_status status = LS_OK;
    for (; status == LS_OK && outputs->name; outputs++) {
        if (!outputs->put) continue;
        status = find_path(path, folder, outputs->name);
        if (status == LS_OK) status = bench_write_to(path, outputs->put, results);
    }
    return status;
}

ls_status bench_prepare_folder(ls_named_files *files, const char *folder, const bench_file *outputs) {
    char path[PATH_MAX];
    for (const bench_file *file = outputs; file->name; file++)
        ls_named_files_add_outputs(files, "--out", folder, &file->name, 1);
    ls_status status = ls_named_files_check(files);
    if (status == LS_OK && folder) status = ls_make_folders(folder);
    for (; status == LS_OK && folder && outputs->name; outputs++) {
        status = find_path(path, folder, outputs->name);
        if (status == LS_OK) status = ls_file_check(path);
    }
    return status;
}
