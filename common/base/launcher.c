#define _GNU_SOURCE
#include "common/base/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

/* --- the launchers ---------------------------------------------------------------------------------------------------- */

typedef struct launcher_row {
    const char *name;
    const char *variables[LS_PLACE_COUNT][2]; /* rank, size, local rank, local size; the first of the two that is set */
    const char *job[2];                       /* both together name the job; NULL: what there is */
} launcher_row;

/* RANK comes first. srun comes last: mpirun and mpiexec start their own processes through it, and those then have its
 * variables too. */
static const launcher_row launchers[] = {
    {"a launcher", {{"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}}, {"LS_JOB"}},
    {"mpirun",
     {{"OMPI_COMM_WORLD_RANK"},
      {"OMPI_COMM_WORLD_SIZE"},
      {"OMPI_COMM_WORLD_LOCAL_RANK"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"mpiexec",
     {{"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}},
     {NULL}},
    {"srun",
     {{"SLURM_PROCID"}, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_LOCALID"}, {NULL}},
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};
enum { LAUNCHER_COUNT = sizeof launchers / sizeof launchers[0], BY_RANK_VARIABLE = 0, SRUN = LAUNCHER_COUNT - 1 };

static ls_place read_place(const launcher_row *row, ls_place_kind kind) {
    for (int i = 0; i < 2; i++) {
        const char *variable = row->variables[kind][i];
        const char *text = variable ? getenv(variable) : NULL;
        if (text) return (ls_place){variable, text};
    }
    return (ls_place){0};
}

/* The script of a batch job and an interactive shell have Slurm's variables, too, rank 0 and the whole job's size
 * among them, but have not been started by srun: they are no step, or one of the numbers from 2^32 - 16 on. */
static bool is_srun_step(void) {
    const char *step = getenv("SLURM_STEP_ID");
    return step && strtoull(step, NULL, 10) < 0xfffffff0u;
}

/* "4(x2),3" is 4 on nodes 0 and 1, 3 on node 2; 0: not said. */
static int tasks_of_node(const char *list, long node) {
    while (*list) {
        char *end;
        long tasks = strtol(list, &end, 10), times = 1;
        if (end == list || tasks < 1) return 0;
        if (strncmp(end, "(x", 2) == 0) times = strtol(end + 2, &end, 10);
        if (node < times) return (int)tasks;
        node -= times;
        list = end + strspn(end, "),");
    }
    return 0;
}

/* srun says how many tasks each node has, and which node this is. */
static ls_place read_srun_local_size(ls_launcher *out) {
    static const char *const variables[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"};
    const char *node = getenv("SLURM_NODEID");
    for (int i = 0; i < 2; i++) {
        const char *list = getenv(variables[i]);
        if (!list) continue;
        int tasks = tasks_of_node(list, node ? atol(node) : 0);
        snprintf(out->local_size, sizeof out->local_size, "%d", tasks);
        return (ls_place){variables[i], tasks > 0 ? out->local_size : list};
    }
    return (ls_place){0};
}

/* --- which job -------------------------------------------------------------------------------------------------------- */

static bool has_variable(pid_t pid, const char *variable) {
    char path[64], *entry = NULL;
    size_t capacity = 0, length = strlen(variable);
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return false; /* another user's: the launcher's daemon */
    while (!found && getdelim(&entry, &capacity, '\0', file) > 0)
        found = strncmp(entry, variable, length) == 0 && entry[length] == '=';
    free(entry);
    fclose(file);
    return found;
}

/* Parent and starting time of a process; false: there is no such process. */
static bool read_process(pid_t pid, pid_t *parent, unsigned long long *started) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    const char *behind_name = strrchr(text, ')'); /* fields 3, 4, 22: state, parent, start; names may hold anything */
    int number = 0;
    bool read =
        behind_name &&
        sscanf(behind_name + 1, " %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &number, started) == 2;
    *parent = (pid_t)number;
    return read;
}

/* Where the launcher gives no name to its job, all of which is on this machine: the nearest process above this one that
 * it has not given a rank to is the launcher's own, and the same for all ranks, whatever shells lie between. */
static void name_by_process(ls_launcher *out) {
    const char *rank_variable = out->place[LS_PLACE_RANK].variable;
    pid_t pid = getpid(), parent;
    unsigned long long started;
    do {
        if (!read_process(pid, &parent, &started) || parent < 1) return;
        pid = parent;
    } while (has_variable(pid, rank_variable));
    if (!read_process(pid, &parent, &started)) return;
    out->job_length = (size_t)snprintf(out->job, sizeof out->job, "%d.%llu", (int)pid, started);
}

static void set_name(ls_launcher *out, const char *first, const char *second) {
    if (!first && !second) return;
    out->job_length = (size_t)snprintf(out->job, sizeof out->job, "%s%s%s", first ? first : "",
                                       first && second ? "." : "", second ? second : "");
}

static void name_job(ls_launcher *out, int row) {
    const char *first = launchers[row].job[0] ? getenv(launchers[row].job[0]) : NULL;
    const char *second = launchers[row].job[1] ? getenv(launchers[row].job[1]) : NULL;
    const char *run = getenv("TORCHELASTIC_RUN_ID"), *restarts = getenv("TORCHELASTIC_RESTART_COUNT");
    if (row == BY_RANK_VARIABLE && !first && run)
        set_name(out, restarts ? restarts : "0", run); /* a torchrun that starts its ranks again makes another job */
    else
        set_name(out, first, second);
}

/* --- finding it ------------------------------------------------------------------------------------------------------- */

static bool says_otherwise(const ls_place *known, const ls_place *said) {
    return known->text && said->text && strcmp(known->text, said->text) != 0;
}

/* Of those that set RANK. */
static const char *name_of_rank_variable(void) {
    if (getenv("LS_STORE")) return "ddprun";
    return getenv("TORCHELASTIC_RUN_ID") ? "torchrun" : launchers[BY_RANK_VARIABLE].name;
}

static void add_launcher(ls_launcher *out, int row) {
    ls_place said[LS_PLACE_COUNT];
    for (int kind = 0; kind < LS_PLACE_COUNT; kind++) said[kind] = read_place(&launchers[row], (ls_place_kind)kind);
    if (row == SRUN) said[LS_PLACE_LOCAL_SIZE] = read_srun_local_size(out);
    bool complete = said[LS_PLACE_RANK].text && said[LS_PLACE_SIZE].text;
    if (row != BY_RANK_VARIABLE && (!complete || (row == SRUN && !is_srun_step()))) return;
    if (says_otherwise(&out->place[LS_PLACE_RANK], &said[LS_PLACE_RANK]) ||
        says_otherwise(&out->place[LS_PLACE_SIZE], &said[LS_PLACE_SIZE]))
        return;
    bool takes_rank = !out->place[LS_PLACE_RANK].text && said[LS_PLACE_RANK].text;
    for (int kind = 0; kind < LS_PLACE_COUNT; kind++)
        if (!out->place[kind].text) out->place[kind] = said[kind];
    if (!out->job[0]) name_job(out, row);
    if (!takes_rank) return;
    out->name = row == BY_RANK_VARIABLE ? name_of_rank_variable() : launchers[row].name;
    out->by_rank_variable = row == BY_RANK_VARIABLE;
}

void ls_launcher_find(ls_launcher *out) {
    *out = (ls_launcher){0};
    for (int row = 0; row < LAUNCHER_COUNT; row++) add_launcher(out, row);
    const char *size = out->place[LS_PLACE_SIZE].text, *here = out->place[LS_PLACE_LOCAL_SIZE].text;
    if (!size) out->name = NULL;
    if (out->name && !out->by_rank_variable && !out->job[0] && here && strcmp(here, size) == 0) name_by_process(out);
}

ls_status ls_launcher_refuse_copies(const char *harm, const char *advice) {
    ls_launcher launcher;
    ls_launcher_find(&launcher);
    const ls_place *size = &launcher.place[LS_PLACE_SIZE];
    if (!launcher.name || atoi(size->text) < 2) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "%s has started %s copies of this program (%s), and each would %s: %s", launcher.name,
                   size->text, size->variable, harm, advice);
}
