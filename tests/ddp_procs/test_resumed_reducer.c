/* A reducer that is given the gradient order of another continues as the other would. */
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/reduced.h"
#include "tests/parallel/plan.h"

enum { BATCH = 4, PARAMETERS = 6, BUCKETS = 3, TURNS = 3, FLOATS = 64 * 48 + 48 + 48 * 32 + 32 + 32 * 10 + 10 };

static const char *const model_text = "mlp:64,48,32,10";
static const ddp_reducer_options several_buckets = {.bucket_cap_mb = 1.0 / 1024, .overlap = true};

static void read_gradients(const ls_model *model, float *values) {
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        memcpy(values, tensor->gradient, tensor->count * sizeof *values);
        values += tensor->count;
    }
}

/* A run of TURNS turns, and another that begins with the second of them. On three ranks the first turn multiplies by
 * 1/3 where later ones divide, and a ring's order of summation depends on the position of an element in its bucket. */
static void resumed_rank(struct rank *rank) {
    const ddp_reducer_options *options = rank->argument;
    static float whole[TURNS][FLOATS], first_again[FLOATS], now[FLOATS];
    struct reduced r;
    int64_t order[PARAMETERS];
    size_t nbytes[PARAMETERS];
    const int64_t *values = NULL;
    CHECK(rank_open(rank, "inline", "ring", REDUCED_TIMEOUT_S) == LS_OK);
    reduced_create(rank, &r, model_text, BATCH, options);
    CHECK(ddp_reducer_get_order(r.reducer, &values) == 0); /* no order yet */
    for (int turn = 0; turn < TURNS; turn++) {
        reduced_turn(rank, &r, BATCH, turn);
        read_gradients(r.model, whole[turn]);
        if (turn > 0) continue; /* a checkpoint after the first step, and so before the buckets are rebuilt */
        CHECK(ddp_reducer_get_order(r.reducer, &values) == PARAMETERS);
        memcpy(order, values, sizeof order);
    }
    CHECK(ddp_reducer_get_order(r.reducer, &values) == PARAMETERS);
    CHECK(memcmp(order, values, sizeof order) == 0);
    size_t buckets = bucket_count(r.reducer);
    CHECK(options->find_unused ? buckets > 1 : buckets == BUCKETS);
    for (size_t b = 0; b < buckets; b++) nbytes[b] = bucket_nbytes(r.reducer, b);
    reduced_destroy(&r);

    reduced_create(rank, &r, model_text, BATCH, options);
    CHECK(ddp_reducer_set_order(r.reducer, order, PARAMETERS) == LS_OK);
    CHECK(bucket_count(r.reducer) == buckets);
    for (size_t b = 0; b < buckets; b++) CHECK(bucket_nbytes(r.reducer, b) == nbytes[b]);
    CHECK(ddp_reducer_get_order(r.reducer, &values) == PARAMETERS && memcmp(order, values, sizeof order) == 0);
    for (int turn = 1; turn < TURNS; turn++) {
        reduced_turn(rank, &r, BATCH, turn);
        read_gradients(r.model, now);
        CHECK(memcmp(now, whole[turn], sizeof now) == 0);
    }
    reduced_turn(rank, &r, BATCH, 0); /* the test can tell: the first turn's bits were different */
    read_gradients(r.model, first_again);
    CHECK(memcmp(first_again, whole[0], sizeof now) != 0);
    reduced_destroy(&r);
    reduced_rank_close(rank);
}

TEST(a_reducer_with_anothers_memory_goes_on_like_it) {
    ddp_reducer_options options = several_buckets;
    run_training_ranks(3, resumed_rank, &options);
}

/* Its buckets stay in the order of the definition, but from its second turn on it also divides. */
TEST(so_does_one_that_finds_unused_parameters) {
    ddp_reducer_options options = several_buckets;
    options.find_unused = true;
    run_training_ranks(3, resumed_rank, &options);
}

/* --- rejected orders ---------------------------------------------------------------------------------------------- */

static void refusing_rank(struct rank *rank) {
    static const struct {
        int64_t order[PARAMETERS + 1];
        size_t count;
        const char *said;
    } cases[] = {
        {{5, 4, 3, 2, 1}, 5, "invalid gradient order: found 5 entries, expected one for each of 6 parameters"},
        {{6, 5, 4, 3, 2, 1, 0}, 7, "invalid gradient order: found 7 entries, expected one for each of 6 parameters"},
        {{5, 4, 3, 2, 1, 6}, 6, "entry 5 is 6; expected each of 0..5 once"},
        {{5, 4, -1, 2, 1, 0}, 6, "entry 2 is -1; expected each of 0..5 once"},
        {{5, 4, 3, 4, 1, 0}, 6, "entry 3 is 4; expected each of 0..5 once"}};
    struct reduced r;
    CHECK(rank_open(rank, "inline", "ring", REDUCED_TIMEOUT_S) == LS_OK);
    reduced_create(rank, &r, model_text, BATCH, &several_buckets);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rank->message[0] = '\0';
        CHECK(ddp_reducer_set_order(r.reducer, cases[i].order, cases[i].count) == LS_ERR_INVALID);
        CHECK(strstr(rank->message, cases[i].said) != NULL);
    }
    CHECK(bucket_count(r.reducer) == 1); /* nothing has changed */
    CHECK(ddp_reducer_set_order(r.reducer, NULL, 0) == LS_OK);
    CHECK(bucket_count(r.reducer) == 1);
    reduced_turn(rank, &r, BATCH, 0);
    static const int64_t good[PARAMETERS] = {0, 1, 2, 3, 4, 5};
    rank->message[0] = '\0';
    CHECK(ddp_reducer_set_order(r.reducer, good, PARAMETERS) == LS_ERR_INVALID);
    CHECK(strstr(rank->message, "too late") != NULL);
    reduced_destroy(&r);
    reduced_rank_close(rank);
}

TEST(an_order_that_is_none_is_refused) { run_training_ranks(2, refusing_rank, NULL); }
