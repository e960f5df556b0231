/* One thread simulates a group: it sets what the other ranks have done, and then waits as one of them. So the result of
 * the wait does not depend on time, except for late ranks, which a helper thread simulates.
 *
 * Events during the wait's patrol are simulated, too: the patrol calls poll(), which this file replaces. */
#define _GNU_SOURCE
#include "labs/15-failures/waits.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

enum { MOST_RANKS = LS_COMM_MAX_RANKS, DRAWN_RANKS = 12 };
#define SHORT_S 0.06 /* for deadlines that pass; there is a patrol every 0.05 s */
#define LONG_S 10.0  /* for deadlines that do not pass */

/* The state of a rank other than the waiting one: its letter in `fates`. */
enum fate { CAME = 'C', AWAY = 'a', DIED = 'D', LEFT = 'L', CAME_AND_DIED = 'd', CAME_AND_LEFT = 'l' };

struct group {
    ls_comm *rank[LS_COMM_MAX_RANKS];
    int ranks, self;
    char fates[MOST_RANKS + 1]; /* of each rank; the waiting one's is ignored */
    double timeout_s;
};

static const ls_announcement what = {
    .sequence = 7, .count = 1000, .kind = LS_OPERATION_ALL_REDUCE, .dtype = LS_FP32, .op = LS_REDUCE_SUM, .root = -1};

static void open_group(probe *p, struct group *g) {
    const ls_comm_options options = {.world_size = g->ranks, .timeout_s = g->timeout_s};
    probe_must(p, "a group", ls_comm_create_threads(g->rank, &options));
}

static void close_group(struct group *g) {
    for (int r = 0; r < g->ranks; r++) ls_comm_destroy(g->rank[r]);
}

enum { FATES_CAPACITY = 1024 };

/* "; rank 0 came; ranks 2, 3 died" */
static const char *fates_text(const struct group *g, char text[FATES_CAPACITY]) {
    static const struct {
        char fate;
        const char *words;
    } told[] = {{CAME, "came"},
                {CAME_AND_DIED, "came, then died"},
                {CAME_AND_LEFT, "came, then left"},
                {DIED, "died"},
                {LEFT, "left"},
                {AWAY, "not yet"}};
    size_t length = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        char ranks[LS_RANKS_TEXT_CAPACITY];
        bool chosen[LS_COMM_MAX_RANKS] = {false}, any = false;
        for (int r = 0; r < g->ranks; r++) any |= chosen[r] = r != g->self && g->fates[r] == told[i].fate;
        if (any)
            length += (size_t)snprintf(text + length, FATES_CAPACITY - length, "; %s %s",
                                       ls_ranks_text(ranks, chosen, g->ranks), told[i].words);
    }
    return text;
}

static ls_comm *self(const struct group *g) { return g->rank[g->self]; }

/* The rank reaches the step that the waiting one is about to reach. */
static void come(const struct group *g, int r, bool rings) {
    ls_comm *comm = g->rank[r];
    uint64_t step = ++comm->channel[LS_CHANNEL_STREAM].step;
    atomic_store(&ls_segment_arrival(comm, LS_CHANNEL_STREAM, r, step)->step, step);
    if (rings) ls_flag_ring(&comm->segment->channel[LS_CHANNEL_STREAM].bell);
}

static void set_fate(const struct group *g, int r, char fate) {
    if (fate == CAME || fate == CAME_AND_DIED || fate == CAME_AND_LEFT) come(g, r, true);
    int32_t left = fate == DIED || fate == CAME_AND_DIED   ? LS_DIED
                   : fate == LEFT || fate == CAME_AND_LEFT ? LS_LEFT
                                                           : LS_PRESENT;
    atomic_store(&self(g)->segment->slot[r].left, left);
}

/* --- events during a wait ------------------------------------------------------------------------------------------ */

/* The rank that reaches its step at the next poll(), and whether it then leaves, or that breaks the group; NULL:
 * none. */
