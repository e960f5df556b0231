/* launch_environment: one table of variables for exec's environment and the page of --env.
 *   idea  : torchrun's variables, so that programs written for it run unchanged, and our own (LS_). A variable of the
 *           table without a value in this job is removed from the inherited environment: it would be another
 *           launcher's. */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch_environment.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/table.h"

typedef enum source {
    RANK_NUMBER,
    RANK_COUNT,
    LOCAL_NUMBER,
    LOCAL_COUNT,
    HOST_NUMBER,
    HOST_COUNT,
    ROLE,
    MASTER_ADDR,
    MASTER_PORT,
    RUN_ID,
    RESTART,
    ELASTIC,
    MAX_RESTARTS,
    AGENT_STORE,
    ERROR_FILE,
    NCCL_ERRORS,
    OMP_THREADS,
    STORE,
    JOB,
    TOKEN,
    CAUSE_FD,
    CAUSE_INODE,
    SAID_FD,
    SAID_INODE
} source;

typedef struct variable {
    const char *name;
    source source;
    const char *meaning;
    const char *shown; /* on the page of --env, for a value that only a running job has; NULL: show the value */
} variable;

/* clang-format off */
static const variable variables[] = {
    {"RANK", RANK_NUMBER, "this process, among all", NULL},
    {"WORLD_SIZE", RANK_COUNT, "processes of the job (--nproc-per-node of all machines)", NULL},
    {"LOCAL_RANK", LOCAL_NUMBER, "this process, among those of this machine: its device", NULL},
    {"LOCAL_WORLD_SIZE", LOCAL_COUNT, "processes on this machine (--nproc-per-node)", NULL},
    {"GROUP_RANK", HOST_NUMBER, "this machine, among all (--node-rank)", NULL},
    {"GROUP_WORLD_SIZE", HOST_COUNT, "machines (--nnodes)", NULL},
    {"ROLE_RANK", RANK_NUMBER, "this process, among those of its role", NULL},
    {"ROLE_WORLD_SIZE", RANK_COUNT, "processes of its role: all", NULL},
    {"ROLE_NAME", ROLE, "name of the role (--role)", NULL},
    {"MASTER_ADDR", MASTER_ADDR, "where programs may meet by themselves (--master-addr)", NULL},
    {"MASTER_PORT", MASTER_PORT, "a port there on which no process listens (--master-port)", "a free port"},
    {"TORCHELASTIC_RUN_ID", RUN_ID, "name of the run (--rdzv-id)", "a name of its own"},
    {"TORCHELASTIC_RESTART_COUNT", RESTART, "restarts of the job so far", NULL},
    {"TORCHELASTIC_MAX_RESTARTS", MAX_RESTARTS, "restarts that are allowed (--max-restarts)", NULL},
    {"TORCHELASTIC_USE_AGENT_STORE", AGENT_STORE, "rank 0 hosts PyTorch's store, not the launcher", NULL},
    {"TORCHELASTIC_ERROR_FILE", ERROR_FILE, "where PyTorch's @record leaves an exception (--log-dir)", NULL},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", NCCL_ERRORS, "PyTorch ends ranks whose NCCL has failed; kept if it is set", NULL},
    {"OMP_NUM_THREADS", OMP_THREADS, "threads of each process: 1 if there are several; kept if it is set", NULL},
    {"LS_STORE", STORE, "the store in which the ranks meet, hosted by the launcher", "unix:NAME"},
    {"LS_JOB", JOB, "name of this start of the job; each restart has another", "PROCESS.TIME"},
    {"LS_JOB_TOKEN", TOKEN, "secret of the job, which the store asks for", "made for each start"},
    {"LS_ELASTIC", ELASTIC, "numbers of ranks that the job goes on with (--elastic)", NULL},
    {"LS_CAUSE_FD", CAUSE_FD, "pipe to the launcher for error messages", "a file descriptor"},
    {"LS_CAUSE_INODE", CAUSE_INODE, "... which file that is", "a number"},
    {"LS_SAID_FD", SAID_FD, "memory of messages that were printed, to print each once", "a file descriptor"},
    {"LS_SAID_INODE", SAID_INODE, "... which file that is", "a number"},
};
/* clang-format on */
enum { VARIABLES = sizeof variables / sizeof variables[0], VALUE_CAPACITY = 4096 };

/* Identifies the file, so that a rank notices if the descriptor is another file; 0: none. */
static unsigned long long inode_of(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 ? (unsigned long long)info.st_ino : 0;
}

