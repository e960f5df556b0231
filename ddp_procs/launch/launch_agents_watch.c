/* launch_agents_watch: the thread by which an agent and the others watch each other while ranks run.
 *   idea  : every BEAT_MS each agent increments its own counter in the agents' store, and reads whether the round has
 *           failed and whether it is over. Host 0, whose process serves the store, watches the counters, and decides
 *           both
 *   cost  : three requests to the store in each interval; three for each host on host 0
 *   order : an agent sets how its ranks failed before it sets that they have ended; host 0 reads in the opposite order.
 *           The first failure that it finds is the round's
 *   fails : a host whose connection ends is lost at once; a host whose counter stops is lost after lost_s. An agent
 *           without an answer from host 0 treats host 0 as lost, and ends by itself. So both sides of a network
 *           partition end */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/launch_agents_internal.h"

enum { BEAT_MS = 250 };
#define GONE_US 1e6  /* without a connection: an agent that lost its connection makes a new one sooner */
#define STALL_US 1e6 /* between two beats: a longer delay means that this process could not run */

static void wake(int fd) {
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) return; /* the counter is full: the thread is awake */
}

/* --- what host 0 decides ------------------------------------------------------------------------------------------------ */

/* Sets the round's ending; only the first one counts. */
static ls_status decide(ddp_agents *a, const ddp_ending *ending) {
    char key[DDP_AGENT_KEY_CAPACITY];
    if (a->decided) return LS_OK;
    a->decided = true;
    return ddp_store_set(a->store, ddp_agents_key(key, a, "ending", -1), ending, sizeof *ending);
}

/* A host is lost. In an elastic job the others continue, if they have met. */
static ls_status report_host_lost(ddp_agents *a, int node, const char *how) {
    char host[DDP_HOST_TEXT_CAPACITY];
    ddp_ending ending = {.node = node, .rank = -1, .status = LS_ERR_PEER};
    snprintf(ending.text, sizeof ending.text, "%s %s", ddp_agents_host(a, node, host), how);
    a->others[node].lost = true;
    if (!a->options->elastic || !ddp_agents_have_met(a)) return decide(a, &ending);
    ls_warn("%s; the ranks of the other hosts continue without that host", ending.text);
    return LS_OK;
}

/* Time in which this process did not run either, as on a suspended machine, does not count as silence. */
static double silence_us(ddp_agents *a, int node, double now_us) {
    double stalled_us = now_us - a->watched_us - STALL_US;
    if (stalled_us > 0) a->others[node].seen_us += stalled_us;
    return now_us - a->others[node].seen_us;
}

static ls_status watch_others(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY], silent[96];
    double now_us = ls_now_us();
    ls_status status = LS_OK;
    for (int i = 1; status == LS_OK && i < a->count; i++) {
        int64_t beats = 0;
        if (a->others[i].lost || a->others[i].done) continue;
        status = ddp_store_add(a->store, ddp_agents_key(key, a, "beat", i), 0, &beats);
        if (status == LS_OK && beats != a->others[i].beats) {
            a->others[i].beats = beats;
            a->others[i].seen_us = now_us;
        }
        double silent_us = silence_us(a, i, now_us);
        bool gone = silent_us > GONE_US && !ddp_store_server_is_present(a->server, i);
        if (status != LS_OK || (!gone && silent_us < a->options->lost_s * 1e6)) continue;
        snprintf(silent, sizeof silent, "has been silent for %.3g s: its machine or the network does not answer",
                 silent_us * 1e-6);
        status = report_host_lost(a, i, gone ? "is lost: its ddprun has ended, or the connection to it" : silent);
    }
    a->watched_us = now_us;
    return status;
}

/* Reads an agent's value, if it is set. */
static ls_status fetch_if_set(ddp_agents *a, const char *name, int node, void *value, size_t capacity, bool *exists) {
    char key[DDP_AGENT_KEY_CAPACITY];
    size_t nbytes;
    ddp_agents_key(key, a, name, node);
    ls_status status = ddp_store_check(a->store, key, exists);
    return status == LS_OK && *exists ? ddp_store_get(a->store, key, value, capacity, &nbytes) : status;
}

