/* launch_agents: the launchers of several hosts agree on a round.
 *   idea  : each sets its number of ranks, its build and options under a key of its own, and reads all entries, so each
 *           computes the same numbers of ranks, or the same error, by itself. Host 0 then serves a store for the
 *           round's ranks, and sets its address
 *   cost  : M + 1 values set, M (M + 1) read by the M agents of a round
 *   fails : all waiting hosts name a missing host in their errors when the deadline passes, and in a note before that.
 *           A host that cannot start ranks marks its entry, so that no other waits for them */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch_agents.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/build_id.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/launch_agents_internal.h"
#include "ddp_procs/launch/store_address.h"

#define PATIENT_S 5.0 /* before it prints which host it waits for */
enum { LOOK_MS = 50, ELASTIC_CAPACITY = 16 };

/* A host's entry in a round. */
typedef struct entry {
    int32_t nproc, failed, max_restarts, pad;
    char name[DDP_AGENT_NAME_CAPACITY], elastic[ELASTIC_CAPACITY], build[LS_BUILD_ID_CAPACITY];
} entry;

const char *ddp_agents_key(char key[DDP_AGENT_KEY_CAPACITY], const ddp_agents *a, const char *name, int node) {
    if (node < 0)
        snprintf(key, DDP_AGENT_KEY_CAPACITY, "round %d/%s", a->rounds, name);
    else
        snprintf(key, DDP_AGENT_KEY_CAPACITY, "round %d/%s/%d", a->rounds, name, node);
    return key;
}

const char *ddp_agents_host(const ddp_agents *a, int node, char text[DDP_HOST_TEXT_CAPACITY]) {
    const char *name = a->names[node];
    snprintf(text, DDP_HOST_TEXT_CAPACITY, "host %d%s%s%s", node, name[0] ? " (" : "", name, name[0] ? ")" : "");
    return text;
}

/* --- joining ---------------------------------------------------------------------------------------------------------- */

/* Refuses a name that /etc/hosts maps to loopback, as on Debian the machine's own: the other hosts would not reach host
 * 0. */
static ls_status check_address(const char *host, int node) {
    char address[DDP_IPV4_CAPACITY], own[256];
    if (node == 0 || ddp_address_is_loopback(host)) return LS_OK; /* literal loopback: all "hosts" are this machine */
    if (!ddp_address_resolve(host, address) || !ddp_address_is_loopback(address)) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "--master-addr: %s is %s here (/etc/hosts), which is this host itself, not host 0: give an address "
                   "of host 0's network interface; this host has %s",
                   host, address, ddp_address_list(own, sizeof own));
}

static ls_status find_pass(ddp_store_pass *pass, const ddp_launch_options *o) {
    ddp_rank self = {.rank = o->node_rank, .world_size = o->nnodes};
    snprintf(self.job, sizeof self.job, "%s", o->run_id ? o->run_id : "");
    ls_status status = ddp_store_pass_of_rank(pass, &self);
    pass->of_agent = true;
    return status == LS_OK ? ddp_store_pass_check(pass, o->master_addr, o->master_port) : status;
}

/* Prints after some seconds that it waits, and an error after a timeout. */
static ls_status join_store(ddp_agents *a, const ddp_store_pass *pass) {
    const ddp_launch_options *o = a->options;
    char why[600] = "";
    ls_status status = LS_ERR_TIMEOUT;
    for (double left_s = o->join_timeout_s; status == LS_ERR_TIMEOUT && left_s > 0; left_s -= PATIENT_S) {
        ls_log_sink before = ls_log_capture(why, sizeof why);
        status = ddp_store_join(&a->store, o->master_addr, o->master_port, pass, fmin(PATIENT_S, left_s));
        ls_log_restore(before);
        if (status == LS_ERR_TIMEOUT && left_s == o->join_timeout_s && left_s > PATIENT_S)
            ls_note("waiting for host 0 at %s, %g s at most: %s", a->place, o->join_timeout_s, why);
    }
    if (status == LS_OK) return LS_OK;
    if (status != LS_ERR_TIMEOUT) return ls_fail(status, "%s", why);
    return ls_fail(status, "host 0 did not answer within %g s: %s", o->join_timeout_s, why);
}