static struct meanwhile {
    const struct group *group;
    int rank;
    bool leaves, by_flag;
    ls_status breaks; /* LS_OK: it reaches its step */
} meanwhile;

enum { AWAITED_STEP = 3 };

static void break_in_silence(ls_comm *comm, ls_status status, const char *reason) {
    ls_log_sink before = ls_log_capture((char[512]){0}, 512);
    (void)ls_comm_break(comm, status, NULL, "%s", reason);
    ls_log_restore(before);
}

static void act(const struct meanwhile *now) {
    if (now->breaks != LS_OK)
        break_in_silence(now->group->rank[now->rank], now->breaks, "something else is wrong");
    else if (now->by_flag)
        ls_comm_step_done(now->group->rank[now->rank], AWAITED_STEP);
    else
        come(now->group, now->rank, true);
    if (now->leaves) atomic_store(&self(now->group)->segment->slot[now->rank].left, LS_LEFT);
}

int poll(struct pollfd *files, nfds_t count, int timeout_ms) {
    const struct meanwhile now = meanwhile;
    meanwhile.group = NULL;
    if (now.group) act(&now);
    const struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    return (int)syscall(SYS_ppoll, files, count, timeout_ms < 0 ? NULL : &timeout, NULL, (size_t)0);
}

/* --- the result of a wait ------------------------------------------------------------------------------------------ */

static void see_verdict(probe *p, const struct group *g, ls_status status, const char *said) {
    const ls_segment *segment = self(g)->segment;
    bool broken = ls_comm_is_broken(self(g));
    probe_see(p, "how the wait ends", "%s", ls_status_text(status));
    probe_see(p, "what it says", "%s", said[0] ? said : "nothing");
    probe_see(p, "whether the group is broken", "%s", broken ? "yes" : "no");
    if (broken)
        probe_see(p, "who has broken it, and why", "rank %d (%s): %s", (int)segment->broken.rank,
                  ls_status_text((ls_status)segment->broken.status), segment->broken.reason);
}

/* A wait that lasts LONG_S has not returned "at once". After the first such wait no other is begun, since each would
 * take as long. */
static void see_wait(probe *p, const struct group *g) {
    static bool was_late;
    char said[1024];
    if (was_late) return;
    double begin_us = ls_now_us();
    ls_log_sink before = ls_log_capture(said, sizeof said);
    ls_status status = ls_comm_gate(self(g), LS_CHANNEL_STREAM, &what);
    ls_log_restore(before);
    was_late = g->timeout_s >= LONG_S && ls_now_us() - begin_us >= LONG_S * 1e6;
    if (was_late) probe_see(p, "whether it ends before its deadline", "no");
    see_verdict(p, g, status, said);
}

static void see_fates(probe *p, struct group *g) {
    char fates[FATES_CAPACITY];
    probe_case(p, "%d ranks, rank %d waits %g s at most%s", g->ranks, g->self, g->timeout_s, fates_text(g, fates));
    open_group(p, g);
    for (int r = 0; r < g->ranks; r++)
        if (r != g->self) set_fate(g, r, g->fates[r]);
    see_wait(p, g);
    close_group(g);
}

/* Each rank's fate is one of `possible`; at least one rank has not arrived. */
static void see_drawn(probe *p, const char *possible, double timeout_s) {
    struct group g = {.ranks = 2 + (int)probe_draw(p, DRAWN_RANKS - 1), .timeout_s = timeout_s};
    g.self = (int)probe_draw(p, (uint64_t)g.ranks);
    for (int r = 0; r < g.ranks; r++) g.fates[r] = possible[probe_draw(p, strlen(possible))];
    g.fates[g.self == 0 ? 1 : 0] = possible[0];
    g.fates[g.self] = '.';
    see_fates(p, &g);
}

