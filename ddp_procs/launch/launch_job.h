/* The state of a job, shared by the files of the launcher. launch.c creates and destroys it, launch_watch.c watches its
 * ranks, launch_policy.c decides how to react to a rank's end, launch_report.c reports its result.
 *
 * The ranks of a job are started together, once, and once more for each restart: an attempt. */
#ifndef DDP_LAUNCH_LAUNCH_JOB_H
#define DDP_LAUNCH_LAUNCH_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "common/comm/comm.h"
#include "ddp_procs/launch/launch_agents.h"
#include "ddp_procs/launch/launch_logs.h"
#include "ddp_procs/launch/launch_options.h"
#include "ddp_procs/launch/launch_plan.h"
#include "ddp_procs/launch/store.h"

enum { DDP_CAUSE_CAPACITY = 1024 };

/* Exit statuses of ranks that say why (common/base/status.h). */
enum { DDP_USAGE_STATUS = 2, DDP_PEER_STATUS = 3 };

typedef enum ddp_phase {
    DDP_RUNNING,
    DDP_LOOKING, /* for two seconds after the first failure: waits for related failures */
    DDP_ENDING,  /* the remaining ranks have been sent SIGTERM */
    DDP_KILLED,  /* ... and SIGKILL */
} ddp_phase;

typedef struct ddp_rank_end {
    int rank; /* of this host, from 0; -1: none */
    pid_t pid;
    int wait_status;
    struct timespec at; /* CLOCK_REALTIME, when the launcher saw it */
} ddp_rank_end;

typedef struct ddp_rank_process {
    pid_t pid; /* -1: ended, or never started */
    int cause_fd;
    /* its first error line, without the newline: a failure is reported where it happens, and what follows from it later */
    char cause[DDP_CAUSE_CAPACITY];
    size_t cause_nbytes;
    bool cause_complete;
    ddp_rank_end done; /* its end with status 0; rank -1: it has not come */
    int out, err; /* of an elastic job: where it prints, for the next process of that number; -1: see launch_plan.h */
} ddp_rank_process;

typedef struct ddp_job {
    const ddp_launch_options *options;
    ddp_spawn_plan plan; /* plan.restarts counts those of the job */
    ddp_logs logs;
    int signal_fd;
    double deadline_us; /* of the job; INFINITY: none */
    int stop_signal;    /* the user's; 0: none */
    bool timed_out;
    ddp_agents *agents; /* of all hosts; NULL: there is one host */
    /* of the present attempt */
    ddp_store_server *server; /* the ranks'; NULL: host 0 has it */
    ddp_rank_process ranks[LS_COMM_MAX_RANKS];
    int running; /* ranks */
    bool strays; /* other processes of the ranks' group remain, whose parents have ended */
    ddp_phase phase;
    double next_phase_us; /* when the present phase ends by itself; INFINITY: it does not */
    ddp_rank_end culprit;
    ddp_rank_end failures[LS_COMM_MAX_RANKS]; /* by themselves, first to last */
    int failure_count;
    bool too_few;      /* ranks of an elastic job were left */
    ddp_round round;   /* of several hosts */
    bool has_ending;   /* somewhere the attempt has failed; of several hosts */
    ddp_ending ending; /* how it did */
    struct ddp_output *output;
} ddp_job;

/* The number in the job of this host's rank i. */
static inline int ddp_number_of(const ddp_job *job, int i) { return job->plan.first_rank + i; }

#endif
