/* A pipeline (--pipeline): after every step the bits of accumulation on one device with the same micro-batches, in
 * combination with other options. Every order of the streams: tests/parallel/test_shuffle.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_procs/pipeline_internal.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/golden_deep.h"
#include "tests/nn/models.h"
#include "tests/parallel/gpt_tiny.h"
#include "tests/parallel/outcomes.h"

/* Seven blocks of unequal cost; the last batch is shorter. */
static const struct plan small = {.model = "mlp:20,33,13,9,13,13,17,7", .batch = 24, .steps = 4, .samples = 3 * 24 + 5};

static struct plan make(struct plan plan, int stages, int replicas, int accumulate) {
    plan.mode = MODE_PIPELINE;
    plan.parts = stages;
    plan.devices = stages * replicas;
    plan.accumulate = accumulate;
    if (plan.optimizer.learning_rate == 0) plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

/* After every step weights, buffers and loss scale are those of the reference. The last stages have the losses, which
 * are those of the reference's ranks. */
static void expect_bits(const struct plan *plan, const struct outcome *expected) {
    struct outcome *got = outcomes_run(plan);
    int replicas = plan_replicas(plan), last = plan->devices - replicas;
    assert_int_equal(first_difference(got, expected, plan->steps), -1);
    assert_memory_equal(got->scales, expected->scales, sizeof got->scales);
    for (int r = 0; r < plan->devices; r++) {
        assert_memory_equal(got[r].state, expected->state, sizeof got->state);
        if (r >= last) assert_memory_equal(got[r].losses, expected[r - last].losses, sizeof got->losses);
    }
    outcomes_free(got);
}

/* With both schedules. */
static void expect_reference(struct plan plan) {
    const struct plan reference = plan_equal(&plan);
    struct outcome *expected = outcomes_run(&reference);
    for (plan.schedule = DDP_GPIPE; plan.schedule <= DDP_1F1B; plan.schedule++) expect_bits(&plan, expected);
    outcomes_free(expected);
}

static ls_optimizer_options momentum(void) {
    ls_optimizer_options o = ls_optimizer_defaults(LS_SGD);
    o.learning_rate = 0.05;
    o.momentum = 0.9;
    o.weight_decay = 0.01;
    return o;
}

/* More stages than micro-batches, as many, fewer; and one. Micro-batches of unequal size (5 of 24: 5 5 5 5 4; 7: 4 4 4 4 4 4 0). */
TEST(every_number_of_stages_has_the_bits_of_one_device) {
    static const int micro_batches[] = {1, 2, 3, 5, 7};
    for (int stages = 1; stages <= 7; stages += stages < 4 ? 1 : 3)
        for (size_t m = 0; m < COUNT_OF(micro_batches); m++) expect_reference(make(small, stages, 1, micro_batches[m]));
}

TEST(so_has_every_rule) {
    struct plan plan = small;
    plan.optimizer = momentum();
    expect_reference(make(plan, 3, 1, 4));
    plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
    expect_reference(make(plan, 4, 1, 3));
}

TEST(so_has_every_precision) {
    for (int precision = LS_FP16; precision <= LS_BF16; precision++) {
        struct plan plan = small;
        plan.precision = (ls_dtype)precision;
        plan.optimizer = momentum();
        expect_reference(make(plan, 3, 1, 4));
        plan.optimizer.scaler.init_scale = 0x1p20; /* all stages skip some steps together */
        plan.optimizer.scaler.growth_interval = 2;
        expect_reference(make(plan, 4, 1, 2));
    }
}

/* The running statistics move once for each micro-batch, as they do on one device. */
TEST(batch_norm_takes_each_micro_batch) {
    struct plan plan = small;
    plan.model = "convnet:1x13x13,10";
    plan.batch = 9;
    plan.samples = 9 + 9 + 5;
    plan.steps = 3;
    expect_reference(make(plan, 2, 1, 1));
    expect_reference(make(plan, 3, 1, 4));
}

/* --- replicas: a factor of 1/2 is exact ------------------------------------------------------------------------------- */

TEST(replicas_have_the_bits_of_distributed_data_parallel) {
    struct plan plan = small;
    expect_reference(make(plan, 2, 2, 3));
    plan.model = "convnet:1x13x13,10";
    plan.batch = 10;
    plan.samples = 20;
    plan.steps = 2;
    plan.optimizer = momentum();
    expect_reference(make(plan, 3, 2, 2));
    plan.sync_bn = true;
    expect_reference(make(plan, 2, 2, 2));
}

/* ZeRO-1: slices of a stage's range, which cut tensors anywhere. */
TEST(replicas_may_share_the_optimizers_state_out) {
    struct plan plan = small;
    plan.sharded = true;
    expect_reference(make(plan, 3, 2, 2));
    plan.optimizer = momentum();
    expect_reference(make(plan, 2, 4, 1));
    plan.precision = LS_FP16;
    plan.optimizer.scaler.init_scale = 0x1p20; /* a rank skips a step for infinities outside its own slice */
    plan.optimizer.scaler.growth_interval = 2;
    expect_reference(make(plan, 3, 2, 2));
}

/* --- a tied parameter ------------------------------------------------------------------------------------------------ */

/* The owner adds to the other stage's gradient in its last backward: with one micro-batch that is one device's order.
 * Here the weight belongs to two layers of the first stage and one of the second. */
TEST(a_tied_parameter_has_the_bits_of_one_device_in_one_micro_batch) {
    ls_network *network = tied_blocks(1, 1);
    struct plan plan = small;
    struct ddp_cut cut;
    plan.network = network;
    assert_int_equal(ddp_cut_network(&cut, network, 2), LS_OK);
    const struct ddp_tie tie = ddp_tie_of(&cut, network);
    assert_true(tie.is_there && tie.owner == 0 && tie.reader == 1);
    for (int precision = LS_FP32; precision <= LS_BF16; precision++) {
        plan.precision = (ls_dtype)precision;
        plan.optimizer = momentum();
        expect_reference(make(plan, 2, 1, 1));
    }
    ls_network_destroy(network);
}

/* For a GPT, which has its embedding on the first stage and on the last. */
static struct plan gpt_plan(void) {
    struct plan plan = gpt_tiny_plan(gpt_tiny_text());
    plan.steps = 6;
    return plan;
}

TEST_IN(scratch, so_has_a_gpt) {
    for (int stages = 2; stages <= 4; stages += 2) {
        struct plan plan = gpt_plan();
        expect_reference(make(plan, stages, 1, 1));
        expect_reference(make(plan, stages, 2, 1));
        plan.sharded = true;
        expect_reference(make(plan, stages, 2, 1));
    }
}

/* The copy has the same bits as the owner's parameter. */
static void compare_copies(struct rank *rank, struct job *job) {
    struct pipeline *s = pipeline_of(job->session.parallel);
    ls_comm *stages = job->plan.groups.stages;
    size_t tied = s->stage->tie.parameter, count = tied_count(s);
    float *mine = s->stage->parts[tied].values, *owners = calloc(count, sizeof *owners);
    ls_stream *compute = ls_device_stream(job->session.devices[0], LS_STREAM_COMPUTE);
    CHECK(owners);
    if (is_owner(s)) memcpy(owners, mine, count * sizeof *mine);
    ls_status status = ls_comm_broadcast(stages, compute, owners, count, LS_FP32, s->stage->tie.owner);
    CHECK(ls_comm_settle(compute, status) == LS_OK);
    if (is_reader(s)) CHECK(memcmp(mine, owners, count * sizeof *mine) == 0);
    free(owners);
}

/* A plan, and each step's losses or norms on one device. */
struct beside_one {
    struct plan plan;
    double figures[MAX_STEPS];
};

static void tied_rank(struct rank *rank) {
    const struct beside_one *run = rank->argument;
    struct job job;
    job_open(rank, &job, run->plan, NULL);
    for (size_t k = 0; k < run->plan.steps; k++) {
        double loss;
        job_step(rank, &job, k);
        compare_copies(rank, &job);
        CHECK(session_loss(&job.session, k, &loss) == LS_OK);
        if (!job.session.parallel->loss_elsewhere && plan_replicas(&run->plan) == 1)
            CHECK(fabs(loss - run->figures[k]) <= 1e-5);
    }
    job_close(rank, &job);
}

/* With several micro-batches the parts of its gradient are added in another order: losses are close, and copies
 * equal. */
TEST_IN(scratch, copies_stay_equal) {
    for (int stages = 2; stages <= 4; stages++) {
        struct beside_one run = {.plan = make(gpt_plan(), stages, 1, 4)};
        run.plan.allreduce = stages == 2 ? "ring" : "naive"; /* its order depends on an element's position */
        run.plan.optimizer.clip_norm = stages == 3 ? 0.5 : 0;
        run.plan.schedule = stages == 3 ? DDP_GPIPE : DDP_1F1B;
        const struct plan one = plan_equal(&run.plan);
        struct outcome *expected = outcomes_run(&one);
        memcpy(run.figures, expected->losses, sizeof run.figures);
        outcomes_free(expected);
        for (int replicas = 1; replicas <= 2; replicas++) {
            run.plan.devices = replicas * stages;
            run_training_ranks(run.plan.devices, tied_rank, &run);
        }
    }
}

TEST(only_one_stage_may_have_a_copy) {
    static const int pairs[][2] = {{1, 1}, {0, 3}};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        ls_network *network = tied_blocks(pairs[i][0], pairs[i][1]);
        struct ddp_cut cut;
        assert_int_equal(ddp_cut_network(&cut, network, 3), LS_ERR_UNSUPPORTED);
        ls_network_destroy(network);
    }
}

