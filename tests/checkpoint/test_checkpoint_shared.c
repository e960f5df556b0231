/* Checkpoints of an optimizer whose moments are sharded over ranks: the file equals that of an unsharded optimizer, and
 * each rank reads its shard back. */
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/checkpoint/content.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_run.h"

enum { MOST_PARAMETERS = 8, MOMENTS = 2 };

/* The start of rank r's part of `count` elements: the cuts are uneven, and the first and last parts may be empty. */
static size_t begin_of(const struct rank *rank, int r, size_t count) {
    size_t cut = count * (size_t)r * (size_t)r / (size_t)(rank->world_size * rank->world_size);
    return r == rank->world_size ? count : cut;
}

/* An optimizer with this rank's parts of the moments, and the state of the whole optimizer. */
static ls_optimizer *share_out(const struct rank *rank, const struct small_run *r, ls_comm *group) {
    ls_optimizer *whole = r->parallel->optimizer, *part;
    ls_optimizer_range ranges[MOST_PARAMETERS];
    ls_optimizer_options options = ls_optimizer_defaults(LS_ADAM);
    struct ls_update_state state;
    size_t count = ls_model_parameter_count(r->model);
    CHECK(count <= MOST_PARAMETERS);
    for (size_t p = 0; p < count; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(r->model, p);
        size_t first = begin_of(rank, rank->rank, tensor->count), end = begin_of(rank, rank->rank + 1, tensor->count);
        ranges[p] = (ls_optimizer_range){tensor, first, end - first, NULL, NULL};
    }
    CHECK(ls_optimizer_create_of(&part, r->device, ranges, count, group, &options) == LS_OK);
    for (size_t m = 0; m < MOMENTS; m++)
        for (size_t p = 0; p < count; p++)
            memcpy(ls_optimizer_moment(part, m, p), ls_optimizer_moment(whole, m, p) + ranges[p].first,
                   ranges[p].count * sizeof(float));
    CHECK(ls_optimizer_read_states(whole, &state) == LS_OK && ls_optimizer_write_states(part, &state, 1) == LS_OK);
    return part;
}

static void expect_parts(const struct rank *rank, const struct small_run *r, const ls_optimizer *whole,
                         const ls_optimizer *part) {
    for (size_t m = 0; m < MOMENTS; m++)
        for (size_t p = 0; p < ls_model_parameter_count(r->model); p++) {
            const ls_optimizer_range *range = ls_optimizer_range_at(part, p);
            CHECK(memcmp(ls_optimizer_moment(part, m, p), ls_optimizer_moment(whole, m, p) + range->first,
                         range->count * sizeof(float)) == 0);
        }
}

static void save_and_load(struct rank *rank) {
    struct ls_position position = {.step = 5, .epoch = 1, .epoch_steps = 2, .losses = 2};
    ls_train_options options = small_run_options();
    CHECK(rank_open(rank, "inline", "direct", 10) == LS_OK);
    struct small_run r = small_run_open(&options);
    r.options.steps = 5;
    r.checkpointed.options = &r.options;
    r.checkpointed.steps_per_epoch = 3;
    CHECK(small_run_train(&r) == LS_OK);
    ls_optimizer *whole = r.parallel->optimizer;
    float *moment = ls_optimizer_moment(whole, 0, 1);
    moment[0] = -0.0f; /* a sum of floats would lose the sign */
    r.parallel->rank = rank->rank;
    CHECK(ls_checkpoint_save(&r.checkpointed, &position, scratch_path("whole")) == LS_OK);
    ls_optimizer *part = r.parallel->optimizer = share_out(rank, &r, rank->comm);
    CHECK(ls_checkpoint_save(&r.checkpointed, &position, scratch_path("shared")) == LS_OK);
    if (rank->rank == 0) CHECK(same_files(scratch_path("whole"), scratch_path("shared")));
    for (size_t m = 0; m < MOMENTS; m++)
        for (size_t p = 0; p < ls_model_parameter_count(r.model); p++)
            memset(ls_optimizer_moment(part, m, p), 1, ls_optimizer_range_at(part, p)->count * sizeof(float));
    r.parallel->rank = 1; /* no rank prints a note */
    CHECK(ls_checkpoint_load(&r.checkpointed, scratch_path("shared"), &position) == LS_OK);
    expect_parts(rank, &r, whole, part);
    ls_optimizer_destroy(part);
    r.parallel->optimizer = whole;
    small_run_close(&r);
    rank_close(rank);
}

TEST_IN(scratch, parts_make_the_file_of_the_whole_and_come_back) {
    for (int ranks = 1; ranks <= 4; ranks++) run_good_ranks(ranks, save_and_load, NULL);
}