ls_status ddp_agents_join(ddp_agents **out, const ddp_launch_options *o) {
    ddp_store_pass pass;
    *out = NULL;
    ls_status status = check_address(o->master_addr, o->node_rank);
    if (status == LS_OK) status = find_pass(&pass, o);
    if (status != LS_OK) return status;
    ddp_agents *a = calloc(1, sizeof *a);
    if (!a) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to find the other hosts");
    a->options = o;
    a->node = o->node_rank;
    a->count = o->nnodes;
    a->rounds = -1;
    ddp_address_text(a->place, o->master_addr, o->master_port);
    pthread_mutex_init(&a->lock, NULL);
    a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->wake_fd < 0 || a->news_fd < 0)
        status = ls_fail(LS_ERR_SYSTEM, "cannot watch the other hosts: no file descriptor is left");
    if (status == LS_OK && a->node == 0)
        status = ddp_store_serve_job(&a->server, o->master_addr, o->master_port, &pass);
    if (status == LS_OK) status = join_store(a, &pass);
    if (status == LS_OK) *out = a;
    if (status != LS_OK) ddp_agents_leave(a);
    return status;
}

void ddp_agents_leave(ddp_agents *a) {
    if (!a) return;
    ddp_store_close(a->store);
    ddp_store_server_stop(a->server, 2.0);
    if (a->wake_fd >= 0) close(a->wake_fd);
    if (a->news_fd >= 0) close(a->news_fd);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* --- a round ------------------------------------------------------------------------------------------------------------ */

static entry describe_self(const ddp_agents *a, ls_status so_far) {
    const ddp_launch_options *o = a->options;
    entry mine = {.nproc = o->nproc, .failed = so_far != LS_OK, .max_restarts = o->max_restarts};
    (void)gethostname(mine.name, sizeof mine.name - 1);
    snprintf(mine.elastic, sizeof mine.elastic, "%s", o->elastic ? o->elastic : "none");
    ls_build_id(mine.build, NULL);
    return mine;
}

/* Whether a signal to stop is pending: the launcher's signals are blocked here. */
static bool is_stopped(void) {
    sigset_t pending;
    return sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
                                         sigismember(&pending, SIGHUP) == 1);
}

/* Waits for a key until `until_us`; a note names `whom` once. */
static ls_status await_key(const ddp_agents *a, const char *key, const char *whom, double begin_us, bool *noted) {
    bool exists = false;
    const ddp_launch_options *o = a->options;
    for (;;) {
        ls_status status = ddp_store_check(a->store, key, &exists);
        double waited_s = (ls_now_us() - begin_us) * 1e-6;
        if (status != LS_OK || exists) return status;
        if (waited_s >= o->join_timeout_s) break;
        if (!*noted && waited_s >= PATIENT_S) {
            ls_note("waiting for %s of %d, %g s at most", whom, a->count, o->join_timeout_s);
            *noted = true;
        }
        if (is_stopped()) return ls_fail(LS_ERR_SYSTEM, "ended by a signal while waiting for %s", whom);
        poll(NULL, 0, LOOK_MS);
    }
    return ls_fail(LS_ERR_TIMEOUT,
                   "%s of %d did not arrive within %g s at %s: start ddprun there, with its --node-rank and the same "
                   "--master-addr and --master-port; allow more with --rdzv-conf timeout=SECONDS",
                   whom, a->count, o->join_timeout_s, a->place);
}

static ls_status read_entries(ddp_agents *a, entry *all) {
    char key[DDP_AGENT_KEY_CAPACITY], whom[DDP_HOST_TEXT_CAPACITY];
    double begin_us = ls_now_us();
    bool noted = false;
    size_t nbytes;
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < a->count; i++) {
        status = await_key(a, ddp_agents_key(key, a, "entry", i), ddp_agents_host(a, i, whom), begin_us, &noted);
        if (status == LS_OK) status = ddp_store_get(a->store, key, &all[i], sizeof all[i], &nbytes);
        if (status == LS_OK && nbytes != sizeof all[i])
            status = ls_fail(LS_ERR_USAGE, "host %d has another version of ddprun than host %d", i, a->node);
        if (status != LS_OK) break;
        all[i].name[sizeof all[i].name - 1] = '\0';
        memcpy(a->names[i], all[i].name, sizeof all[i].name);
    }
    return status;
}

static ls_status fail_different(const ddp_agents *a, const char *name, int node, const char *there, const char *here) {
    char host[2][DDP_HOST_TEXT_CAPACITY];
    return ls_fail(LS_ERR_USAGE, "%s: %s has %s, but %s has %s; expected the same on all hosts", name,
                   ddp_agents_host(a, node, host[0]), there, ddp_agents_host(a, 0, host[1]), here);
}

