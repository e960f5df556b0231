/* Ranks that run out of samples at different steps: the weights of a step, equal state on all ranks, the rank whose
 * buffers count, and the end of a run. The reference is one device that takes the whole batch of each step. */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/seam/options.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/parallel/script.h"
#include "tests/parallel/seeds.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 2 };
#else
enum { SEEDS = 20 };
#endif

#define CONVNET "convnet:1x13x13,10"

/* Batches of 4 2 3 and so on; a piece that is empty although its rank continues; two ranks that end together. */
static const struct script uneven = {
    .model = "mlp:8,6,4",
    .ranks = 4,
    .counts = {{4, 2, 3, 1}, {1, 4, 0, 2}, {2, 2, NONE, 2}, {NONE, 3, NONE, 1}, {NONE, 2, NONE, NONE}},
    .steps = 5,
    .join = {.enable = true},
    .optimizer = LS_SGD};

/* --- PyTorch's numbers ------------------------------------------------------------------------------------------- */

/* The softmax is (0, 1) for any weights, so that with label 0 the gradient of the second weight is its input, which is
 * 1. */
static void golden_rank(struct rank *rank) {
    bool initial = rank->argument != NULL;
    struct script script = {.model = "mlp:1,2",
                            .ranks = 2,
                            .counts = {{1, 1}, {1, 1}, {NONE, 1}},
                            .steps = 3,
                            .join = {.enable = true, .divide_by_initial_world_size = initial},
                            .optimizer = LS_SGD};
    struct player player;
    player_open(rank, &player, &script, NULL);
    ls_parallel *p = player.session.parallel;
    const struct ls_tensor *weight = ls_model_parameter(player.session.model, 0);
    const struct ls_tensor *bias = ls_model_parameter(player.session.model, 1);
    weight->data[0] = weight->data[1] = 1;
    bias->data[0] = -200;
    bias->data[1] = 200;
    const float gradients[] = {1, 1, initial ? 0.5f : 1}, one = 1;
    const int64_t label = 0;
    for (int k = 0; k <= 3; k++) {
        bool anyone, mine = k < 2 + rank->rank;
        ls_batch batch = mine ? (ls_batch){.inputs = &one, .labels = &label, .count = 1} : (ls_batch){0};
        CHECK(p->process->join(p, &batch, &anyone) == LS_OK);
        CHECK(anyone == (k < 3));
        if (k == 3) break;
        CHECK(session_step(&player.session, &batch) == LS_OK);
        CHECK(weight->gradient[1] == gradients[k] && weight->gradient[0] == -gradients[k]);
    }
    CHECK(fabsf(weight->data[1] - (initial ? 0.75f : 0.70f)) <= 1e-6f);
    uint64_t hash = ls_hash(LS_HASH_SEED, weight->data, 2 * sizeof(float));
    double low = (double)(hash & 0xffffff), sum = low;
    CHECK(p->process->sum_over_ranks(p, &sum, 1) == LS_OK && sum == 2 * low);
    player_close(&player);
}

TEST(the_last_steps_weigh_as_in_pytorch) {
    run_training_ranks(2, golden_rank, NULL);
    run_training_ranks(2, golden_rank, "divide by the initial world size");
}

/* --- one device with the whole batch ------------------------------------------------------------------------------ */

static struct session single; /* of this process */

/* The averaged gradients are the single device's, or with PyTorch's default active / W of them; the loss is the mean in
 * either case. */
