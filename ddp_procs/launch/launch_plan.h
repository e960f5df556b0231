/* How the ranks of a job are started. */
#ifndef DDP_LAUNCH_LAUNCH_PLAN_H
#define DDP_LAUNCH_LAUNCH_PLAN_H

#include <limits.h>
#include <signal.h>
#include <sys/types.h>

#include "common/base/launcher.h"
#include "ddp_procs/launch/launch_guard.h"
#include "ddp_procs/launch/launch_options.h"

/* Common to all ranks of an attempt. */
typedef struct ddp_spawn_plan {
    const ddp_launch_options *options;
    int first_rank, world_size; /* this host's first rank; ranks of the job */
    char program[PATH_MAX];
    char *const *argv;
    int master_port;
    const char *store, *token;   /* where the store is (LS_STORE), and the job's secret */
    int log_once_fd;             /* log_once.h; -1: none */
    const sigset_t *signal_mask; /* the ranks' */
    const char *run_id;          /* TORCHELASTIC_RUN_ID */
    char job[LS_JOB_CAPACITY];   /* LS_JOB */
    int restarts;                /* of the job so far */
    ddp_guard guard;
    pid_t group; /* the ranks' process group; 0: the next rank founds it */
} ddp_spawn_plan;

/* The files of one rank. */
typedef struct ddp_rank_files {
    int cause;                 /* set by ddp_spawn_rank */
    int out, err;              /* its stdout and stderr; -1: the launcher's */
    char error_file[PATH_MAX]; /* TORCHELASTIC_ERROR_FILE */
} ddp_rank_files;

#endif
