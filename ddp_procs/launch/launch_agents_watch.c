/* launch_agents_watch: the thread by which an agent and the others watch each other while ranks run.
 *   idea  : every BEAT_MS each agent counts up a number of its own in the agents' store, and looks whether the round has
 *           failed and whether all hosts are done. Host 0, whose process has the store, watches the numbers
 *   cost  : four requests to the store in each interval
 *   order : the first ending that is set is the round's
 *   fails : a host whose connection ends is lost at once, one whose number stands still is after lost_s; an agent
 *           that gets no answer from host 0 takes that for lost, and ends by itself. So each side of a cut ends */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/launch_agents_internal.h"

enum { BEAT_MS = 250 };
#define GONE_US 1e6 /* without a connection: an agent that lost it makes a new one sooner */

static void wake_caller(const ddp_agents *a) {
    uint64_t one = 1;
    if (write(a->wake_fd, &one, sizeof one) < 0) return; /* it is awake */
}

/* --- endings ------------------------------------------------------------------------------------------------------------ */

static void take_ending(ddp_agents *a, const ddp_ending *ending) {
    pthread_mutex_lock(&a->lock);
    if (!a->has_ending) a->ending = *ending;
    a->has_ending = true;
    pthread_mutex_unlock(&a->lock);
    wake_caller(a);
}

/* Unless another agent was first. */
static ls_status publish_ending(ddp_agents *a, const ddp_ending *ending) {
    char key[DDP_AGENT_KEY_CAPACITY];
    int64_t place = 0;
    ls_status status = ddp_store_add(a->store, ddp_agents_key(key, a, "endings", -1), 1, &place);
    if (status != LS_OK || place > 1) return status;
    return ddp_store_set(a->store, ddp_agents_key(key, a, "ending", -1), ending, sizeof *ending);
}

static ls_status look_for_ending(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    bool exists = false;
    size_t nbytes;
    static _Thread_local ddp_ending ending;
    ddp_agents_key(key, a, "ending", -1);
    ls_status status = ddp_store_check(a->store, key, &exists);
    if (status != LS_OK || !exists) return status;
    status = ddp_store_get(a->store, key, &ending, sizeof ending, &nbytes);
    if (status != LS_OK) return status;
    ending.text[sizeof ending.text - 1] = '\0';
    take_ending(a, &ending);
    return LS_OK;
}

/* --- who is there --------------------------------------------------------------------------------------------------------- */

static ls_status count_done(ddp_agents *a, int node) {
    char key[DDP_AGENT_KEY_CAPACITY];
    int64_t count;
    ls_status status = ddp_store_set(a->store, ddp_agents_key(key, a, "done", node), "", 0);
    return status == LS_OK ? ddp_store_add(a->store, ddp_agents_key(key, a, "done", -1), 1, &count) : status;
}

/* Host 0: one is lost. Of an elastic job the others go on, once they have met. */
static ls_status lose(ddp_agents *a, int node, const char *how) {
    char host[DDP_HOST_TEXT_CAPACITY], key[DDP_AGENT_KEY_CAPACITY];
    ddp_ending ending = {.node = node, .rank = -1, .status = LS_ERR_PEER};
    bool was_done = false;
    snprintf(ending.text, sizeof ending.text, "%s %s", ddp_agents_host(a, node, host), how);
    a->others[node].lost = true;
    ls_status status = ddp_store_check(a->store, ddp_agents_key(key, a, "done", node), &was_done);
    if (status != LS_OK || was_done) return status;
    if (a->options->elastic && ddp_agents_have_met(a))
        ls_warn("%s; the ranks of the other hosts go on without it", ending.text);
    else
        status = publish_ending(a, &ending);
    return status == LS_OK ? count_done(a, node) : status;
}

static ls_status watch_others(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY], silent[96];
    double now_us = ls_now_us();
    ls_status status = LS_OK;
    for (int i = 1; status == LS_OK && i < a->count; i++) {
        int64_t beats = 0;
        if (a->others[i].lost) continue;
        status = ddp_store_add(a->store, ddp_agents_key(key, a, "beat", i), 0, &beats);
        if (status == LS_OK && beats != a->others[i].beats) {
            a->others[i].beats = beats;
            a->others[i].seen_us = now_us;
        }
        double silent_us = now_us - a->others[i].seen_us;
        bool gone = silent_us > GONE_US && !ddp_store_server_is_present(a->server, i);
        if (status != LS_OK || (!gone && silent_us < a->options->lost_s * 1e6)) continue;
        snprintf(silent, sizeof silent, "has not been heard of for %.3g s: it, or the network, does not answer",
                 silent_us * 1e-6);
        status = lose(a, i, gone ? "is lost: its ddprun has ended, or the connection to it" : silent);
    }
    return status;
}

/* --- the thread ----------------------------------------------------------------------------------------------------------- */