static void expect_single_gradients(const struct rank *rank, struct player *player) {
    const struct script *script = player->script;
    struct chunk whole;
    int step = player->step, count = script_samples(script, step);
    chunk_read(rank, &whole, single.model, SCRIPT_STEP_SAMPLES * step, count);
    whole.batch.global_count = whole.batch.count;
    float *state, *copy;
    size_t floats;
    ls_model_state(player->session.model, &state, &floats);
    ls_model_state(single.model, &copy, &floats);
    memcpy(copy, state, floats * sizeof *state);
    CHECK(ls_step_gradients(single.parallel, &whole.batch) == LS_OK);
    CHECK(session_synchronize(&single) == LS_OK);
    double share = script->join.divide_by_initial_world_size ? (double)script_active(script, step) / script->ranks : 1;
    for (size_t t = 0; t < ls_model_parameter_count(single.model); t++) {
        const struct ls_tensor *expected = ls_model_parameter(single.model, t);
        const float *gradient = ls_model_parameter(player->session.model, t)->gradient;
        for (size_t i = 0; i < expected->count; i++) {
            CHECK(fabs((double)gradient[i] - share * (double)expected->gradient[i]) <= 1e-6);
        }
    }
    double loss, mean;
    ls_parallel *p = player->session.parallel;
    CHECK(session_loss(&player->session, p->step, &loss) == LS_OK);
    CHECK(session_loss(&single, 0, &mean) == LS_OK);
    CHECK(p->process->sum_over_ranks(p, &loss, 1) == LS_OK);
    CHECK(fabs(loss / script->ranks - mean) <= 1e-6);
    chunk_free(&whole);
}

static void expect_same_state(const struct rank *rank, struct player *player) {
    CHECK(ddp_compare_state(ddp_of(player->session.parallel), false) == LS_OK);
}

static void look_before_update(const struct rank *rank, struct player *player) {
    expect_same_state(rank, player); /* from the previous step */
    expect_single_gradients(rank, player);
}

static void single_rank(struct rank *rank) {
    const struct script *script = rank->argument;
    struct plan plan = script_plan(script, MODE_SINGLE);
    struct player player;
    player_open(rank, &player, script, NULL);
    CHECK(session_open(&single, &plan, NULL) == LS_OK);
    player_play(rank, &player, look_before_update);
    CHECK(player.step == script->steps + 1);
    expect_same_state(rank, &player);
    session_close(&single);
    player_close(&player);
}

TEST(uneven_steps_equal_one_device) {
    struct script script = uneven;
    run_training_ranks(script.ranks, single_rank, &script);
    script.optimizer = LS_ADAM; /* ranks without samples also update its moments */
    run_training_ranks(script.ranks, single_rank, &script);
    script.join.divide_by_initial_world_size = true;
    run_training_ranks(script.ranks, single_rank, &script);
    script.accumulate = 3; /* of one sample or two, or empty */
    run_training_ranks(script.ranks, single_rank, &script);
}

/* The state after two steps in which all ranks take part. */
static uint64_t even_state(struct rank *rank, ls_comm *comm, ddp_join_options join) {
    struct script script = {
        .model = "mlp:8,6,4", .ranks = 3, .counts = {{2, 2, 2}, {4, 1, 0}}, .steps = 2, .join = join};
    struct player player;
    uint64_t weights, state;
    player_open(rank, &player, &script, comm);
    for (; player.step < script.steps; player_step_done(&player)) {
        ls_batch batch;
        bool anyone;
        CHECK(player_join(rank, &player, &batch, &anyone) == LS_OK && anyone);
        if (!join.enable) batch.global_count = (size_t)script_samples(&script, player.step);
        CHECK(session_step(&player.session, &batch) == LS_OK);
        CHECK(session_synchronize(&player.session) == LS_OK);
    }
    CHECK(session_hash(&player.session, &weights, &state) == LS_OK);
    player_close(&player);
    return state;
}

/* No rank runs out early: joining changes nothing, with either divisor. */
static void even_rank(struct rank *rank) {
    ls_comm *comm;
    CHECK(group_open(&comm, rank, "direct") == LS_OK);
    uint64_t expected = even_state(rank, comm, (ddp_join_options){0});
    CHECK(even_state(rank, comm, (ddp_join_options){.enable = true}) == expected);
    CHECK(even_state(rank, comm, (ddp_join_options){.enable = true, .divide_by_initial_world_size = true}) == expected);
    ls_comm_destroy(comm);
}

