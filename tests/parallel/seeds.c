#define _GNU_SOURCE
#include "tests/parallel/seeds.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/base/test.h"

/* The results of each rank. */
struct seed_outcomes {
    ls_status status;                              /* the first failure */
    int done;                                      /* seeds that were run to the end */
    uint64_t weights[SEEDS_MAX], state[SEEDS_MAX]; /* hashes after the last step */
};

struct assignment {
    const struct plan *plan;
    int seeds;
    const char *drop_wait;
    struct seed_outcomes *outcomes;
};

/* Each rank shuffles with its own seed. */
static const char *streams_of(char text[40], int seed, const struct rank *rank) {
    snprintf(text, 40, "shuffle:%d", seed + 1000 * rank->rank);
    return text;
}

/* All seeds use the same samples: the first one makes them. */
static ls_status run_seed(const struct assignment *a, int seed, const struct rank *rank, ls_comm *comm,
                          struct samples *samples) {
    struct seed_outcomes *o = &a->outcomes[rank->rank];
    char streams[40];
    struct plan plan = *a->plan;
    plan.streams = streams_of(streams, seed, rank);
    struct session session;
    ls_status status = session_open(&session, &plan, comm);
    if (status != LS_OK) return status;
    const ls_parallel *p = session.parallel;
    if (!samples->inputs && !samples_make(samples, &plan, session.model, p->data_rank, p->data_size))
        status = LS_ERR_IO;
    for (size_t k = 0; status == LS_OK && k < plan.steps; k++) status = session_step(&session, &samples->batches[k]);
    if (status == LS_OK) status = session_hash(&session, &o->weights[seed - 1], &o->state[seed - 1]);
    if (status != LS_OK && comm) ls_comm_abort(comm, "a step failed");
    session_close(&session);
    return status;
}

static void run_assignment(struct rank *rank) {
    struct assignment a = *(const struct assignment *)rank->argument;
    struct plan plan = *a.plan;
    a.plan = &plan;
    struct seed_outcomes *o = &a.outcomes[rank->rank];
    if (a.drop_wait) setenv("LS_CPU_DROP_WAIT", a.drop_wait, 1);
    ls_set_wait_timeout_s(PLAN_TIMEOUT_S);
    o->status = plan_groups_open(&plan, rank, NULL);
    struct samples samples = {0};
    for (int seed = 1; o->status == LS_OK && seed <= a.seeds; seed++) {
        o->status = run_seed(&a, seed, rank, plan.groups.job, &samples);
        if (o->status == LS_OK) o->done = seed;
    }
    samples_free(&samples);
    plan_groups_close(&plan.groups);
}

static void run_seeds(const struct plan *plan, int seeds, const char *drop_wait, struct seed_outcomes *outcomes) {
    struct assignment assignment = {plan, seeds, drop_wait, outcomes};
    int ranks = plan_ranks(plan);
    for (int r = 0; r < ranks; r++) outcomes[r] = (struct seed_outcomes){.status = LS_ERR_SYSTEM};
    run_training_ranks(ranks, run_assignment, &assignment);
}

static int first_red(const struct plan *plan, int seeds, const struct seed_outcomes *outcomes,
                     const struct outcome *expected, bool same_mode) {
    int ranks = plan_ranks(plan);
    size_t last = plan->steps - 1;
    for (int seed = 1; seed <= seeds; seed++) {
        for (int r = 0; r < ranks; r++) {
            const struct seed_outcomes *o = &outcomes[r];
            if (o->done < seed || o->weights[seed - 1] != expected->weights[last]) return seed;
            bool compare_state = same_mode || r == 0;
            if (compare_state && o->state[seed - 1] != expected[same_mode ? r : 0].state[last]) return seed;
        }
    }
    return 0;
}

/* A missing wait is usually visible at once: all seeds run only if the first few show no difference. */
int red_seed(const struct plan *plan, int seeds, const char *drop_wait, const struct outcome *expected,
             bool same_mode) {
    enum { FEW = 2 };
    struct seed_outcomes *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    int red = 0, tried = drop_wait ? FEW : seeds;
    for (;; tried = seeds) {
        run_seeds(plan, tried, drop_wait, outcomes);
        red = first_red(plan, tried, outcomes, expected, same_mode);
        if (red > 0 || tried >= seeds) break;
    }
    shared_free(outcomes, MAX_RANKS * sizeof *outcomes);
    return red;
}

void expect_same_bits_in_any_order(struct rank *rank, int seeds,
                                   uint64_t (*run)(struct rank *rank, ls_comm *comm, const char *streams)) {
    char streams[40];
    ls_comm *comm;
    ls_set_wait_timeout_s(2 * PLAN_TIMEOUT_S);
    CHECK(group_open(&comm, rank, "direct") == LS_OK);
    uint64_t expected = run(rank, comm, "inline");
    for (int seed = 1; seed <= seeds; seed++) CHECK(run(rank, comm, streams_of(streams, seed, rank)) == expected);
    CHECK(run(rank, comm, "threads") == expected);
    ls_comm_destroy(comm);
}