/* All agents read the same entries, and return the same result. */
static ls_status check_entries(const ddp_agents *a, const entry *all, int *world_size) {
    char host[DDP_HOST_TEXT_CAPACITY], there[16], here[16];
    *world_size = 0;
    for (int i = 0; i < a->count; i++) {
        if (strcmp(all[i].build, all[0].build) != 0)
            return fail_different(a, "ddprun's build", i, all[i].build, all[0].build);
        snprintf(there, sizeof there, "%d", (int)all[i].max_restarts);
        snprintf(here, sizeof here, "%d", (int)all[0].max_restarts);
        if (strcmp(there, here) != 0) return fail_different(a, "--max-restarts", i, there, here);
        if (strcmp(all[i].elastic, all[0].elastic) != 0)
            return fail_different(a, "--elastic", i, all[i].elastic, all[0].elastic);
        if (all[i].failed && i == a->node) return LS_ERR_SYSTEM; /* reported */
        if (all[i].failed)
            return ls_fail(LS_ERR_SYSTEM, "%s cannot start its ranks; see its error", ddp_agents_host(a, i, host));
        *world_size += all[i].nproc;
    }
    if (*world_size > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_USAGE, "the hosts have %d ranks in total, but a job has at most %d", *world_size,
                       LS_COMM_MAX_RANKS);
    ddp_limits limits;
    return ddp_limits_parse(&limits, a->options->elastic, *world_size);
}

/* On host 0: serves a store for the ranks of this round, at a free port. */
static ls_status serve_ranks(const ddp_agents *a, ddp_round *round, ddp_store_server **server) {
    char key[DDP_AGENT_KEY_CAPACITY];
    ddp_store_pass pass;
    snprintf(round->job, sizeof round->job, "%d.%.0f", (int)getpid(), ls_now_us());
    ls_status status = ddp_store_pass_make(&pass, round->job, round->world_size);
    if (status == LS_OK) status = ddp_store_serve_job(server, a->options->master_addr, 0, &pass);
    if (status != LS_OK) return status;
    memcpy(round->token, pass.token, sizeof round->token);
    snprintf(round->store, sizeof round->store, "tcp:%s:%d", a->options->master_addr, ddp_store_server_port(*server));
    return ddp_store_set(a->store, ddp_agents_key(key, a, "begin", -1), round, sizeof *round);
}

static ls_status fetch_round(const ddp_agents *a, ddp_round *round) {
    char key[DDP_AGENT_KEY_CAPACITY], whom[DDP_HOST_TEXT_CAPACITY];
    size_t nbytes = 0;
    bool noted = false;
    ddp_agents_key(key, a, "begin", -1);
    ls_status status = await_key(a, key, ddp_agents_host(a, 0, whom), ls_now_us(), &noted);
    if (status == LS_OK) status = ddp_store_get(a->store, key, round, sizeof *round, &nbytes);
    if (status == LS_OK && nbytes != sizeof *round) return ls_fail(LS_ERR_INVALID, "host 0 published no valid store");
    return status;
}

ls_status ddp_agents_meet(ddp_agents *a, ls_status so_far, ddp_round *round, ddp_store_server **server) {
    char key[DDP_AGENT_KEY_CAPACITY];
    int world_size = 0, first = 0;
    entry *all = calloc((size_t)a->count, sizeof *all);
    *server = NULL;
    if (!all) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to find the other hosts");
    a->rounds++;
    ddp_store_set_timeout(a->store, a->options->join_timeout_s);
    const entry mine = describe_self(a, so_far);
    ls_status status = ddp_store_set(a->store, ddp_agents_key(key, a, "entry", a->node), &mine, sizeof mine);
    if (status == LS_OK && so_far == LS_OK) status = read_entries(a, all);
    if (status == LS_OK && so_far == LS_OK) status = check_entries(a, all, &world_size);
    if (so_far != LS_OK) status = so_far;
    for (int i = 0; i < a->node; i++) first += all[i].nproc;
    free(all);
    if (status != LS_OK) return status;
    round->world_size = world_size;
    status = a->node == 0 ? serve_ranks(a, round, server) : fetch_round(a, round);
    round->first_rank = first;
    return status;
}