TEST(without_an_early_end_nothing_changes) { run_training_ranks(3, even_rank, NULL); }

/* --- buffers ----------------------------------------------------------------------------------------------------- */

/* Marks this rank's running mean, so that the next broadcast shows its source. */
static void mark(const struct player *player, int rank) {
    ls_model_buffer(player->session.model, 0)->data[0] = (float)(1000 * (rank + 1));
}

/* Before a forward the buffers are broadcast from the highest rank with samples. */
static void buffers_rank(struct rank *rank) {
    struct script script = {.model = CONVNET,
                            .ranks = 3,
                            .counts = {{2, 2, 2}, {2, 2, NONE}, {2, 2, NONE}, {2, NONE, NONE}},
                            .steps = 4,
                            .join = {.enable = true}};
    const int roots[] = {2, 1, 1, 0}; /* the source of the buffers in each step */
    struct player player;
    player_open(rank, &player, &script, NULL);
    ls_parallel *p = player.session.parallel;
    const float *mean = ls_model_buffer(player.session.model, 0)->data;
    for (; player.step < script.steps; player_step_done(&player), p->step++) {
        ls_batch batch;
        bool anyone;
        mark(&player, rank->rank);
        CHECK(player_join(rank, &player, &batch, &anyone) == LS_OK && anyone);
        CHECK(session_step(&player.session, &batch) == LS_OK);
        CHECK(session_synchronize(&player.session) == LS_OK);
        /* a forward, if there is one, changes the mean by a tenth of itself at most */
        float marked = (float)(1000 * (roots[player.step] + 1));
        CHECK(fabsf(mean[0] - (batch.count > 0 ? 0.9f * marked : marked)) < 20);
    }
    mark(&player, rank->rank);
    bool anyone;
    ls_batch none;
    int64_t tracked = *ls_model_batches_tracked(player.session.model, 1);
    CHECK(tracked == (rank->rank == 0 ? 4 : rank->rank == 1 ? 3 : 1));
    CHECK(player_join(rank, &player, &none, &anyone) == LS_OK && !anyone);
    CHECK(mean[0] == 1000); /* rank 0 was the last to have samples */
    for (size_t i = 0; i < 2; i++) CHECK(*ls_model_batches_tracked(player.session.model, i) == 4);
    CHECK(ddp_compare_state(ddp_of(p), true) == LS_OK);
    chunk_free(&player.chunk);
    player_close(&player);
}

TEST(buffers_come_from_the_highest_rank_that_has_samples) { run_training_ranks(3, buffers_rank, NULL); }

/* If two ranks end together, the higher one counts as the last. */
static void tie_rank(struct rank *rank) {
    struct script script = {
        .model = CONVNET, .ranks = 3, .counts = {{2, 2, 2}, {2, 2, NONE}}, .steps = 2, .join = {.enable = true}};
    struct player player;
    player_open(rank, &player, &script, NULL);
    player_play(rank, &player, NULL);
    CHECK(ddp_compare_state(ddp_of(player.session.parallel), true) == LS_OK);
    double mean = (double)ls_model_buffer(player.session.model, 0)->data[0];
    mark(&player, rank->rank);
    bool anyone; /* joins again at the end: the marks show the source of the state */
    ls_batch none = {0};
    CHECK(player.session.parallel->process->join(player.session.parallel, &none, &anyone) == LS_OK && !anyone);
    CHECK(ls_model_buffer(player.session.model, 0)->data[0] == 2000 && fabs(mean) < 10);
    player_close(&player);
}

TEST(the_larger_of_two_last_ranks_counts) { run_training_ranks(3, tie_rank, NULL); }

/* --- how a run ends ---------------------------------------------------------------------------------------------- */

