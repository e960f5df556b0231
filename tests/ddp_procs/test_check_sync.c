/* Comparing the state of ranks: all of them name the first tensor that differs, and the ranks. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/job.h"

/* --- any memory --------------------------------------------------------------------------------------------------- */

static void any_rank(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", PLAN_TIMEOUT_S) == LS_OK);
    float one[3] = {1, 2, 3};
    int64_t two[2] = {-4, 5};
    const char *three = "labels";
    const struct ddp_named_range ranges[] = {{"one", one, sizeof one}, {"two", two, sizeof two}, {"three", three, 6}};
    CHECK(ddp_compare_over_ranks("", rank->comm, rank->stream, ranges, 3) == LS_OK);
    if (rank->rank == 2) two[1]++;
    CHECK(ddp_compare_over_ranks("", rank->comm, rank->stream, ranges, 3) == LS_ERR_INVALID);
    CHECK(strcmp(rank->message, "two (16 bytes) differs between ranks: other bits than on rank 0 on rank 2") == 0);
    CHECK(ddp_compare_over_ranks("", rank->comm, rank->stream, ranges, 1) ==
          LS_OK); /* tensors that are not in the list are not compared */
    rank->message[0] = '\0';
    if (rank->rank == 0) one[0] = -1; /* the first in the list, not the first to change */
    CHECK(ddp_compare_over_ranks("", rank->comm, rank->stream, ranges, 3) == LS_ERR_INVALID);
    CHECK(strcmp(rank->message, "one (12 bytes) differs between ranks: other bits than on rank 0 on ranks 1-3") == 0);
    CHECK(ddp_compare_over_ranks("", rank->comm, rank->stream, ranges + 2, 1) == LS_OK); /* the group still works */
    rank_close(rank);
}

TEST(the_first_difference_is_named) { run_training_ranks(4, any_rank, NULL); }

/* Bits are compared, so a NaN equals itself, and the two zeros differ. */
static void bits_rank(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", PLAN_TIMEOUT_S) == LS_OK);
    uint32_t nan = 0x7fc00001;
    float value;
    memcpy(&value, &nan, sizeof value);
    const struct ddp_named_range range = {"value", &value, sizeof value};
    CHECK(ddp_compare_over_ranks("", rank->comm, rank->stream, &range, 1) == LS_OK);
    value = rank->rank == 1 ? -0.0f : 0.0f;
    CHECK(ddp_compare_over_ranks("", rank->comm, rank->stream, &range, 1) == LS_ERR_INVALID);
    rank_close(rank);
}

TEST(bits_are_compared_not_values) { run_training_ranks(2, bits_rank, NULL); }

/* --- the state of a run ------------------------------------------------------------------------------------------- */

/* Changes one number temporarily, and expects the comparison to find it. */
static void expect_found(struct rank *rank, struct job *job, float *number, bool buffers, const char *text) {
    ls_parallel *p = job->session.parallel;
    float kept = *number;
    rank->message[0] = '\0';
    if (rank->rank == 1) *number += 1;
    CHECK(ddp_compare_state(ddp_of(p), buffers) == LS_ERR_INVALID);
    char found[120];
    snprintf(found, sizeof found, "after step 1, %s", text);
    CHECK(strstr(rank->message, found) == rank->message && strstr(rank->message, "on rank 1") != NULL);
    *number = kept;
    CHECK(ddp_compare_state(ddp_of(p), false) == LS_OK);
}

static void state_rank(struct rank *rank) {
    struct job job;
    struct plan plan = job_plan("convnet", 3, 6, 60);
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    job_open(rank, &job, plan, NULL);
    ls_model *model = job.session.model;
    ls_parallel *p = job.session.parallel;
    CHECK(ddp_compare_state(ddp_of(p), true) == LS_OK);
    CHECK(session_step(&job.session, &job.samples.batches[0]) == LS_OK);
    CHECK(ddp_compare_state(ddp_of(p), false) == LS_OK);
    /* batch norm has seen other samples on each rank */
    CHECK(ddp_compare_state(ddp_of(p), true) == LS_ERR_INVALID);
    CHECK(strstr(rank->message, "bn1.running_mean (64 bytes)") && strstr(rank->message, "on ranks 1, 2"));
    CHECK(p->process->before_evaluation(p) == LS_OK);
    CHECK(ddp_compare_state(ddp_of(p), true) == LS_OK);
    size_t last = ls_model_parameter_count(model) - 1;
    float *first_moment = (float *)ls_optimizer_moment(p->optimizer, 0, 0);
    float *second_moment = (float *)ls_optimizer_moment(p->optimizer, 1, last);
    expect_found(rank, &job, ls_model_parameter(model, last)->data + 9, false,
                 "fc.bias (40 bytes) differs between ranks");
    expect_found(rank, &job, first_moment, false, "the optimizer's first moment of conv1.weight (1600 bytes)");
    expect_found(rank, &job, second_moment + 9, false, "the optimizer's second moment of fc.bias (40 bytes)");
    expect_found(rank, &job, ls_model_buffer(model, 3)->data + 31, true, "bn2.running_var (128 bytes)");
    job_close(rank, &job);
}

TEST(parameters_moments_and_buffers_are_compared) { run_training_ranks(3, state_rank, NULL); }

/* With compare_each_step a difference ends the first step after which it is visible. */
static void each_step_rank(struct rank *rank) {
    struct job job;
    struct plan plan = job_plan("mlp:8,6,4", 3, 6, 60);
    plan.optimizer.momentum = 0.9;
    plan.compare_each_step = true;
    plan.streams = rank->argument;
    job_open(rank, &job, plan, NULL);
    for (size_t k = 0; k < 3; k++) CHECK(session_step(&job.session, &job.samples.batches[k]) == LS_OK);
    if (rank->rank == 2) ls_model_parameter(job.session.model, 2)->data[5] *= 2;
    CHECK(session_step(&job.session, &job.samples.batches[3]) == LS_ERR_INVALID);
    CHECK(strcmp(rank->message, "after step 3, fc2.weight (96 bytes) differs between ranks: other bits than on "
                                "rank 0 on rank 2") == 0);
    job_close(rank, &job);
}

TEST(a_step_ends_at_the_first_difference) {
    static const char *const modes[] = {"inline", "threads", "shuffle:5"};
    for (size_t m = 0; m < 3; m++) run_training_ranks(3, each_step_rank, modes[m]);
}

/* If a rank dies instead of comparing, the others report it. */
static void dying_rank(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", PLAN_TIMEOUT_S) == LS_OK);
    if (rank->rank == 1) _exit(1);
    float one = 1;
    const struct ddp_named_range range = {"one", &one, sizeof one};
    CHECK(ddp_compare_over_ranks("", rank->comm, rank->stream, &range, 1) == LS_ERR_PEER);
    CHECK(strstr(rank->message, "rank 1 died") != NULL);
    rank_close(rank);
}

TEST(a_rank_that_does_not_compare_is_missed) {
    int exit_codes[2];
    run_ranks(2, 60, dying_rank, NULL, NULL, exit_codes);
    assert_int_equal(exit_codes[0], 0);
    assert_int_equal(exit_codes[1], 1);
}
