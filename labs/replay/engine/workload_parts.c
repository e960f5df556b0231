#include "labs/replay/engine/workload_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

struct ls_workload_note {
    struct ls_workload_note *next;
    char text[];
};

struct ls_workload_parts *ls_workload_begin(void) {
    struct ls_workload_parts *parts = calloc(1, sizeof *parts);
    if (!parts) {
        (void)ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a workload");
        return NULL;
    }
    parts->workload.name = parts->workload.source = "";
    parts->workload.samples = 1;
    parts->workload.storage = parts;
    return parts;
}

const char *ls_workload_text(struct ls_workload_parts *parts, const char *text) {
    size_t nbytes = strlen(text) + 1;
    struct ls_workload_note *note = malloc(sizeof *note + nbytes);
    if (!note) {
        parts->failed = true;
        return "";
    }
    memcpy(note->text, text, nbytes);
    note->next = parts->texts;
    parts->texts = note;
    return note->text;
}

/* Makes room for one more item in an array that grows by half; false: out of memory. */
static bool make_room(struct ls_workload_parts *parts, void *array, size_t item_nbytes, int count, size_t *room) {
    if (parts->failed) return false;
    if ((size_t)count < *room) return true;
    size_t wider = *room + *room / 2 + 16;
    void *items;
    memcpy(&items, array, sizeof items);
    items = realloc(items, wider * item_nbytes);
    parts->failed = !items;
    if (!items) return false;
    memcpy(array, &items, sizeof items);
    *room = wider;
    return true;
}

void ls_workload_add_work(struct ls_workload_parts *parts, const struct ls_work *work) {
    ls_workload *w = &parts->workload;
    if (!make_room(parts, &w->work, sizeof *w->work, w->work_count, &parts->work_room)) return;
    w->work[w->work_count++] = *work;
}

/* Names and counts have one common capacity. */
int ls_workload_add_parameter(struct ls_workload_parts *parts, const char *name, uint64_t count) {
    ls_workload *w = &parts->workload;
    size_t room = parts->parameter_room;
    if (!make_room(parts, (void *)&w->parameter_names, sizeof *w->parameter_names, w->parameter_count, &room)) return 0;
    if (!make_room(parts, &w->parameter_counts, sizeof *w->parameter_counts, w->parameter_count,
                   &parts->parameter_room)) {
        return 0;
    }
    w->parameter_names[w->parameter_count] = ls_workload_text(parts, name);
    w->parameter_counts[w->parameter_count] = count;
    return w->parameter_count++;
}

void ls_workload_add_ready(struct ls_workload_parts *parts, int parameter) {
    ls_workload *w = &parts->workload;
    if (!make_room(parts, &w->ready, sizeof *w->ready, w->ready_count, &parts->ready_room)) return;
    w->ready[w->ready_count++] = parameter;
}

bool ls_workload_kernel_is(const char *name, const char *kind) { return strncmp(name, kind, strlen(kind)) == 0; }

bool ls_workload_kernel_is_product(const char *name) {
    return ls_workload_kernel_is(name, "gemm") || ls_workload_kernel_is(name, "conv2d") ||
           ls_workload_kernel_is(name, "attention");
}

ls_status ls_workload_finish(struct ls_workload_parts *parts, ls_status status, ls_workload **out) {
    *out = NULL;
    if (status == LS_OK && parts->failed) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a workload");
    if (status != LS_OK) {
        ls_workload_close(&parts->workload);
        return status;
    }
    *out = &parts->workload;
    return LS_OK;
}

void ls_workload_close(ls_workload *workload) {
    if (!workload) return;
    struct ls_workload_parts *parts = workload->storage;
    while (parts->texts) {
        struct ls_workload_note *note = parts->texts;
        parts->texts = note->next;
        free(note);
    }
    free(workload->work);
    free(workload->layers);
    free((void *)workload->parameter_names);
    free(workload->parameter_counts);
    free(workload->ready);
    free(workload->step_us);
    free(parts);
}

uint64_t ls_workload_whole(double value) { return value < 9e18 ? (uint64_t)llround(value) : (uint64_t)9e18; }

uint64_t ls_workload_parameters(const ls_workload *workload) {
    uint64_t sum = 0;
    for (int p = 0; p < workload->parameter_count; p++) sum += workload->parameter_counts[p];
    return sum;
}
