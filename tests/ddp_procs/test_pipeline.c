/* A pipeline (--pipeline): after every step the bits of accumulation on one device with the same micro-batches, whatever else a
 * step has. Streams in random orders: any forgotten event is a wrong weight. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/stages.h"
#include "tests/nn/models.h"
#include "tests/parallel/gpt_tiny.h"
#include "tests/parallel/outcomes.h"

/* Seven blocks of unequal cost; the last batch is shorter. */
static const struct plan small = {.mode = MODE_SINGLE,
                                  .devices = 1,
                                  .model = "mlp:20,33,13,9,13,13,17,7",
                                  .batch = 24,
                                  .steps = 4,
                                  .samples = 3 * 24 + 5};

static struct stage_plan make(struct plan plan, int stages, int accumulate) {
    plan.accumulate = accumulate;
    if (plan.optimizer.learning_rate == 0) plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return (struct stage_plan){.plan = plan, .stages = stages};
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
        for (size_t m = 0; m < COUNT_OF(micro_batches); m++)
            stages_expect_reference(make(small, stages, micro_batches[m]));
}

TEST(so_has_every_rule) {
    struct plan plan = small;
    plan.optimizer = momentum();
    stages_expect_reference(make(plan, 3, 4));
    plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
    stages_expect_reference(make(plan, 4, 3));
    plan.optimizer.offload = true;
    stages_expect_reference(make(plan, 2, 3));
}

TEST(so_has_every_precision) {
    for (int precision = LS_FP16; precision <= LS_BF16; precision++) {
        struct plan plan = small;
        plan.precision = (ls_dtype)precision;
        plan.optimizer = momentum();
        stages_expect_reference(make(plan, 3, 4));
        plan.optimizer.scaler.init_scale = 0x1p20; /* some steps are left out, by all stages together */
        plan.optimizer.scaler.growth_interval = 2;
        stages_expect_reference(make(plan, 4, 2));
    }
}

/* The running statistics move once for each micro-batch, as they do on one device. */
TEST(batch_norm_takes_each_micro_batch) {
    struct plan plan = small;
    plan.model = "convnet";
    plan.batch = 9;
    plan.samples = 9 + 9 + 5;
    plan.steps = 3;
    stages_expect_reference(make(plan, 2, 1));
    stages_expect_reference(make(plan, 3, 4));
}

TEST(streams_may_run_in_any_order) {
    static const char *const orders[] = {"threads", "shuffle:1", "shuffle:2", "shuffle:3", "shuffle:4"};
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        struct stage_plan plan = make(small, 3, 5);
        struct outcome *expected = outcomes_run(&plan.plan);
        plan.plan.streams = orders[i];
        plan.expected = expected;
        for (plan.schedule = DDP_GPIPE; plan.schedule <= DDP_1F1B; plan.schedule++) stages_expect_bits(&plan);
        outcomes_free(expected);
    }
}

/* --- replicas -------------------------------------------------------------------------------------------------------- */

TEST(replicas_have_the_bits_of_distributed_data_parallel) {
    struct plan plan = small;
    plan.mode = MODE_DDP;
    plan.devices = 2; /* a factor of 1/2 is exact */
    stages_expect_reference(make(plan, 2, 3));
    plan.model = "convnet";
    plan.batch = 10;
    plan.samples = 20;
    plan.steps = 2;
    plan.optimizer = momentum();
    stages_expect_reference(make(plan, 3, 2));
    plan.sync_bn = true;
    stages_expect_reference(make(plan, 2, 2));
}

/* ZeRO-1: slices of a stage's range, which cut tensors anywhere. */
TEST(replicas_may_share_the_optimizers_state_out) {
    struct plan plan = small;
    plan.mode = MODE_DDP;
    plan.devices = 2;
    struct stage_plan two = make(plan, 3, 2);
    two.sharded = true;
    stages_expect_reference(two);
    two.plan.precision = LS_FP16;
    two.plan.optimizer = momentum();
    two.plan.optimizer.scaler.init_scale = 0x1p20; /* a rank finds infinities that are not in its own slice */
    two.plan.optimizer.scaler.growth_interval = 2;
    stages_expect_reference(two);
    two.plan.streams = "shuffle:5";
    struct outcome *expected = outcomes_run(&two.plan);
    two.expected = expected;
    stages_expect_bits(&two);
    outcomes_free(expected);
    two.plan = plan;
    two.plan.optimizer = momentum();
    two.plan.devices = 4;
    two.stages = 2;
    two.plan.accumulate = 1;
    stages_expect_reference(two);
}

