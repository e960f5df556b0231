/* Settings of a job. */
#ifndef DDP_LAUNCH_LAUNCH_OPTIONS_H
#define DDP_LAUNCH_LAUNCH_OPTIONS_H

#include "common/comm/comm.h"
#include "ddp_procs/launch/limits.h"

#define DDP_LAUNCH_GRACE_S 10.0

/* A rank's output streams, as torchrun numbers them; both: their sum. */
enum { DDP_STDOUT = 1, DDP_STDERR = 2 };

typedef struct ddp_launch_options {
    int nproc;           /* ranks, 1 to LS_COMM_MAX_RANKS */
    const char *program; /* a path, or a name looked for in PATH; NULL: this program again */
    char *const *argv;   /* its arguments from argv[0] on, ended by NULL; NULL: no program; then */
    /* the function that each rank calls in a fork of this process, after closing the files that exec would close.
     * Returns the exit status */
    int (*entry)(void *context);
    void *context;
    /* appended to argv, in front of a closing "--", or NULL: "--spawn=0" keeps a program that starts itself from doing it
     * again */
    const char *last_argument;
    const char *master_addr; /* MASTER_ADDR of the ranks, this machine; NULL: 127.0.0.1 */
    int master_port;         /* MASTER_PORT of the ranks; 0: a free one */
    /* a job on several hosts, each with a launcher (launch_agents.h); 0 and 1: on this one. master_addr is then host 0, and
     * master_port, not 0, that of the launchers' store */
    int nnodes, node_rank;
    double join_timeout_s; /* timeout of the launchers' rendezvous */
    double lost_s;         /* after which a silent launcher counts as lost */
    const char *run_id;    /* TORCHELASTIC_RUN_ID; NULL: the job's name, which no other job has */
    const char *role;      /* ROLE_NAME; NULL: "default" */
    double grace_s;        /* from SIGTERM to SIGKILL for ranks that are to end, >= 0 */
    double timeout_s;      /* the whole job's deadline, restarts included; 0: none */
    /* how often, in the whole job, the group is started again after a failure; of an elastic job, a rank */
    int max_restarts;
    const char *elastic; /* MIN:MAX, which ranks are told, and what it says; NULL: a job fails with its first rank */
    ddp_limits limits;
    const char *log_dir;                                                /* launch_output.h; NULL: no files */
    unsigned char tee[LS_COMM_MAX_RANKS], redirects[LS_COMM_MAX_RANKS]; /* of each rank, DDP_STDOUT + DDP_STDERR */
} ddp_launch_options;

#endif
