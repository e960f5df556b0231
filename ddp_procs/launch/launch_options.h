/* What a job is to be. */
#ifndef DDP_LAUNCH_LAUNCH_OPTIONS_H
#define DDP_LAUNCH_LAUNCH_OPTIONS_H

#define DDP_LAUNCH_GRACE_S 10.0

typedef struct ddp_launch_options {
    int nproc;           /* ranks, 1 to LS_COMM_MAX_RANKS */
    const char *program; /* a path, or a name looked for in PATH; NULL: this program again */
    char *const *argv;   /* its arguments from argv[0] on, ended by NULL */
    const char
        *last_argument; /* appended to argv, in front of a closing "--", or NULL: "--spawn=0" keeps a program that
                                  starts itself from doing it again */
    int master_port;    /* MASTER_PORT of the ranks; 0: one that is free */
    double grace_s;     /* from SIGTERM to SIGKILL for ranks that are to end, >= 0 */
    double timeout_s;   /* the whole job's deadline; 0: none */
} ddp_launch_options;

#endif
