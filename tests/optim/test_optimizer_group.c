/* Optimizers of parts, each on its rank: the gradients' norm, and whether one is infinite, cover all parts. */
#include <math.h>

#include "tests/base/test.h"
#include "tests/comm/ranks.h"
#include "tests/optim/updates.h"

enum { PARAMETERS = 4 };

static ls_optimizer_options clipping(void) {
    ls_optimizer_options options = ls_optimizer_defaults(LS_ADAM);
    options.clip_norm = 3;
    options.record_count = 1;
    options.scaler.enabled = true;
    options.scaler.init_scale = 4;
    return options;
}

/* Small integers, whose squares have the same sum in every order; in turn 2 one rank's part has an infinity. */
static void fill(const struct updates *u, int turn) {
    for (size_t p = 0; p < PARAMETERS; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(u->model, p);
        for (size_t i = 0; i < tensor->count; i++) tensor->gradient[i] = (float)((int)(i * 7 + p) % 9 - 4 + turn);
    }
    if (turn == 2) ls_model_parameter(u->model, 0)->gradient[1] = INFINITY;
}

/* Rank r of W has the r-th of W parts of each parameter. */
static void group_rank(struct rank *rank) {
    const ls_optimizer_options options = clipping();
    size_t me = (size_t)rank->rank, ranks = (size_t)rank->world_size;
    struct updates whole = updates_open("mlp:30,20,10", &options), cut = updates_open("mlp:30,20,10", &options);
    ls_optimizer_range own[PARAMETERS];
    ls_optimizer *part;
    CHECK(rank_open(rank, "inline", NULL, 20) == LS_OK);
    for (size_t p = 0; p < PARAMETERS; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(cut.model, p);
        size_t first = tensor->count * me / ranks;
        own[p] = (ls_optimizer_range){tensor, first, tensor->count * (me + 1) / ranks - first, NULL, NULL};
    }
    CHECK(ls_optimizer_create_of(&part, cut.device, own, PARAMETERS, rank->comm, &options) == LS_OK);
    for (int turn = 0; turn < 4; turn++) {
        struct ls_update_state expected, got;
        fill(&whole, turn);
        fill(&cut, turn);
        updates_step(&whole, NULL);
        CHECK(ls_optimizer_step(part, NULL) == LS_OK && ls_device_synchronize(cut.device) == LS_OK);
        CHECK(ls_optimizer_read_states(whole.optimizer, &expected) == LS_OK);
        CHECK(ls_optimizer_read_states(part, &got) == LS_OK);
        CHECK(got.found_inf == (float)(turn == 2) && got.step == expected.step && got.scale == expected.scale);
        CHECK(got.gradient_factor == expected.gradient_factor && (turn == 2 || got.norm == expected.norm));
        for (size_t p = 0; p < PARAMETERS; p++) {
            const struct ls_tensor *to = ls_model_parameter(whole.model, p);
            for (size_t i = 0; i < own[p].count; i++)
                CHECK(to->data[own[p].first + i] == own[p].tensor->data[own[p].first + i]);
        }
    }
    ls_optimizer_destroy(part);
    updates_close(&whole);
    updates_close(&cut);
    rank_close(rank);
}

TEST(the_norm_and_infinities_are_those_of_all_ranks) {
    for (int ranks = 1; ranks <= 3; ranks++) run_good_ranks(ranks, group_rank, NULL);
}