/* --- a tied parameter ------------------------------------------------------------------------------------------------ */

/* The owner begins its last backward from the other's part: with one micro-batch that is one device's order. Here the first stage
 * has two layers with the weight, the second one. */
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
        stages_expect_reference(make(plan, 2, 1));
    }
    ls_network_destroy(network);
}

/* Of a GPT, which has its embedding on the first stage and on the last. */
static struct plan gpt_plan(void) {
    struct plan plan = gpt_tiny_plan(gpt_tiny_text());
    plan.steps = 6;
    return plan;
}

TEST_IN(scratch, so_has_a_gpt) {
    for (int stages = 2; stages <= 4; stages += 2) {
        struct plan plan = gpt_plan();
        stages_expect_reference(make(plan, stages, 1));
        plan.mode = MODE_DDP;
        plan.devices = 2;
        struct stage_plan replicas = make(plan, stages, 1);
        stages_expect_reference(replicas);
        replicas.sharded = true;
        stages_expect_reference(replicas);
    }
}

/* The copy has the owner's bits. */
static void compare_copies(struct rank *rank, struct stage_job *job) {
    struct pipeline *s = pipeline_of(job->session.parallel);
    size_t tied = s->stage->tie.parameter, count = tied_count(s);
    float *mine = s->stage->parts[tied].values, *owners = calloc(count, sizeof *owners);
    ls_stream *compute = ls_device_stream(job->session.devices[0], LS_STREAM_COMPUTE);
    CHECK(owners);
    if (is_owner(s)) memcpy(owners, mine, count * sizeof *mine);
    CHECK(ls_comm_settle(
              compute, ls_comm_broadcast(job->beside, compute, owners, count, LS_FP32, s->stage->tie.owner)) == LS_OK);
    if (is_reader(s)) CHECK(memcmp(mine, owners, count * sizeof *mine) == 0);
    free(owners);
}

static void tied_rank(struct rank *rank) {
    const struct stage_plan *plan = rank->argument;
    struct stage_job job;
    stage_job_open(rank, &job, plan);
    for (size_t k = 0; k < plan->plan.steps; k++) {
        double loss;
        CHECK(session_step(&job.session, &job.samples.batches[k]) == LS_OK);
        CHECK(session_synchronize(&job.session) == LS_OK);
        compare_copies(rank, &job);
        CHECK(session_loss(&job.session, k, &loss) == LS_OK);
        if (!job.session.parallel->loss_elsewhere && plan->plan.mode == MODE_SINGLE)
            CHECK(fabs(loss - plan->expected->losses[k]) <= 1e-5);
    }
    stage_job_close(rank, &job);
}