/* The maximum number of ranks, with the fates in turn. */
static void see_all_ranks(probe *p, const char *possible, double timeout_s) {
    struct group g = {.ranks = MOST_RANKS, .self = 33, .timeout_s = timeout_s};
    for (int r = 0; r < g.ranks; r++) g.fates[r] = possible[(size_t)r % strlen(possible)];
    see_fates(p, &g);
}

/* All combinations for two and three ranks, then random ones. */
static void see_small(probe *p, const char *possible, double timeout_s) {
    for (const char *fate = possible; *fate; fate++) {
        struct group g = {.ranks = 2, .fates = {'.', *fate}, .timeout_s = timeout_s};
        see_fates(p, &g);
        for (const char *other = possible; *other; other++) {
            struct group three = {.ranks = 3, .self = 1, .fates = {*fate, '.', *other}, .timeout_s = timeout_s};
            see_fates(p, &three);
        }
    }
}

/* --- ranks that arrive late ---------------------------------------------------------------------------------------- */

struct late {
    const struct group *group;
    bool rings;
    pthread_t thread;
};

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Arrives after some patrols, well before the deadline. */
static void *come_late(void *argument) {
    const struct late *late = argument;
    sleep_ms(180);
    for (int r = 0; r < late->group->ranks; r++)
        if (late->group->fates[r] == AWAY) come(late->group, r, late->rings);
    return NULL;
}

static void see_late(probe *p, struct group *g, bool rings) {
    char fates[FATES_CAPACITY];
    probe_case(p, "%d ranks, rank %d waits %g s at most%s, but after 0.18 s%s", g->ranks, g->self, g->timeout_s,
               fates_text(g, fates), rings ? "" : ", and dies before it can ring the bell");
    open_group(p, g);
    for (int r = 0; r < g->ranks; r++)
        if (r != g->self && g->fates[r] != AWAY) set_fate(g, r, g->fates[r]);
    struct late late = {.group = g, .rings = rings};
    if (pthread_create(&late.thread, NULL, come_late, &late) != 0) probe_must(p, "a thread", LS_ERR_SYSTEM);
    see_wait(p, g);
    pthread_join(late.thread, NULL);
    close_group(g);
}

/* The wait must end; the next check tests which rank it names. */
static void see_end_of_patience(probe *p) {
    struct group g = {.ranks = 2, .fates = ".a", .timeout_s = SHORT_S};
    probe_case(p, "2 ranks, rank 0 waits %g s at most: rank 1 does not come at all", g.timeout_s);
    open_group(p, &g);
    ls_log_sink before = ls_log_capture((char[512]){0}, 512);
    ls_status status = ls_comm_gate(self(&g), LS_CHANNEL_STREAM, &what);
    ls_log_restore(before);
    probe_see(p, "the wait", "%s", status == LS_OK ? "says that all have come" : "fails");
    close_group(&g);
}

void waits_slow(probe *p) {
    see_late(p, &(struct group){.ranks = 2, .fates = ".a", .timeout_s = LONG_S}, true);
    see_late(p, &(struct group){.ranks = 3, .self = 2, .fates = "aa.", .timeout_s = LONG_S}, true);
    see_late(p, &(struct group){.ranks = 4, .self = 1, .fates = "C.da", .timeout_s = LONG_S}, true);
    see_late(p, &(struct group){.ranks = 4, .self = 3, .fates = "lad.", .timeout_s = LONG_S}, true);
    see_late(p, &(struct group){.ranks = 3, .fates = ".Ca", .timeout_s = LONG_S}, false);
    see_end_of_patience(p);
}

/* The last of the ranks reaches its step during the patrol. */
static void see_meanwhile(probe *p, int ranks, bool leaves, double timeout_s) {
    struct group g = {.ranks = ranks, .self = ranks - 1, .timeout_s = timeout_s};
    probe_case(p,
               "%d ranks, rank %d waits %g s at most; all have come but rank 0, which comes%s while it is asked about",
               ranks, g.self, timeout_s, leaves ? " and leaves" : "");
    open_group(p, &g);
    for (int r = 1; r < g.self; r++) set_fate(&g, r, CAME);
    meanwhile = (struct meanwhile){.group = &g, .leaves = leaves};
    see_wait(p, &g);
    meanwhile.group = NULL;
    close_group(&g);
}