/* --- norms ----------------------------------------------------------------------------------------------------------- */

/* The norm is summed over the stages, with a tied parameter once: close to one device's. */
static void norm_rank(struct rank *rank) {
    const struct beside_one *run = rank->argument;
    struct job job;
    struct ls_update_state states[2];
    job_open(rank, &job, run->plan, NULL);
    for (size_t k = 0; k < 2; k++) {
        job_step(rank, &job, k);
        CHECK(ls_optimizer_read_states(job.session.parallel->optimizer, states) == LS_OK);
        CHECK(fabs((double)states->norm - run->figures[k]) <= 1e-5 * run->figures[k]);
    }
    job_close(rank, &job);
}

static void note_norm(struct session *s, struct outcome *o) {
    float *gradients;
    size_t count;
    double squares = 0;
    ls_model_gradients(s->model, &gradients, &count);
    for (size_t i = 0; i < count; i++) squares += (double)gradients[i] * (double)gradients[i];
    o->gradient_error = sqrt(squares);
}

/* An outcome keeps the norm of the last step only, so there is a run for each step. */
static void expect_norms(struct plan plan) {
    struct beside_one run = {.plan = plan};
    struct outcome *one = shared_alloc(MAX_RANKS * sizeof *one);
    assert_non_null(one);
    run.plan.optimizer.measure_norm = true;
    for (size_t k = 0; k < 2; k++) {
        struct plan until = plan_equal(&run.plan);
        until.steps = k + 1;
        run_plan(&until, one, note_norm);
        assert_int_equal(one->status, LS_OK);
        run.figures[k] = one->gradient_error;
    }
    run_training_ranks(plan.devices, norm_rank, &run);
    shared_free(one, MAX_RANKS * sizeof *one);
}