/* files is NULL for the page of --env, when no rank has been started. False: the variable is not set. */
static bool find_value(char value[VALUE_CAPACITY], const variable *v, const ddp_spawn_plan *plan, int rank,
                       const ddp_rank_files *files) {
    const ddp_launch_options *o = plan->options;
    const char *text = NULL;
    unsigned long long number = 0;
    switch (v->source) {
    case RANK_NUMBER: number = (unsigned long long)(plan->first_rank + rank); break;
    case RANK_COUNT: number = (unsigned long long)plan->world_size; break;
    case LOCAL_NUMBER: number = (unsigned long long)rank; break;
    case LOCAL_COUNT: number = (unsigned long long)o->nproc; break;
    case HOST_NUMBER: number = (unsigned long long)o->node_rank; break;
    case HOST_COUNT: number = (unsigned long long)(o->nnodes > 1 ? o->nnodes : 1); break;
    case ROLE: text = o->role ? o->role : "default"; break;
    case MASTER_ADDR: text = o->master_addr ? o->master_addr : "127.0.0.1"; break;
    case MASTER_PORT: number = (unsigned long long)plan->master_port; break;
    case RUN_ID: text = plan->run_id; break;
    case RESTART: number = (unsigned long long)plan->restarts; break;
    case MAX_RESTARTS: number = (unsigned long long)o->max_restarts; break;
    case ELASTIC:
        if (!o->elastic) return false;
        text = o->elastic;
        break;
    case AGENT_STORE: text = "False"; break;
    case ERROR_FILE:
        if (!o->log_dir) return false;
        text = files ? files->error_file : "in the rank's folder";
        break;
    case NCCL_ERRORS: text = getenv(v->name) ? getenv(v->name) : "1"; break;
    case OMP_THREADS:
        text = getenv(v->name) ? getenv(v->name) : o->nproc > 1 ? "1" : NULL;
        if (!text) return false;
        break;
    case STORE: text = plan->store; break;
    case JOB: text = plan->job; break;
    case TOKEN: text = plan->token; break;
    case CAUSE_FD: number = (unsigned long long)files->cause; break;
    case CAUSE_INODE: number = inode_of(files->cause); break;
    case SAID_FD: /* -1: none */ snprintf(value, VALUE_CAPACITY, "%d", plan->log_once_fd); return true;
    case SAID_INODE: number = inode_of(plan->log_once_fd); break;
    }
    if (text)
        snprintf(value, VALUE_CAPACITY, "%s", text);
    else
        snprintf(value, VALUE_CAPACITY, "%llu", number);
    return true;
}

/* --- for exec --------------------------------------------------------------------------------------------------------- */

static bool is_ours(const char *entry) {
    size_t length = strcspn(entry, "=");
    for (int i = 0; i < VARIABLES; i++)
        if (strlen(variables[i].name) == length && strncmp(variables[i].name, entry, length) == 0) return true;
    return false;
}

/* One allocation: the pointers, then the text of our own entries. */
char **ddp_environment_make(const ddp_spawn_plan *plan, int rank, const ddp_rank_files *files) {
    char value[VALUE_CAPACITY];
    size_t inherited = 0, count = 0, nbytes = 0;
    while (environ[inherited]) inherited++;
    for (int i = 0; i < VARIABLES; i++)
        if (find_value(value, &variables[i], plan, rank, files))
            nbytes += strlen(variables[i].name) + strlen(value) + 2;
    char **all = malloc((inherited + VARIABLES + 1) * sizeof *all + nbytes);
    if (!all) return NULL;
    char *text = (char *)(all + inherited + VARIABLES + 1);
    for (size_t i = 0; i < inherited; i++)
        if (!is_ours(environ[i])) all[count++] = environ[i];
    for (int i = 0; i < VARIABLES; i++) {
        if (!find_value(value, &variables[i], plan, rank, files)) continue;
        all[count++] = text;
        text += sprintf(text, "%s=%s", variables[i].name, value) + 1;
    }
    all[count] = NULL;
    return all;
}

/* --- for --env ---------------------------------------------------------------------------------------------------- */

/* "0 to 3" for a value that differs between ranks. */
static void show_value(ls_table *table, const variable *v, const ddp_spawn_plan *plan) {
    char first[VALUE_CAPACITY], last[VALUE_CAPACITY];
    const ddp_launch_options *o = plan->options;
    bool several = o->nnodes > 1,
         chosen = (v->source == MASTER_PORT && o->master_port > 0 && !several) || (v->source == RUN_ID && o->run_id);
    if (several && (v->source == RANK_NUMBER || v->source == RANK_COUNT)) {
        ls_table_cell(table, "known when all hosts are");
    } else if (several && v->source == STORE) {
        ls_table_cell(table, "tcp:HOST:PORT");
    } else if (v->shown && !chosen) {
        ls_table_cell(table, "%s", v->shown);
    } else if (!find_value(first, v, plan, 0, NULL)) {
        ls_table_cell(table, "not set");
    } else {
        bool differs = find_value(last, v, plan, o->nproc - 1, NULL) && strcmp(first, last) != 0;
        ls_table_cell(table, "%s%s%s", first, differs ? " to " : "", differs ? last : "");
    }
}

ls_status ddp_environment_print(const ddp_launch_options *options) {
    static const ls_column columns[] = {{"variable", LS_LEFT}, {"value", LS_LEFT}, {"meaning (origin)", LS_LEFT}};
    const ddp_spawn_plan plan = {.options = options,
                                 .world_size = options->nproc,
                                 .run_id = options->run_id,
                                 .master_port = options->master_port,
                                 .log_once_fd = -1};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof columns[0]);
    if (status != LS_OK) return status;
    for (int i = 0; i < VARIABLES; i++) {
        ls_table_cell(table, "%s", variables[i].name);
        show_value(table, &variables[i], &plan);
        ls_table_cell(table, "%s", variables[i].meaning);
    }
    return ls_table_finish(table, stdout);
}
