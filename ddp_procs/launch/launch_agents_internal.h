/* Shared by launch_agents.c (joining, rounds) and launch_agents_watch.c (the thread). */
#ifndef DDP_LAUNCH_LAUNCH_AGENTS_INTERNAL_H
#define DDP_LAUNCH_LAUNCH_AGENTS_INTERNAL_H

#include <pthread.h>

#include "ddp_procs/launch/launch_agents.h"

enum { DDP_AGENT_NAME_CAPACITY = 64, DDP_AGENT_KEY_CAPACITY = 48 };

struct ddp_agents {
    /* constant after join */
    const ddp_launch_options *options;
    int node, count;
    ddp_store_server *server; /* of the agents, on host 0 */
    int wake_fd, news_fd;     /* eventfds, to the caller and to the thread */
    char place[DDP_HOST_CAPACITY + 16];
    /* changed by meetings, when no thread runs */
    int rounds;                                             /* that have begun */
    char names[LS_COMM_MAX_RANKS][DDP_AGENT_NAME_CAPACITY]; /* of hosts, as they call themselves */
    /* the thread's while it runs, else the caller's */
    ddp_store *store;
    const ddp_store_server *ranks_server; /* on host 0 */
    struct {
        int64_t beats;
        double seen_us;
        bool lost, done, good;   /* done: its ranks have ended; good: one with 0 */
    } others[LS_COMM_MAX_RANKS]; /* what host 0 knows of all */
    double watched_us;           /* when it last looked */
    bool decided;                /* host 0 has set how the round failed */
    bool told_others, told_done; /* `told` and `done` are in the store */
    /* under the lock */
    pthread_mutex_t lock;
    pthread_t thread;
    bool runs, stop;
    bool has_told, finished, done; /* by the caller: `told` is to be published; its ranks have ended, one with 0 */
    bool has_ending, all_done, have_met;
    ddp_ending told, ending;
};

/* "round 3/NAME" or, with a node from 0 on, "round 3/NAME/node": a key of this round's. */
const char *ddp_agents_key(char key[DDP_AGENT_KEY_CAPACITY], const ddp_agents *a, const char *name, int node);

#endif