/* In several micro-batches parts of its gradient are added in another order: losses are near, and copies equal. */
TEST_IN(scratch, copies_stay_equal) {
    for (int stages = 2; stages <= 4; stages++) {
        struct stage_plan plan = make(gpt_plan(), stages, 4);
        plan.plan.allreduce = stages == 2 ? "ring" : "naive"; /* whose order depends on where an element lies */
        plan.plan.optimizer.clip_norm = stages == 3 ? 0.5 : 0;
        struct outcome *expected = outcomes_run(&plan.plan);
        plan.expected = expected;
        plan.schedule = stages == 3 ? DDP_GPIPE : DDP_1F1B;
        run_training_ranks(stages, tied_rank, &plan);
        plan.plan.mode = MODE_DDP;
        plan.plan.devices = 2;
        run_training_ranks(2 * stages, tied_rank, &plan);
        outcomes_free(expected);
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

/* The norm is added up over the stages, a tied parameter once: near one device's. */
static void norm_rank(struct rank *rank) {
    const struct stage_plan *plan = rank->argument;
    struct stage_job job;
    struct ls_update_state states[2];
    stage_job_open(rank, &job, plan);
    for (size_t k = 0; k < 2; k++) {
        CHECK(session_step(&job.session, &job.samples.batches[k]) == LS_OK);
        CHECK(session_synchronize(&job.session) == LS_OK);
        CHECK(ls_optimizer_read_states(job.session.parallel->optimizer, states) == LS_OK);
        CHECK(fabs((double)states->norm - plan->expected->losses[k]) <= 1e-5 * plan->expected->losses[k]);
    }
    stage_job_close(rank, &job);
}

static size_t noted;

static void note_norm(struct session *s, struct outcome *o) {
    float *gradients;
    size_t count;
    double squares = 0;
    ls_model_gradients(s->model, &gradients, &count);
    for (size_t i = 0; i < count; i++) squares += (double)gradients[i] * (double)gradients[i];
    o->gradient_error = sqrt(squares);
}

/* What outcomes keep of a norm is that of the last step, so there is a run for each. */
static void expect_norms(struct stage_plan plan) {
    struct outcome *norms = shared_alloc(sizeof *norms), *one = shared_alloc(MAX_RANKS * sizeof *one);
    assert_true(norms && one);
    plan.plan.optimizer.measure_norm = true;
    for (noted = 0; noted < 2; noted++) {
        struct plan until = plan.plan;
        until.steps = noted + 1;
        run_plan(&until, one, note_norm);
        assert_int_equal(one->status, LS_OK);
        norms->losses[noted] = one->gradient_error;
    }
    plan.expected = norms;
    run_training_ranks(stage_ranks(&plan), norm_rank, &plan);
    shared_free(norms, sizeof *norms);
    shared_free(one, MAX_RANKS * sizeof *one);
}

TEST_IN(scratch, the_norm_is_that_of_all_stages) {
    expect_norms(make(small, 3, 2));
    expect_norms(make(gpt_plan(), 3, 2));
}

/* --- what stages have ------------------------------------------------------------------------------------------------ */

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

/* By cost, not by number. */
TEST(the_dearest_stage_is_as_cheap_as_can_be) {
    expect_cut("deep", 4, (int[]){0, 4, 8, 12, 17}); /* the last one has 10 units */
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

/* A rank has parameters, gradients and moments of its blocks, and activations for its micro-batches in flight. */
static void memory_rank(struct rank *rank) {
    const struct stage_plan *plan = rank->argument;
    struct stage_job job;
    stage_job_open(rank, &job, plan);
    const struct pipeline *s = pipeline_of(job.session.parallel);
    const ls_parameters *all = ls_model_tensors(job.session.model);
    ls_memory_report memory;
    size_t floats = all->block_begins[s->stage->blocks.end] - all->block_begins[s->stage->blocks.first], frames = 0;
    int in_flight = plan->plan.accumulate, left = plan->stages - s->stage->number;
    if (plan->schedule == DDP_1F1B && left < in_flight) in_flight = left;
    CHECK(s->slot_count == in_flight);
    for (int i = 0; i < in_flight; i++) frames += ls_frame_nbytes(s->slots[i].frame);
    ls_device_memory(job.session.devices[0], &memory);
    CHECK(memory.current_bytes[LS_MEMORY_GRADIENT] == floats * sizeof(float));
    CHECK(memory.current_bytes[LS_MEMORY_ACTIVATION] >= frames);
    CHECK(memory.current_bytes[LS_MEMORY_PARAMETER] >= floats * sizeof(float));
    CHECK(memory.current_bytes[LS_MEMORY_PARAMETER] < all->all_floats * sizeof(float));
    stage_job_close(rank, &job);
}

TEST(a_stage_has_memory_for_its_own) {
    struct plan plan = small;
    plan.model = "mlp:20,20,20,20,20,20,20,20,20";
    for (int schedule = DDP_GPIPE; schedule <= DDP_1F1B; schedule++) {
        struct stage_plan two = make(plan, 4, 6);
        two.schedule = (ddp_schedule_kind)schedule;
        run_training_ranks(4, memory_rank, &two);
    }
}

/* --- PyTorch --------------------------------------------------------------------------------------------------------- */

struct golden_run {
    struct stage_plan plan;
    bool scales; /* weights begin larger, and biases at 0, so that losses move */
    double losses[6];
};

static void scale_parameters(struct rank *rank, ls_model *model) {
    ls_parameters *all = ls_model_tensors(model);
    for (size_t p = 0; p < all->count; p++) {
        const struct ls_tensor *tensor = &all->tensors[p];
        bool is_weight = strstr(tensor->name, "weight") != NULL;
        float *values = calloc(ls_aligned_floats(tensor->count), sizeof *values);
        CHECK(values && ls_parameters_read(all, p, values) == LS_OK);
        for (size_t i = 0; i < tensor->count; i++) values[i] *= is_weight ? sqrtf(6) : 0;
        CHECK(ls_parameters_write(all, p, values) == LS_OK);
        free(values);
    }
    ls_model_parameters_changed(model);
}

static void golden_rank(struct rank *rank) {
    const struct golden_run *run = rank->argument;
    struct stage_job job;
    stage_job_open(rank, &job, &run->plan);
    ls_parallel *p = job.session.parallel;
    if (run->scales) scale_parameters(rank, job.session.model);
    for (size_t k = 0; k < run->plan.plan.steps; k++) {
        double loss = 0, tolerance = run->scales ? (k < 4 ? 1e-4 : 3e-4) * run->losses[k] : 1e-5;
        CHECK(session_step(&job.session, &job.samples.batches[k]) == LS_OK);
        CHECK(session_loss(&job.session, k, &loss) == LS_OK);
        if (p->loss_elsewhere) loss = 0;
        CHECK(ls_sum_over_ranks(p, &loss, 1) == LS_OK);
        if (!(fabs(loss / p->data_size - run->losses[k]) <= tolerance))
            fprintf(stderr, "loss %zu is %.9g, PyTorch's %.9g\n", k + 1, loss / p->data_size, run->losses[k]);
        CHECK(fabs(loss / p->data_size - run->losses[k]) <= tolerance);
    }
    stage_job_close(rank, &job);
}

/* Two stages, four micro-batches; and two replicas of them, which have other micro-batches: half the steps, for their bits are
 * those of DistributedDataParallel (above). */
TEST(losses_are_those_of_pytorchs_pipelines) {
    cJSON *golden = golden_json("pipeline_deep.json"), *runs = cJSON_GetObjectItem(golden, "runs");
    for (int i = 0; i < 4; i++) {
        bool scales = i % 2, replicas = i >= 2;
        struct plan plan = {.mode = replicas ? MODE_DDP : MODE_SINGLE,
                            .devices = replicas ? 2 : 1,
                            .model = "deep",
                            .batch = 32,
                            .steps = replicas ? 3 : 6,
                            .strided = true,
                            .seed = 7};
        plan.optimizer = ls_optimizer_defaults(scales ? LS_SGD : LS_ADAM);
        plan.optimizer.learning_rate = scales ? 5e-4 : 1e-4;
        struct golden_run run = {.plan = make(plan, 2, 4), .scales = scales};
        run.plan.schedule = DDP_1F1B;
        const cJSON *of_run = cJSON_GetObjectItem(runs, scales ? "he_sgd" : "adam");
        const cJSON *expected = cJSON_GetObjectItem(of_run, replicas ? "p2_1f1b_dp2" : "p2_1f1b");
        const cJSON *losses = cJSON_GetObjectItem(expected, "loss_per_step");
        assert_int_equal(cJSON_GetArraySize(losses), 6);
        for (int k = 0; k < 6; k++) run.losses[k] = cJSON_GetArrayItem(losses, k)->valuedouble;
        run_training_ranks(stage_ranks(&run.plan), golden_rank, &run);
    }
    cJSON_Delete(golden);
}
