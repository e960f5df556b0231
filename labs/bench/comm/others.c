/* others: Open MPI's and gloo's all_reduce, measured in the same way by separate programs:
 * labs/bench/peers/bench_mpi.c, which mpicc builds if it is installed, and labs/bench/peers/bench_gloo.py, which needs
 * a python3 with torch.
 *   terms : both get RUNS RUN_MS CACHE_BYTES SIZE... and print
 *               library,NAME AND VERSION
 *               run,BYTES,ITERATIONS,MICROSECONDS       for each size and run: the slowest rank's time per operation
 *           or one line absent,REASON. They check their results themselves */
#define _GNU_SOURCE
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "labs/bench/comm/bench_comm.h"
#include "labs/bench/shared/child.h"

enum { ARGUMENTS_MAX = 24 + COMM_SIZES_MAX, ARGUMENT_CAPACITY = 32 };

#define GLOO_PYTHON "/usr/bin/python3"
#define GLOO_SCRIPT "labs/bench/peers/bench_gloo.py"

/* Seconds that a program may take to start and to stop, in addition to the runs. */
#define START_S 120.0

struct command {
    int count;
    char *argv[ARGUMENTS_MAX];
    char text[ARGUMENTS_MAX][ARGUMENT_CAPACITY];
    char program[PATH_MAX], launcher[BENCH_PATH_CAPACITY];
};

static void add(struct command *command, const char *format, ...) LS_PRINTF(2, 3);

static void add(struct command *command, const char *format, ...) {
    char *text = command->text[command->count];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, ARGUMENT_CAPACITY, format, arguments);
    va_end(arguments);
    command->argv[command->count++] = text;
}

static void add_measure(struct command *command, const comm_settings *settings, int runs) {
    add(command, "%d", runs);
    add(command, "%g", settings->run_ms);
    add(command, "%zu", settings->cache_bytes);
    for (int s = 0; s < settings->size_count; s++) add(command, "%zu", settings->sizes[s]);
}

/* --- what there is --------------------------------------------------------------------------------------------------- */

/* build/bench_mpi, beside this program. */
static bool find_bench_mpi(char path[PATH_MAX]) {
    ssize_t nbytes = readlink("/proc/self/exe", path, PATH_MAX - 16);
    if (nbytes <= 0) return false;
    path[nbytes] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    snprintf(slash, 16, "/bench_mpi");
    return access(path, X_OK) == 0;
}

static bool make_mpi(struct command *command, const comm_settings *settings, int n, int runs) {
    if (!bench_find_tool(command->launcher, "mpirun") || !find_bench_mpi(command->program)) return false;
    command->argv[command->count++] = command->launcher;
    if (geteuid() == 0) add(command, "--allow-run-as-root");
    add(command, "--oversubscribe");
    add(command, "-n");
    add(command, "%d", n);
    command->argv[command->count++] = command->program;
    add_measure(command, settings, runs);
    return true;
}

static bool make_gloo(struct command *command, const comm_settings *settings, int n, int runs) {
    if (access(GLOO_PYTHON, X_OK) != 0 || access(GLOO_SCRIPT, R_OK) != 0) return false;
    snprintf(command->launcher, sizeof command->launcher, "%s", GLOO_PYTHON);
    snprintf(command->program, sizeof command->program, "%s", GLOO_SCRIPT);
    command->argv[command->count++] = command->launcher;
    command->argv[command->count++] = command->program;
    add(command, "%d", n);
    add_measure(command, settings, runs);
    return true;
}

static const struct other {
    const char *name, *missing;
    bool (*make)(struct command *command, const comm_settings *settings, int n, int runs);
} libraries[] = {
    {"Open MPI", "Open MPI (packages libopenmpi-dev, openmpi-bin)", make_mpi},
    {"gloo", "gloo (package python3-torch)", make_gloo},
};

/* --- what they say --------------------------------------------------------------------------------------------------- */

/* The row of that size, added if necessary; NULL if the size is not measured. */
static comm_row *row_of(comm_results *results, const char *library, int n, size_t nbytes) {
    const comm_settings *settings = results->settings;
    for (int i = 0; i < results->other_count; i++) {
        comm_row *row = &results->others[i];
        if (row->nbytes == nbytes && row->n == n && strcmp(row->library, library) == 0) return row;
    }
    int size_index = 0;
    while (size_index < settings->size_count && settings->sizes[size_index] != nbytes) size_index++;
    if (size_index == settings->size_count || results->other_count == results->other_capacity) return NULL;
    comm_row *row = &results->others[results->other_count++];
    *row = (comm_row){.variant = COMM_SHM_PRIVATE,
                      .size_index = size_index,
                      .operation = comm_operation_find("all_reduce"),
                      .n = n,
                      .count = nbytes / 4,
                      .nbytes = nbytes,
                      .oversubscribed = n > settings->cores,
                      .checked = true};
    snprintf(row->library, sizeof row->library, "%s", library);
    return row;
}

/* LS_ERR_FORMAT unless every size has all its runs. */
static ls_status take_lines(comm_results *results, char *text, const char *name, int n, int runs, bool *absent) {
    char library[COMM_LIBRARY_CAPACITY] = "";
    int taken = 0, expected = runs * results->settings->size_count;
    *absent = false;
    for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        size_t nbytes;
        int iterations;
        double run_us;
        if (strncmp(line, "absent,", 7) == 0) *absent = true;
        if (strncmp(line, "library,", 8) == 0) snprintf(library, sizeof library, "%.60s", line + 8);
        if (sscanf(line, "run,%zu,%d,%lf", &nbytes, &iterations, &run_us) != 3) continue;
        comm_row *row = row_of(results, library, n, nbytes);
        if (!row || row->run_count == results->settings->runs) break;
        row->run_us[row->run_count++] = run_us;
        row->iterations = iterations;
        taken++;
    }
    if (*absent || taken == expected) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "%s with N %d reported %d runs, not %d", name, n, taken, expected);
}

static ls_status run_one(comm_results *results, const struct other *library, int n, int runs, bool *absent) {
    const comm_settings *settings = results->settings;
    struct command *command = calloc(1, sizeof *command);
    bench_output *output = malloc(sizeof *output);
    ls_status status = LS_OK;
    if (!command || !output) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to run %s", library->name);
    *absent = status == LS_OK && !library->make(command, settings, n, runs);
    if (status == LS_OK && !*absent) {
        double limit_s = START_S + 0.2 * settings->run_ms * runs * settings->size_count;
        ls_note("%s, N %d", library->name, n);
        status = bench_child_run(command->argv, limit_s, output);
        if (status == LS_OK) status = take_lines(results, output->out, library->name, n, runs, absent);
    }
    free(command);
    free(output);
    return status;
}

ls_status comm_run_others(comm_results *results, int n, int round) {
    int runs = comm_first_run(results->settings, round + 1) - comm_first_run(results->settings, round);
    ls_status status = LS_OK;
    for (size_t l = 0; status == LS_OK && runs > 0 && l < sizeof libraries / sizeof *libraries; l++) {
        bool absent = strstr(results->absent, libraries[l].missing) != NULL;
        if (absent) continue;
        status = run_one(results, &libraries[l], n, runs, &absent);
        size_t nbytes = strlen(results->absent);
        if (absent)
            snprintf(results->absent + nbytes, sizeof results->absent - nbytes, "%s%s", nbytes ? ", " : "",
                     libraries[l].missing);
    }
    for (int i = 0; i < results->other_count; i++) comm_assemble(&results->others[i]);
    return status;
}
