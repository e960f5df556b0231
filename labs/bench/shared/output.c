#define _GNU_SOURCE
#include "labs/bench/shared/output.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/log.h"

/* --- files ------------------------------------------------------------------------------------------------------- */

ls_status bench_write_path(const char *path, const char *text) {
    return text ? ls_file_write_text(path, text) : ls_file_check(path);
}

ls_status bench_write_file(const char *folder, const char *name, const char *text) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return ls_fail(LS_ERR_IO, "the folder's name is too long: %.60s...", folder);
    }
    return bench_write_path(path, text);
}

ls_status bench_prepare_folder(ls_named_files *files, const char *folder, const char *const *names, int count) {
    char path[PATH_MAX];
    ls_named_files_add_outputs(files, "--out", folder, names, count);
    ls_status status = ls_named_files_check(files);
    if (status != LS_OK) return status;
    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path) {
        return ls_fail(LS_ERR_IO, "the folder's name is too long: %.60s...", folder);
    }
    for (char *at = path + 1;; at++) {
        char ended = *at;
        if (ended != '/' && ended != '\0') continue;
        *at = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST) {
            return ls_fail(LS_ERR_IO, "cannot make the folder %s: %s", path, strerror(errno));
        }
        if (ended == '\0') break;
        *at = ended;
    }
    for (int i = 0; status == LS_OK && i < count; i++) status = bench_write_file(folder, names[i], NULL);
    return status;
}

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

/* --- CSV --------------------------------------------------------------------------------------------------------- */

void bench_put_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

void bench_put_number(FILE *file, double value) {
    fputc(',', file);
    if (isfinite(value)) fprintf(file, "%.9g", value);
}

void bench_put_machine_head(FILE *file) { fputs(",cores,cpu,system,compiler,onednn,commit,date", file); }

void bench_put_machine(FILE *file, const bench_machine *machine) {
    const char *const texts[] = {machine->cpu,    machine->system, machine->compiler,
                                 machine->onednn, machine->commit, machine->date};
    fprintf(file, ",%d", machine->cores);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fputc(',', file);
        bench_put_text(file, texts[i]);
    }
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

void bench_add_number(cJSON *object, const char *name, double value) {
    if (isfinite(value)) {
        cJSON_AddNumberToObject(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

cJSON *bench_machine_object(const bench_machine *machine) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "cpu", machine->cpu);
    bench_add_number(object, "cores", machine->cores);
    bench_add_number(object, "load_before", machine->load < 0 ? NAN : machine->load);
    cJSON_AddStringToObject(object, "system", machine->system);
    cJSON_AddStringToObject(object, "compiler", machine->compiler);
    cJSON_AddStringToObject(object, "onednn", machine->onednn);
    cJSON_AddStringToObject(object, "commit", machine->commit);
    cJSON_AddStringToObject(object, "date", machine->date);
    return object;
}