static ls_status tell_met(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    bool met = false;
    ddp_agents_key(key, a, "met", -1);
    ls_status status = LS_OK;
    if (a->ranks_server && !a->published_met && ddp_store_server_has_met(a->ranks_server)) {
        a->published_met = true;
        status = ddp_store_set(a->store, key, "", 0);
    }
    if (status == LS_OK) status = ddp_store_check(a->store, key, &met);
    pthread_mutex_lock(&a->lock);
    a->have_met = a->have_met || met;
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* What the caller wants the others to know. */
static ls_status tell_others(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    int64_t count;
    pthread_mutex_lock(&a->lock);
    bool tells = a->has_told && !a->told_others, finished = a->finished, done = a->done;
    pthread_mutex_unlock(&a->lock);
    ls_status status = tells ? publish_ending(a, &a->told) : LS_OK;
    a->told_others = a->told_others || tells;
    if (status != LS_OK || !finished || a->counted) return status;
    a->counted = true;
    if (done) status = ddp_store_add(a->store, ddp_agents_key(key, a, "good", -1), 1, &count);
    return status == LS_OK ? count_done(a, a->node) : status;
}

/* All hosts' ranks have ended. Of an elastic job one has to be done. */
static ls_status look_for_end(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    int64_t done = 0, good = 0;
    ls_status status = ddp_store_add(a->store, ddp_agents_key(key, a, "done", -1), 0, &done);
    if (status != LS_OK || done < a->count) return status;
    status = look_for_ending(a); /* it was set before the last host was done */
    if (status == LS_OK) status = ddp_store_add(a->store, ddp_agents_key(key, a, "good", -1), 0, &good);
    if (status != LS_OK) return status;
    if (good == 0)
        take_ending(a, &(ddp_ending){.rank = -1, .status = LS_ERR_SYSTEM, .text = "the ranks of all hosts have failed"});
    pthread_mutex_lock(&a->lock);
    a->all_done = true;
    pthread_mutex_unlock(&a->lock);
    wake_caller(a);
    return LS_OK;
}

static ls_status beat(ddp_agents *a) {
    char key[DDP_AGENT_KEY_CAPACITY];
    int64_t beats;
    ls_status status = tell_others(a);
    if (status == LS_OK) status = ddp_store_add(a->store, ddp_agents_key(key, a, "beat", a->node), 1, &beats);
    if (status == LS_OK && a->node == 0) status = watch_others(a);
    if (status == LS_OK && a->options->elastic) status = tell_met(a);
    if (status == LS_OK) status = look_for_ending(a);
    return status == LS_OK ? look_for_end(a) : status;
}

/* The others are not asked any more. */
static void lose_host_0(ddp_agents *a, ls_status how) {
    ddp_ending ending = {.node = 0, .rank = -1, .status = LS_ERR_PEER};
    char host[DDP_HOST_TEXT_CAPACITY], silent[80] = "its ddprun has ended, or the connection to it";
    if (how == LS_ERR_TIMEOUT)
        snprintf(silent, sizeof silent, "nothing has come back for %g s: it, or the network, does not answer",
                 a->options->lost_s);
    snprintf(ending.text, sizeof ending.text, "%s at %s is lost, which serves the job: %s", ddp_agents_host(a, 0, host),
             a->place, silent);
    take_ending(a, &ending);
    pthread_mutex_lock(&a->lock);
    a->all_done = true;
    pthread_mutex_unlock(&a->lock);
    wake_caller(a);
}

static void *watch(void *argument) {
    ddp_agents *a = argument;
    char why[600] = "";
    bool over = false;
    while (!over) {
        ls_log_sink before = ls_log_capture(why, sizeof why);
        ls_status status = beat(a);
        ls_log_restore(before);
        if (status != LS_OK) lose_host_0(a, status);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += BEAT_MS * 1000000L;
        if (until.tv_nsec >= 1000000000L) until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000L};
        pthread_mutex_lock(&a->lock);
        if (!a->stop && !a->all_done && !(a->has_told && !a->told_others) && !(a->finished && !a->counted))
            pthread_cond_timedwait(&a->changed, &a->lock, &until);
        over = a->stop || a->all_done;
        pthread_mutex_unlock(&a->lock);
    }
    return NULL;
}

/* --- the caller ------------------------------------------------------------------------------------------------------------- */

ls_status ddp_agents_watch(ddp_agents *a, const ddp_store_server *server) {
    sigset_t all, before;
    a->ranks_server = server;
    a->told_others = a->counted = a->published_met = false;
    a->stop = a->has_told = a->finished = a->done = a->has_ending = a->all_done = a->have_met = false;
    for (int i = 0; i < a->count; i++) {
        a->others[i].beats = 0;
        a->others[i].seen_us = ls_now_us();
        a->others[i].lost = false;
    }
    ddp_store_set_timeout(a->store, a->options->lost_s);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&a->thread, NULL, watch, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    a->runs = failure == 0;
    return a->runs ? LS_OK : ls_fail(LS_ERR_SYSTEM, "cannot watch the other hosts: %s", strerror(failure));
}

int ddp_agents_fd(const ddp_agents *a) { return a->wake_fd; }

void ddp_agents_tell(ddp_agents *a, const ddp_ending *ending) {
    pthread_mutex_lock(&a->lock);
    if (!a->has_told) a->told = *ending;
    a->has_told = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

void ddp_agents_finish(ddp_agents *a, bool done) {
    pthread_mutex_lock(&a->lock);
    a->done = done;
    a->finished = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

bool ddp_agents_hear(ddp_agents *a, ddp_ending *ending) {
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
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    a->runs = false;
}