/* Reads the agents' endings, then whether all hosts' ranks have ended: each agent sets its ending before it is done. */
static ls_status decide_end(ddp_agents *a) {
    ls_status status = LS_OK;
    bool all = true, told = false;
    int good = 0;
    for (int i = 0; status == LS_OK && i < a->count; i++) {
        if (!a->others[i].done)
            status = fetch_if_set(a, "done", i, &a->others[i].good, sizeof(bool), &a->others[i].done);
        all = all && (a->others[i].done || a->others[i].lost);
        good += a->others[i].done && a->others[i].good;
    }
    for (int i = 0; status == LS_OK && i < a->count && !a->decided; i++) {
        ddp_ending ending;
        status = fetch_if_set(a, "told", i, &ending, sizeof ending, &told);
        if (status == LS_OK && told) status = decide(a, &ending);
    }
    if (status != LS_OK || !all) return status;
    char key[DDP_AGENT_KEY_CAPACITY];
    bool enough = good == a->count || (a->options->elastic && good > 0);
    if (!enough)
        status = decide(a, &(ddp_ending){.rank = -1,
                                         .status = LS_ERR_SYSTEM,
                                         .text = "no rank has ended with status 0: see their errors"});
    return status == LS_OK ? ddp_store_set(a->store, ddp_agents_key(key, a, "over", -1), "", 0) : status;
}

/* --- all agents --------------------------------------------------------------------------------------------------- */

static void take_ending(ddp_agents *a, const ddp_ending *ending) {
    pthread_mutex_lock(&a->lock);
    if (!a->has_ending) a->ending = *ending;
    a->has_ending = true;
    a->ending.text[sizeof a->ending.text - 1] = '\0';
    pthread_mutex_unlock(&a->lock);
    wake(a->wake_fd);
}

static void take_over(ddp_agents *a) {
    pthread_mutex_lock(&a->lock);
    a->all_done = true;
    pthread_mutex_unlock(&a->lock);
    wake(a->wake_fd);
}

static ls_status fetch_ending(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    ddp_ending ending;
    bool over = false, ended = false;
    ls_status status = ddp_store_check(a->store, ddp_agents_key(key, a, "over", -1), &over);
    if (status == LS_OK && !a->has_ending) status = fetch_if_set(a, "ending", -1, &ending, sizeof ending, &ended);
    if (status == LS_OK && ended) take_ending(a, &ending);
    if (status == LS_OK && over) take_over(a);
    return status;
}