static void throw_rank(struct rank *rank) {
    struct script script = uneven;
    script.join.throw_on_early_termination = true;
    struct player player;
    player_open(rank, &player, &script, NULL);
    ls_status status = LS_OK;
    while (status == LS_OK) {
        ls_batch batch;
        bool anyone;
        status = player_join(rank, &player, &batch, &anyone);
        if (status == LS_OK) CHECK(anyone && session_step(&player.session, &batch) == LS_OK);
        CHECK(session_synchronize(&player.session) == LS_OK);
        player_step_done(&player);
    }
    CHECK(status == LS_ERR_INVALID && player.step == 3);
    CHECK(strstr(rank->message, "rank 2 has run out of samples at step 2") != NULL);
    CHECK((strstr(rank->message, "this rank, which has more, stops as well") != NULL) == (rank->rank != 2));
    player_close(&player);
}

/* If all ranks end at once, none ends early. */
static void no_throw_rank(struct rank *rank) {
    struct script script = {.model = "mlp:8,6,4", .ranks = 2, .counts = {{2, 1}, {0, 1}}, .steps = 2};
    script.join = (ddp_join_options){.enable = true, .throw_on_early_termination = true};
    struct player player;
    player_open(rank, &player, &script, NULL);
    player_play(rank, &player, NULL);
    player_close(&player);
}

TEST(an_early_end_stops_everybody_if_asked) {
    run_training_ranks(4, throw_rank, NULL);
    run_training_ranks(2, no_throw_rank, NULL);
}

/* A rank that dies after it has run out, while it waits in the steps of others, is reported at once. */
static void killed_rank(struct rank *rank) {
    struct player player;
    player_open(rank, &player, &uneven, NULL);
    for (;;) {
        ls_batch batch;
        bool anyone = true;
        if (rank->rank == 2 && player.step == 3) raise(SIGKILL);
        ls_status status = player_join(rank, &player, &batch, &anyone);
        if (status == LS_OK && anyone) status = session_step(&player.session, &batch);
        ls_status done = session_synchronize(&player.session);
        player_step_done(&player);
        if (status == LS_OK) status = done;
        CHECK(status == LS_OK || status == LS_ERR_PEER);
        if (status != LS_OK) break;
        CHECK(player.step <= 4);
    }
    CHECK(player.step == 4 && strstr(rank->message, "rank 2 died") != NULL);
    player_close(&player);
}

TEST(a_joined_rank_that_dies_is_missed) {
    int exit_codes[SCRIPT_RANKS];
    run_ranks(SCRIPT_RANKS, 60, killed_rank, NULL, NULL, exit_codes);
    for (int r = 0; r < SCRIPT_RANKS; r++) assert_int_equal(exit_codes[r], r == 2 ? 128 + SIGKILL : 0);
}

/* --- every order of the streams ---------------------------------------------------------------------------------- */

static uint64_t state_after(struct rank *rank, ls_comm *comm, const char *streams) {
    struct script script = *(const struct script *)rank->argument;
    struct player player;
    uint64_t weights, state;
    script.streams = streams;
    player_open(rank, &player, &script, comm);
    player_play(rank, &player, NULL);
    CHECK(session_hash(&player.session, &weights, &state) == LS_OK);
    player_close(&player);
    return state;
}

static void shuffled_rank(struct rank *rank) {
    const struct script *script = rank->argument;
    bool slow = strcmp(script->model, CONVNET) == 0;
    expect_same_bits_in_any_order(rank, slow ? 1 + SEEDS / 10 : SEEDS, state_after);
}

TEST(every_order_gives_the_same_bits) {
    struct script script = uneven;
    script.optimizer = LS_ADAM;
    script.join.divide_by_initial_world_size = true;
    run_training_ranks(script.ranks, shuffled_rank, &script);
    script.model = CONVNET; /* buffers are broadcast once a step */
    script.accumulate = 2;
    run_training_ranks(script.ranks, shuffled_rank, &script);
}