/* --- ranks that never arrive --------------------------------------------------------------------------------------- */

void waits_deadline(probe *p) {
    see_small(p, "a", SHORT_S);
    see_small(p, "aC", SHORT_S);
    see_small(p, "adl", SHORT_S); /* a rank that arrived before it died is not missing */
    for (int again = 0; again < 12; again++) see_drawn(p, again % 2 ? "aCdl" : "aC", SHORT_S + (double)again / 1000);
    see_all_ranks(p, "a", SHORT_S);
    see_all_ranks(p, "CCCda", SHORT_S);
}

/* A death is noticed long before the deadline, and is the reason even if the deadline has passed at the first
 * patrol. */
void waits_dead(probe *p) {
    see_small(p, "D", LONG_S);
    see_small(p, "L", LONG_S);
    see_small(p, "DCL", LONG_S);
    for (int again = 0; again < 10; again++) see_drawn(p, again % 2 ? "DCaL" : "LCa", LONG_S);
    for (int again = 0; again < 6; again++) see_drawn(p, again % 2 ? "DCa" : "LDadl", 0.01);
    see_all_ranks(p, "D", LONG_S);
    see_all_ranks(p, "CLadC", LONG_S);
}

/* --- groups that are already broken -------------------------------------------------------------------------------- */

static void see_broken(probe *p, struct group *g, ls_status status, const char *reason) {
    int by = g->ranks - 1;
    char fates[FATES_CAPACITY];
    probe_case(p, "%d ranks, rank 0 waits%s; before, rank %d has broken the group: %s (%s)", g->ranks,
               fates_text(g, fates), by, reason, ls_status_text(status));
    open_group(p, g);
    for (int r = 1; r < g->ranks; r++) set_fate(g, r, g->fates[r]);
    break_in_silence(g->rank[by], status, reason);
    see_wait(p, g);
    close_group(g);
}

/* The last rank breaks the group after the wait has checked that it is whole. */
static void see_broken_meanwhile(probe *p, struct group *g, ls_status status) {
    char fates[FATES_CAPACITY];
    probe_case(p, "%d ranks, rank 0 waits %g s at most%s; while it asks who is lost, rank %d breaks the group (%s)",
               g->ranks, g->timeout_s, fates_text(g, fates), g->ranks - 1, ls_status_text(status));
    open_group(p, g);
    for (int r = 1; r < g->ranks; r++) set_fate(g, r, g->fates[r]);
    meanwhile = (struct meanwhile){.group = g, .rank = g->ranks - 1, .breaks = status};
    see_wait(p, g);
    meanwhile.group = NULL;
    close_group(g);
}

void waits_broken(probe *p) {
    static const char *const fates[] = {".a", ".aa", ".Da", ".LD", ".Ca", ".aDaa", ".daL"};
    static const ls_status reasons[] = {LS_ERR_PEER,   LS_ERR_INVALID, LS_ERR_TIMEOUT,  LS_ERR_NO_MEMORY,
                                        LS_ERR_SYSTEM, LS_ERR_IO,      LS_ERR_DIVERGED, LS_ERR_STOPPED};
    enum { FATES = sizeof fates / sizeof fates[0], REASONS = sizeof reasons / sizeof reasons[0] };
    char reason[64];
    for (int i = 0; i < FATES; i++)
        for (int k = 0; k < REASONS; k++) {
            if (k > 2 && (i + k) % FATES > 0) continue; /* each of the others once */
            struct group g = {.ranks = (int)strlen(fates[i]), .timeout_s = k == 2 ? 0.01 : LONG_S};
            memcpy(g.fates, fates[i], (size_t)g.ranks);
            snprintf(reason, sizeof reason, "number %d is wrong", (int)probe_draw(p, 1000000));
            see_broken(p, &g, reasons[k], reason);
        }
    for (int k = 0; k < REASONS; k += 3) {
        see_broken_meanwhile(p, &(struct group){.ranks = 3, .fates = ".Da", .timeout_s = LONG_S},
                             reasons[(k + 1) % REASONS]);
        see_broken_meanwhile(p, &(struct group){.ranks = 3, .fates = ".aa", .timeout_s = 0.01}, reasons[k]);
    }
}