TEST_IN(scratch, the_norm_is_that_of_all_stages) {
    expect_norms(make(small, 3, 1, 2));
    expect_norms(make(gpt_plan(), 3, 1, 2));
}

/* --- memory of stages --------------------------------------------------------------------------------------------- */

static void expect_cut(const char *model, int stages, const int *begins) {
    ls_network *network;
    struct ddp_cut cut;
    assert_int_equal(ls_network_create(&network, model), LS_OK);
    assert_int_equal(ddp_cut_network(&cut, network, stages), LS_OK);
    for (int s = 0; s <= stages; s++) {
        if (cut.begins[s] != begins[s]) fail_msg("%s: stage %d of %d begins at %d", model, s, stages, cut.begins[s]);
        if (s < stages) assert_int_equal(ddp_stage_of(&cut, begins[s]), s);
    }
    ls_network_destroy(network);
}

/* Stages are cut by cost, not by number of blocks. */
TEST(the_dearest_stage_is_as_cheap_as_can_be) {
    expect_cut("deep", 4, (int[]){0, 4, 8, 12, 17}); /* the last stage has 10 units */
    expect_cut("deep", 2, (int[]){0, 8, 17});
    expect_cut("mlp:8,8,8,8,800,8", 2, (int[]){0, 4, 5});
    expect_cut("mlp:800,8,8,8,8", 2, (int[]){0, 1, 4});
    expect_cut("mlp:8,8", 1, (int[]){0, 1});
    expect_cut("convnet", 3, (int[]){0, 1, 2, 3});
    expect_cut("gpt:4,4,128,64,65", 3, (int[]){0, 2, 4, 6}); /* embedding, layers, head */
}

