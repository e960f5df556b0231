/* Tests lab 08's lock: which thread holds it, how often, in which order, what happens if a turn never comes, and what a
 * trace records. */
#include "common/base/probe.h"

#include <stdio.h>
#include <string.h>

#include "common/device/host_lock.h"
#include "labs/08-lock/turns.h"
#include "labs/course/probe/probe.h"

#define US 30.0

/* No thread waits this long: the clock is simulated. Only the deadlines of waits are checked. */
#define TIMEOUT_S 1000.25

enum { SEEDS = 6 };

static void run(probe *p, struct turns *t, int threads, int asks_of_each, int lost) {
    *t = (struct turns){
        .threads = threads, .asks_of_each = asks_of_each, .turns_before = t->turns_before, .us = US, .lost = lost};
    t->seed = probe_draw(p, 1000000);
    ls_set_wait_timeout_s(TIMEOUT_S);
    probe_must(p, "the threads", turns_run(t));
}

/* Each case in several orders of the threads. */
static void every_case(probe *p, void (*look)(probe *p, const struct turns *t)) {
    struct turns t = {0};
    for (int threads = 1; threads <= TURNS_THREADS; threads++)
        for (int seed = 0; seed < SEEDS; seed++) {
            probe_case(p, "%d threads, 5 launches each, the %d. order", threads, seed + 1);
            run(p, &t, threads, 5, -1);
            look(p, &t);
        }
}

static void see_holders(probe *p, const struct turns *t) {
    probe_see_count(p, "threads that had the lock at the same time, at most", (uint64_t)t->most_holders);
}

/* 16-bit numbers wrap after 65,536. */
static void after_many_turns(probe *p, void (*look)(probe *p, const struct turns *t)) {
    for (int threads = 2; threads <= TURNS_THREADS; threads++) {
        struct turns t = {.turns_before = (1 << 16) - 7};
        probe_case(p, "%d threads, 5 launches each, after %d launches", threads, t.turns_before);
        run(p, &t, threads, 5, -1);
        look(p, &t);
    }
}

static void alone(probe *p) {
    every_case(p, see_holders);
    after_many_turns(p, see_holders);
    int doubles;
    probe_case(p, "4 threads, side by side");
    probe_must(p, "the threads", turns_crowd(&doubles));
    probe_see(p, "numbers that were drawn twice", "%s", doubles > 0 ? "some" : "none");
}

/* --- each launch one turn ------------------------------------------------------------------------------------------ */

static void see_turns(probe *p, const struct turns *t) {
    int whole = 0, none = 0, more = 0;
    for (int i = 0; i < t->ask_count; i++) {
        whole += t->asks[i].busy == 1;
        none += t->asks[i].busy == 0;
        more += t->asks[i].busy > 1;
    }
    for (int i = 0; i < t->ask_count; i++)
        if (t->asks[i].status != LS_OK || i == 0)
            probe_see(p, probe_name(p, "launch %d", i), "%s", ls_status_text(t->asks[i].status));
    probe_see_count(p, "launches that had the lock once, for the whole time", (uint64_t)whole);
    probe_see_count(p, "launches without a whole turn", (uint64_t)none);
    probe_see_count(p, "launches with several", (uint64_t)more);
}

static void turns(probe *p) { every_case(p, see_turns); }

/* --- judged only where each launch had its turn ------------------------------------------------------------------------- */

/* The checks below do not repeat what `alone` and `turns` report. */
static bool is_whole(const struct turns *t) {
    bool whole = t->most_holders <= 1;
    for (int i = 0; i < t->ask_count; i++) whole = whole && t->asks[i].status == LS_OK && t->asks[i].busy == 1;
    return whole;
}

static void see_if(probe *p, bool is_judged, const char *what, int value, int right) {
    probe_see_count(p, what, (uint64_t)(is_judged ? value : right));
}

static void see_any_whole(probe *p, bool any) {
    probe_see(p, "whether each launch had one whole turn, at least where one thread is alone", "%s",
              any ? "yes" : "no");
}

/* --- first come, first served -------------------------------------------------------------------------------------- */

static bool any_whole; /* so far, in this check */

static void see_order(probe *p, const struct turns *t) {
    bool judged = is_whole(t);
    int overtaken = 0;
    for (int i = 0; i < t->begun_count; i++) overtaken += t->begun[i] != i;
    see_if(p, judged, "launches out of the order in which they came", overtaken, 0);
    any_whole = any_whole || judged;
}

static void in_order(probe *p) {
    every_case(p, see_order);
    see_any_whole(p, any_whole);
}