/* Whether the ranks of an elastic job have met. */
static ls_status fetch_meeting_state(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    bool met = a->ranks_server && ddp_store_server_has_met(a->ranks_server);
    ddp_agents_key(key, a, "met", -1);
    ls_status status = met ? ddp_store_set(a->store, key, "", 0) : ddp_store_check(a->store, key, &met);
    pthread_mutex_lock(&a->lock);
    a->have_met = a->have_met || met;
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* Publishes the caller's news. May be repeated after a failure: values are set, not incremented. */
static ls_status publish_news(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    pthread_mutex_lock(&a->lock);
    bool tells = a->has_told && !a->told_others, finishes = a->finished && !a->told_done, done = a->done;
    pthread_mutex_unlock(&a->lock);
    ls_status status = LS_OK;
    if (tells) status = ddp_store_set(a->store, ddp_agents_key(key, a, "told", a->node), &a->told, sizeof a->told);
    a->told_others = a->told_others || (tells && status == LS_OK);
    if (status == LS_OK && finishes)
        status = ddp_store_set(a->store, ddp_agents_key(key, a, "done", a->node), &done, sizeof done);
    a->told_done = a->told_done || (finishes && status == LS_OK);
    return status;
}

static ls_status send_heartbeat(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    int64_t beats;
    ls_status status = publish_news(a);
    if (status == LS_OK) status = ddp_store_add(a->store, ddp_agents_key(key, a, "beat", a->node), 1, &beats);
    if (status == LS_OK && a->options->elastic && !a->have_met) status = fetch_meeting_state(a);
    if (status == LS_OK && a->node == 0) status = watch_others(a);
    if (status == LS_OK && a->node == 0) status = decide_end(a);
    return status == LS_OK ? fetch_ending(a) : status;
}

/* --- the thread ----------------------------------------------------------------------------------------------------------- */

/* After this the agent makes no more requests to the store. */
static void report_host_0_lost(ddp_agents *a, ls_status how) {
    ddp_ending ending = {.node = 0, .rank = -1, .status = LS_ERR_PEER};
    char host[DDP_HOST_TEXT_CAPACITY], silent[80] = "its ddprun has ended, or the connection to it";
    if (how == LS_ERR_TIMEOUT)
        snprintf(silent, sizeof silent, "no answer for %g s: its machine or the network does not answer",
                 a->options->lost_s);
    snprintf(ending.text, sizeof ending.text, "%s at %s is lost, which serves the job: %s", ddp_agents_host(a, 0, host),
             a->place, silent);
    take_ending(a, &ending);
    take_over(a);
}

static bool is_over(ddp_agents *a) {
    pthread_mutex_lock(&a->lock);
    bool over = a->stop || a->all_done;
    pthread_mutex_unlock(&a->lock);
    return over;
}

/* Waits until the next beat, or until the caller has news. True: that was the last beat. */
static bool await_beat(ddp_agents *a) {
    struct pollfd news = {.fd = a->news_fd, .events = POLLIN};
    uint64_t count;
    if (!is_over(a) && poll(&news, 1, BEAT_MS) == 1) (void)!read(a->news_fd, &count, sizeof count);
    return is_over(a);
}

/* Host 0 has half of lost_s for an answer, twice: if this machine was suspended, the first half is over when it wakes. */
static void *watch(void *argument) {
    ddp_agents *a = argument;
    char why[600] = "";
    int late = 0;
    do {
        ls_log_sink before = ls_log_capture(why, sizeof why);
        ls_status status = send_heartbeat(a);
        ls_log_restore(before);
        late = status == LS_ERR_TIMEOUT ? late + 1 : 0;
        if (status != LS_OK && late != 1) report_host_0_lost(a, status);
    } while (!await_beat(a));
    return NULL;
}

/* --- the caller ------------------------------------------------------------------------------------------------------------- */

ls_status ddp_agents_watch(ddp_agents *a, const ddp_store_server *server) {
    sigset_t all, before;
    a->ranks_server = server;
    a->told_others = a->told_done = a->decided = false;
    a->watched_us = ls_now_us();
    a->stop = a->has_told = a->finished = a->done = a->has_ending = a->all_done = a->have_met = false;
    for (int i = 0; i < a->count; i++) {
        a->others[i].beats = 0;
        a->others[i].seen_us = ls_now_us();
        a->others[i].lost = a->others[i].done = a->others[i].good = false;
    }
    ddp_store_set_timeout(a->store, a->options->lost_s / 2);
    a->runs = true; /* set first: the thread reads fields next to it */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&a->thread, NULL, watch, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure == 0) return LS_OK;
    a->runs = false;
    return ls_fail(LS_ERR_SYSTEM, "cannot watch the other hosts: %s", strerror(failure));
}

int ddp_agents_fd(const ddp_agents *a) { return a->wake_fd; }

void ddp_agents_report(ddp_agents *a, const ddp_ending *ending) {
    pthread_mutex_lock(&a->lock);
    if (!a->has_told) a->told = *ending;
    a->has_told = true;
    pthread_mutex_unlock(&a->lock);
    wake(a->news_fd);
}

void ddp_agents_finish(ddp_agents *a, bool done) {
    pthread_mutex_lock(&a->lock);
    a->done = done;
    a->finished = true;
    pthread_mutex_unlock(&a->lock);
    wake(a->news_fd);
}

bool ddp_agents_get_ending(ddp_agents *a, ddp_ending *ending) {
    uint64_t wakes;
    (void)!read(a->wake_fd, &wakes, sizeof wakes);
    pthread_mutex_lock(&a->lock);
    bool has = a->has_ending;
    if (has) *ending = a->ending;
    pthread_mutex_unlock(&a->lock);
    return has;
}

bool ddp_agents_all_done(ddp_agents *a) {
    pthread_mutex_lock(&a->lock);
    bool all = a->all_done;
    pthread_mutex_unlock(&a->lock);
    return all;
}

bool ddp_agents_have_met(ddp_agents *a) {
    pthread_mutex_lock(&a->lock);
    bool met = a->have_met;
    pthread_mutex_unlock(&a->lock);
    return met;
}

void ddp_agents_stop(ddp_agents *a) {
    if (!a->runs) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_mutex_unlock(&a->lock);
    wake(a->news_fd);
    pthread_join(a->thread, NULL);
    a->runs = false;
}