TEST(each_stage_takes_a_block) {
    ls_network *network;
    struct ddp_cut cut;
    assert_int_equal(ls_network_create(&network, "mlp"), LS_OK);
    assert_int_equal(ddp_cut_network(&cut, network, 3), LS_ERR_USAGE);
    ls_network_destroy(network);
}

static size_t held(const struct job *job, ls_memory_category category) {
    ls_memory_report memory;
    ls_device_memory(job->session.devices[0], &memory);
    return memory.current_bytes[category];
}

/* A rank has the parameters, gradients and moments of its blocks, and activations for its micro-batches in flight. An
 * evaluation needs memory for one more block, which is not allocated before. */
static void memory_rank(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct job job;
    job_open(rank, &job, *plan, NULL);
    ls_parallel *p = job.session.parallel;
    const struct pipeline *s = pipeline_of(p);
    const ls_parameters *all = ls_model_tensors(job.session.model);
    const size_t *begins = all->block_begins;
    size_t floats = begins[s->stage->blocks.end] - begins[s->stage->blocks.first], frames = 0, largest = 0;
    int in_flight = plan->accumulate, left = plan->parts - s->stage->number;
    if (plan->schedule == DDP_1F1B && left < in_flight) in_flight = left;
    CHECK(s->slot_count == in_flight);
    for (int i = 0; i < in_flight; i++) frames += ls_frame_nbytes(s->slots[i].frame);
    for (int b = 0; b < all->block_count; b++)
        if ((b < s->stage->blocks.first || b >= s->stage->blocks.end) && begins[b + 1] - begins[b] > largest)
            largest = begins[b + 1] - begins[b];
    job_step(rank, &job, 0);
    CHECK(p->process->before_evaluation(p) == LS_OK); /* as for a checkpoint */
    CHECK(held(&job, LS_MEMORY_GRADIENT) == floats * sizeof(float));
    CHECK(held(&job, LS_MEMORY_ACTIVATION) >= frames);
    CHECK(held(&job, LS_MEMORY_PARAMETER) == floats * sizeof(float));
    for (int pass = 0; pass < 2; pass++)
        (void)ls_model_forward(job.session.model, job.samples.batches[0].inputs, 1, false);
    CHECK(session_synchronize(&job.session) == LS_OK);
    CHECK(held(&job, LS_MEMORY_PARAMETER) == (floats + largest) * sizeof(float));
    job_close(rank, &job);
}

TEST(a_stage_has_memory_for_its_own) {
    struct plan plan = make(small, 4, 1, 6);
    plan.model = "mlp:20,20,20,40,20,20,20,20,20";
    for (plan.schedule = DDP_GPIPE; plan.schedule <= DDP_1F1B; plan.schedule++)
        run_training_ranks(4, memory_rank, &plan);
}

/* --- PyTorch --------------------------------------------------------------------------------------------------------- */

static void golden_rank(struct rank *rank) {
    const struct golden_deep *run = rank->argument;
    struct job job;
    golden_deep_open(rank, &job, run);
    for (size_t k = 0; k < run->plan.steps; k++) {
        job_step(rank, &job, k);
        golden_deep_expect_loss(rank, &job, run, k);
    }
    job_close(rank, &job);
}

/* Two stages, four micro-batches, with Adam; and two replicas of them, with SGD and other micro-batches. */
TEST(losses_are_those_of_pytorchs_pipelines) {
    cJSON *golden = golden_json("pipeline_deep.json"), *runs = cJSON_GetObjectItem(golden, "runs");
    for (int replicas = 1; replicas <= 2; replicas++) {
        bool sgd = replicas == 2;
        const cJSON *of_run = cJSON_GetObjectItem(runs, sgd ? "he_sgd" : "adam");
        const cJSON *expected = cJSON_GetObjectItem(of_run, sgd ? "p2_1f1b_dp2" : "p2_1f1b");
        struct golden_deep run =
            golden_deep_make(MODE_PIPELINE, 2 * replicas, sgd, cJSON_GetObjectItem(expected, "loss_per_step"));
        run.plan.steps = sgd ? 2 : 4;
        run.plan.accumulate = 4;
        run.plan.schedule = DDP_1F1B;
        run_training_ranks(run.plan.devices, golden_rank, &run);
    }
    cJSON_Delete(golden);
}
