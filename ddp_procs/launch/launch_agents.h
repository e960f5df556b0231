/* The launchers of a job on several hosts, one on each: agents. Agent 0 serves them a store at MASTER_ADDR:MASTER_PORT, by
 * which they agree on every attempt of the job (a round), watch each other, and learn its result.
 *
 *     ddp_agents_join(&agents, options)
 *     for each round: ddp_agents_meet(agents, &here, &round), start ranks, ddp_agents_watch(agents)
 *         ddp_agents_report, ddp_agents_finish, until ddp_agents_all_done; ddp_agents_stop(agents)
 *     ddp_agents_leave(agents)
 *
 * The store asks for LS_JOB_TOKEN (store.h). An agent whose connection ends, or that is silent for options->lost_s, is
 * lost: its host's ranks count as failed, and the round ends on all hosts that are left. */
#ifndef DDP_LAUNCH_LAUNCH_AGENTS_H
#define DDP_LAUNCH_LAUNCH_AGENTS_H

#include <stdbool.h>

#include "ddp_procs/launch/launch_options.h"
#include "ddp_procs/launch/store.h"

#define DDP_AGENTS_PORT 29500 /* torchrun's */
#define DDP_JOIN_TIMEOUT_S 300.0
#define DDP_LOST_S 10.0

typedef struct ddp_agents ddp_agents;

/* The failure of a round: the first that an agent reported, the same for all agents. */
enum { DDP_ENDING_CAPACITY = 1600 };
typedef struct ddp_ending {
    int32_t node;        /* the host that reports it, or that is lost */
    int32_t rank;        /* that failed; -1: none did */
    int32_t status;      /* of the job, an ls_status */
    int32_t may_restart; /* whether starting all ranks again may help */
    char text[DDP_ENDING_CAPACITY];
} ddp_ending;

/* The parameters on which agents agree before ranks start. */
typedef struct ddp_round {
    int32_t first_rank, world_size; /* of this host's ranks the first; of the job */
    int32_t master_port;            /* of the ranks, on host 0 */
    char run[LS_JOB_CAPACITY];      /* TORCHELASTIC_RUN_ID */
    char store[DDP_HOST_CAPACITY + 16], token[DDP_TOKEN_CAPACITY],
        job[LS_JOB_CAPACITY]; /* of the ranks: LS_STORE, ... */
} ddp_round;

/* Joins the others; options->join_timeout_s is the deadline for joining, and for each ddp_agents_meet. On failure,
 * which is reported, *out is NULL. Borrows `options`. */
ls_status ddp_agents_join(ddp_agents **out, const ddp_launch_options *options);

/* Collective: round 0, 1, ... of the job. `so_far`, if it is not LS_OK: this host cannot start ranks, and has reported
 * why; the other hosts learn of it. On host 0 `round` has the ranks' master_port and run, and *server becomes the store
 * of this round's ranks, which the caller stops. A pending SIGINT, SIGTERM or SIGHUP, which the caller has blocked,
 * ends the waiting. LS_ERR_USAGE on all: the agents' builds or options differ, or there are too many ranks. */
ls_status ddp_agents_meet(ddp_agents *agents, ls_status so_far, ddp_round *round, ddp_store_server **server);

/* --- while a round's ranks run: a thread communicates with the other agents --------------------------------------- */

/* `server`: what ddp_agents_meet gave. */
ls_status ddp_agents_watch(ddp_agents *agents, const ddp_store_server *server);

/* A descriptor that is readable when news has arrived; ddp_agents_get_ending reads it. */
int ddp_agents_fd(const ddp_agents *agents);

/* Reports that the round has failed here, to all other agents, unless another agent was first. Only the first call has
 * an effect. */
void ddp_agents_report(ddp_agents *agents, const ddp_ending *ending);

/* Reports that this host's ranks have ended; `done`: one of them with status 0. */
void ddp_agents_finish(ddp_agents *agents, bool done);

/* Whether the round has failed, and how. */
bool ddp_agents_get_ending(ddp_agents *agents, ddp_ending *ending);

/* Whether the ranks of all hosts have ended, lost hosts apart. */
bool ddp_agents_all_done(ddp_agents *agents);

/* Whether the ranks of an elastic job have met (ddp_store_meet). */
bool ddp_agents_have_met(ddp_agents *agents);

/* Ends the thread; the round's ending is kept. */
void ddp_agents_stop(ddp_agents *agents);

/* "host 1 (name)" */
enum { DDP_HOST_TEXT_CAPACITY = 96 };
const char *ddp_agents_host(const ddp_agents *agents, int node, char text[DDP_HOST_TEXT_CAPACITY]);

/* NULL is a no-op. Agent 0 waits for the others to leave, two seconds at most. */
void ddp_agents_leave(ddp_agents *agents);

#endif