/* --- a turn that never comes --------------------------------------------------------------------------------------- */

static void see_loss(probe *p, const struct turns *t, bool judged) {
    int served = 0, other = 0, waited = 0;
    ls_status status = judged ? t->asks[t->lost].status : LS_ERR_TIMEOUT;
    probe_see(p, "what the launch returns whose turn does not come", "%s", ls_status_text(status));
    for (int i = t->lost; i < t->ask_count; i++) {
        served += t->asks[i].busy > 0;
        other += t->asks[i].status != LS_ERR_TIMEOUT;
        waited += i >= t->asked_before_loss && t->asks[i].waits > 0;
    }
    see_if(p, judged, "turns of that launch and of those that came after it", served, 0);
    see_if(p, judged, "of these, launches with another status than a timeout", other, 0);
    see_if(p, judged, "launches that wait, though they have come when it was over", waited, 0);
    see_if(p, judged, "threads that report it", t->reports, 1);
    see_if(p, judged, "threads that had the lock at the same time, at most", t->most_holders, 1);
}

static void deadline(probe *p) {
    struct turns t = {0};
    bool any = false;
    for (int threads = 1; threads <= 4; threads++) {
        probe_case(p, "%d threads, how they wait", threads);
        run(p, &t, threads, 5, -1);
        probe_see_count(p, "waits whose deadline is not ls_wait_timeout_s() from now", (uint64_t)t.wrong_deadlines);
        probe_see_count(p, "waits that do not spin for ls_device_spin_us()", (uint64_t)t.wrong_spins);
    }
    for (int threads = 1; threads <= 5; threads++)
        for (int lost = 1; lost <= threads; lost++) {
            run(p, &t, threads, 4, -1);
            bool judged = is_whole(&t);
            any = any || judged;
            probe_case(p, "%d threads, 4 launches each, the turn of launch %d does not come", threads, lost);
            run(p, &t, threads, 4, lost);
            see_loss(p, &t, judged);
            probe_case(p, "%d threads, the lock is reset after that", threads);
            run(p, &t, threads, 2, -1);
            int whole = 0;
            for (int i = 0; i < t.ask_count; i++) whole += t.asks[i].status == LS_OK && t.asks[i].busy == 1;
            see_if(p, judged, "launches that had the lock once, for the whole time", whole, 2 * threads);
        }
    see_any_whole(p, any);
}

/* --- what a trace records ------------------------------------------------------------------------------------------ */

static void see_records(probe *p, const struct turns *t, bool probing) {
    bool judged = is_whole(t);
    int records = probing ? t->ask_count : 0;
    see_if(p, judged, "records of a LOCK", t->locks, records);
    see_if(p, judged, "records of an UNLOCK", t->unlocks, records);
    see_if(p, judged, "records that another thread's lie between", t->torn, 0);
    see_if(p, judged, "records of an UNLOCK that begin or end before the turn is over", t->hasty, 0);
    see_if(p, judged, "records of a LOCK that begin only after the wait", t->late, 0);
    see_if(p, judged, "records of a LOCK that end only after the turn has begun", t->slow, 0);
    see_if(p, judged, "locks that they name", t->objects, probing);
    see_if(p, judged, "records with another name than \"host lock\"", t->other_labels, 0);
}

static void records(probe *p) {
    struct turns t = {0};
    bool any = false;
    for (int probing = 0; probing < 2; probing++)
        for (int threads = 1; threads <= TURNS_THREADS; threads++)
            for (int seed = 0; seed < SEEDS; seed++) {
                probe_case(p, "%d threads, 5 launches each, probes %s, the %d. order", threads, probing ? "on" : "off",
                           seed + 1);
                if (probing) ls_probe_start(false);
                run(p, &t, threads, 5, -1);
                if (probing) ls_probe_stop();
                see_records(p, &t, probing);
                any = any || is_whole(&t);
                ls_probe_drop();
            }
    see_any_whole(p, any);
    run(p, &t, 3, 2, -1);
    bool judged = is_whole(&t);
    probe_case(p, "3 threads, probes on, the turn of launch 2 does not come");
    ls_probe_start(false);
    run(p, &t, 3, 2, 2);
    ls_probe_stop();
    see_if(p, judged, "records of a LOCK", t.locks, 2);
    see_if(p, judged, "records of an UNLOCK", t.unlocks, 2);
    ls_probe_drop();
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"alone", alone},       {"turns", turns},     {"order", in_order},
                                         {"deadline", deadline}, {"records", records}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