/* --- which rank delays which --------------------------------------------------------------------------------------- */

/* Ranks wait for one another's steps within an operation: each for the next in `chain`, which begins with rank 0 and
 * ends with a rank that does not wait. `fate` is that of the rank after the first. */
static void see_chain(probe *p, const int *chain, int length, char fate, double timeout_s, bool done_meanwhile) {
    char text[4 * MOST_RANKS] = "";
    struct group g = {.ranks = MOST_RANKS, .timeout_s = timeout_s, .self = chain[0]};
    for (int i = 0, at = 0; i < length; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, i ? " %d" : "%d", chain[i]);
    probe_case(p, "of %d ranks each of these awaits the next: %s; rank %d %s", g.ranks, text, chain[1],
               fate == DIED   ? "is dead"
               : fate == LEFT ? "has left"
                              : "is there");
    open_group(p, &g);
    for (int i = 1; i + 1 < length; i++) {
        ls_rank_slot *slot = &self(&g)->segment->slot[chain[i]];
        atomic_store(&slot->awaited_value, AWAITED_STEP);
        atomic_store(&slot->awaits, chain[i + 1] + 1);
    }
    set_fate(&g, chain[1], fate);
    if (done_meanwhile) meanwhile = (struct meanwhile){.group = &g, .rank = chain[1], .by_flag = true};
    char said[1024];
    ls_log_sink before = ls_log_capture(said, sizeof said);
    ls_status status = ls_comm_await_step(self(&g), chain[1], AWAITED_STEP, &what);
    ls_log_restore(before);
    see_verdict(p, &g, status, said);
    close_group(&g);
}

static void draw_chain(probe *p, int *chain) {
    for (int r = 0; r < MOST_RANKS; r++) chain[r] = r;
    for (int i = MOST_RANKS - 1; i > 0; i--) {
        int j = (int)probe_draw(p, (uint64_t)i + 1), kept = chain[i];
        chain[i] = chain[j];
        chain[j] = kept;
    }
}

void waits_culprit(probe *p) {
    int chain[MOST_RANKS];
    for (int length = 2; length <= 6; length++) {
        draw_chain(p, chain);
        see_chain(p, chain, length, AWAY, SHORT_S, false);
        draw_chain(p, chain);
        see_chain(p, chain, length, AWAY, SHORT_S, false);
    }
    draw_chain(p, chain);
    see_chain(p, chain, MOST_RANKS, AWAY, SHORT_S, false);
    for (int length = 2; length <= 4; length++) { /* a dead rank is named even if it waited for another */
        draw_chain(p, chain);
        see_chain(p, chain, length, DIED, LONG_S, false);
        draw_chain(p, chain);
        see_chain(p, chain, length, LEFT, LONG_S, false);
    }
}

/* A rank that has reached its step after all is not named, whether it was late or has left. */
void waits_again(probe *p) {
    int chain[MOST_RANKS];
    for (int ranks = 2; ranks <= 4; ranks++) {
        see_meanwhile(p, ranks, false, 0.01);
        see_meanwhile(p, ranks, true, LONG_S);
    }
    for (int length = 2; length <= 4; length++) {
        draw_chain(p, chain);
        see_chain(p, chain, length, AWAY, 0.01, true);
        see_chain(p, chain, length, LEFT, LONG_S, true);
    }
}
