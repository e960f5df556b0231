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
    const char *job[2];                       /* the values of those that are set, joined, name the job */
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

enum { LIST_CAPACITY = 256 };

static ls_place read_place(const launcher_row *row, ls_place_kind kind) {
    for (int i = 0; i < 2; i++) {
        const char *variable = row->variables[kind][i];
        const char *text = variable ? getenv(variable) : NULL;
        if (text) return (ls_place){variable, text};
    }
    return (ls_place){0};
}

/* The script of a batch job and an interactive shell have Slurm's variables, too, with rank 0 and the whole job's size,
 * but srun has not started them: they have no step number, or one from 2^32 - 16 on. */
static bool is_srun_step(void) {
    const char *step = getenv("SLURM_STEP_ID");
    return step && strtoull(step, NULL, 10) < 0xfffffff0u;
}

/* "4(x2),3" is 4 on nodes 0 and 1, 3 on node 2; 0 if the node is not listed. */
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

/* srun sets the number of tasks on each node, and this node's number. */
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
    const char *behind_name = strrchr(text, ')'); /* fields 3, 4, 22: state, parent, start; names may have any byte */
    int number = 0;
    bool read =
        behind_name &&
        sscanf(behind_name + 1, " %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &number, started) == 2;
    *parent = (pid_t)number;
    return read;
}

/* For a launcher that does not name its job, if the whole job is on this machine: the nearest ancestor of this process
 * without a rank is the launcher's own process, and the same for all ranks, whatever shells are in between. */
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
        set_name(out, restarts ? restarts : "0", run); /* ranks that torchrun restarts are another job */
    else
        set_name(out, first, second);
}

/* --- finding the launcher --------------------------------------------------------------------------------------------- */

static bool says_otherwise(const ls_place *known, const ls_place *said) {
    return known->text && said->text && strcmp(known->text, said->text) != 0;
}

/* The name of the launcher that has set RANK. */
static const char *name_of_rank_variable(void) {
    if (getenv("LS_STORE")) return "ddprun";
    return getenv("TORCHELASTIC_RUN_ID") ? "torchrun" : launchers[BY_RANK_VARIABLE].name;
}

static bool is_text(const ls_place *place, const char *text) { return place->text && strcmp(place->text, text) == 0; }

/* Whether srun has set these values, in its own variables or as PMI. */
static bool is_by_srun(int row, const ls_place said[LS_PLACE_COUNT]) {
    if (!is_srun_step() || row == SRUN) return row == SRUN;
    for (int kind = LS_PLACE_RANK; kind <= LS_PLACE_SIZE; kind++) {
        const ls_place by_srun = read_place(&launchers[SRUN], (ls_place_kind)kind);
        if (!by_srun.text || says_otherwise(&said[kind], &by_srun)) return false;
    }
    return true;
}

/* Launchers may start one another, and then their values rightly differ. Returns whether `said` describes a process
 * that has started the ranks of `known` on this machine:
 *   one process   mpirun -n 1 or srun --pty, from which the user starts the job
 *   an agent      torchrun on each machine, started by srun or mpirun: GROUP_WORLD_SIZE is their number
 *   a daemon      mpirun and mpiexec have one on each machine, started by srun; scripts may do the same */
static bool has_started(int row, const ls_place said[LS_PLACE_COUNT], ls_launcher *known) {
    const char *agents = getenv("GROUP_WORLD_SIZE");
    bool by_torchrun = getenv("TORCHELASTIC_RUN_ID") && known->by_rank_variable;
    if (is_text(&said[LS_PLACE_SIZE], "1")) return true;
    if (by_torchrun) return !agents || is_text(&said[LS_PLACE_SIZE], agents);
    if (!is_by_srun(row, said) || !known->place[LS_PLACE_SIZE].text || getenv("LS_STORE")) return false;
    const ls_place local_size = read_srun_local_size(known);
    bool alone_here = is_text(&local_size, "1") || (!local_size.text && is_text(&said[LS_PLACE_LOCAL_RANK], "0"));
    return alone_here && atoi(said[LS_PLACE_SIZE].text) <= atoi(known->place[LS_PLACE_SIZE].text);
}

static void add_launcher(ls_launcher *out, int row) {
    ls_place said[LS_PLACE_COUNT];
    for (int kind = 0; kind < LS_PLACE_COUNT; kind++) said[kind] = read_place(&launchers[row], (ls_place_kind)kind);
    if (row == SRUN) said[LS_PLACE_LOCAL_SIZE] = read_srun_local_size(out);
    bool complete = said[LS_PLACE_RANK].text && said[LS_PLACE_SIZE].text;
    if (row != BY_RANK_VARIABLE && (!complete || (row == SRUN && !is_srun_step()))) return;
    if (says_otherwise(&out->place[LS_PLACE_RANK], &said[LS_PLACE_RANK]) ||
        says_otherwise(&out->place[LS_PLACE_SIZE], &said[LS_PLACE_SIZE])) {
        if (out->against || has_started(row, said, out)) return;
        out->against = launchers[row].name;
        memcpy(out->against_place, said, sizeof said);
        return;
    }
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

/* "RANK=0 WORLD_SIZE=1", or the names alone. */
static const char *list_places(char text[LIST_CAPACITY], const ls_place place[LS_PLACE_COUNT], bool with_values) {
    size_t used = 0;
    int count = with_values ? LS_PLACE_SIZE + 1 : LS_PLACE_COUNT;
    text[0] = '\0';
    for (int kind = 0; kind < count; kind++) {
        if (!place[kind].variable || used >= LIST_CAPACITY) continue;
        used += (size_t)snprintf(text + used, LIST_CAPACITY - used, "%s%s%s%.20s", used > 0 ? " " : "",
                                 place[kind].variable, with_values ? "=" : "", with_values ? place[kind].text : "");
    }
    return text;
}

ls_status ls_launcher_check(const ls_launcher *launcher) {
    char said[2][LIST_CAPACITY], names[2][LIST_CAPACITY];
    if (!launcher->against) return LS_OK;
    return ls_fail(
        LS_ERR_USAGE,
        "two launchers contradict each other: the environment has %s, and from %s %s; unset the variables of "
        "the other launcher: unset %s, or unset %s",
        list_places(said[0], launcher->place, true), launcher->against,
        list_places(said[1], launcher->against_place, true), list_places(names[0], launcher->place, false),
        list_places(names[1], launcher->against_place, false));
}

ls_status ls_launcher_refuse_copies(const char *harm, const char *advice) {
    ls_launcher launcher;
    ls_launcher_find(&launcher);
    ls_status status = ls_launcher_check(&launcher);
    if (status != LS_OK) return status;
    const ls_place *size = &launcher.place[LS_PLACE_SIZE];
    if (!launcher.name || atoi(size->text) < 2) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "%s has started %s copies of this program (%s), and each would %s: %s", launcher.name,
                   size->text, size->variable, harm, advice);
}
