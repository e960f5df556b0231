/* A trace file. A trace that was read is sealed or rejected with a reason, without access outside its tables; a sealed
 * trace can be written, read, and written again, with the same bytes. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/trace/chrome.h"
#include "tests/fuzz/targets/targets.h"

static char folder[PATH_MAX], path[PATH_MAX + 16];

static void remove_folder(void) {
    unlink(path);
    rmdir(folder);
}

static void make_folder(void) {
    const char *above = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/fuzz-XXXXXX", above ? above : "/tmp");
    fuzz_require(mkdtemp(folder) != NULL, "this test can make a folder");
    snprintf(path, sizeof path, "%s/trace.json", folder);
    atexit(remove_folder);
}

/* Reads and seals; NULL if rejected. */
static ls_trace *read_trace(const char *text, size_t nbytes) {
    ls_trace *trace;
    if (ls_trace_create(&trace) != LS_OK) return NULL;
    if (ls_trace_read_text(trace, "fuzz", text, nbytes) == LS_OK && ls_trace_seal(trace) == LS_OK) return trace;
    ls_trace_destroy(trace);
    return NULL;
}

static char *write_trace(const ls_trace *trace, size_t *nbytes) {
    fuzz_require(ls_trace_write_file(trace, path) == LS_OK, "what was read can be written");
    FILE *file = fopen(path, "rb");
    fuzz_require(file != NULL && fseek(file, 0, SEEK_END) == 0, "what was written is there");
    *nbytes = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*nbytes + 1);
    fuzz_require(text != NULL && fread(text, 1, *nbytes, file) == *nbytes, "what was written can be read");
    fclose(file);
    return text;
}

static void look_around(const ls_trace *trace) {
    int count, lists = 0, tasks = ls_trace_task_count(trace);
    for (int i = 0; i < tasks; i++) {
        fuzz_require(ls_trace_task(trace, i)->lane < ls_trace_lane_count(trace), "a task has a lane");
        (void)ls_trace_before(trace, i, &count);
        lists += count;
        (void)ls_trace_after(trace, i, &count);
        lists -= count;
    }
    fuzz_require(lists == 0, "every edge has two ends");
    const struct ls_trace_about *about = ls_trace_what(trace);
    fuzz_require(about->steps >= 1 && about->steps <= tasks, "there is a task in every step");
    for (int i = 0; i < ls_trace_lane_count(trace); i++) {
        const struct ls_lane *lane = ls_trace_lane(trace, i);
        fuzz_require(lane->rank < about->world_size && lane->device < about->devices, "a lane is of the run's devices");
    }
    for (int i = 0; i < tasks; i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        fuzz_require(task->from < about->devices && task->to < about->devices, "copies are between the run's devices");
        fuzz_require(task->us == -1 || task->us >= 0, "a duration is known or not");
    }
}

void fuzz_trace(const uint8_t *data, size_t nbytes) {
    if (folder[0] == '\0') make_folder();
    ls_trace *trace = read_trace((const char *)data, nbytes);
    if (!trace) return;
    look_around(trace);
    size_t first_nbytes, second_nbytes;
    char *first = write_trace(trace, &first_nbytes);
    ls_trace_destroy(trace);
    trace = read_trace(first, first_nbytes);
    fuzz_require(trace != NULL, "what was written is taken");
    char *second = write_trace(trace, &second_nbytes);
    fuzz_require(first_nbytes == second_nbytes && memcmp(first, second, first_nbytes) == 0, "it is the same again");
    ls_trace_destroy(trace);
    free(first);
    free(second);
}
