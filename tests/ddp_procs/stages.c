#include "tests/ddp_procs/stages.h"

#include <stdlib.h>

#include "tests/base/test.h"
#include "tests/parallel/outcomes.h"

static int replicas_of(const struct stage_plan *plan) {
    return plan->plan.mode == MODE_SINGLE ? 1 : plan->plan.devices;
}

int stage_ranks(const struct stage_plan *plan) { return plan->stages * replicas_of(plan); }

static int micro_batches(const struct plan *plan) { return plan->accumulate > 0 ? plan->accumulate : 1; }

/* The groups of the rank: its mesh, and second groups of two axes. */
static void join(struct rank *rank, struct stage_job *job, const struct stage_plan *plan) {
    const int sizes[LS_MESH_AXES] = {1, replicas_of(plan), plan->stages};
    char name[LS_MESH_NAME_CAPACITY];
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = rank->world_size,
                               .timeout_s = PLAN_TIMEOUT_S,
                               .allreduce = plan->plan.allreduce ? plan->plan.allreduce : "naive",
                               .bootstrap = &rank->bootstrap,
                               .group = "grid"};
    CHECK(ls_mesh_create_shm(&job->mesh, sizes, &options) == LS_OK);
    options.group = "beside";
    ls_comm_options beside = ls_mesh_options(&job->mesh, LS_MESH_PIPELINE, sizes, &options, name);
    CHECK(ls_comm_create_shm(&job->beside, &beside) == LS_OK);
    options.job = job->mesh.job;
    options.group = "all";
    if (plan->sharded) CHECK(ls_comm_create_shm(&job->all, &options) == LS_OK);
    if (!plan->plan.sync_bn) return;
    options.group = "beside";
    beside = ls_mesh_options(&job->mesh, LS_MESH_DATA, sizes, &options, name);
    CHECK(ls_comm_create_shm(&job->sync_bn, &beside) == LS_OK);
}

static void open_model(struct rank *rank, struct session *s, const struct plan *plan, size_t rows) {
    ls_device_options device = {.index = rank->rank, .devices_on_node = rank->world_size, .place = rank->rank};
    setenv("LS_CPU_STREAMS", plan->streams ? plan->streams : "inline", 1);
    CHECK(ls_device_open(&s->devices[0], &device) == LS_OK);
    CHECK(ls_device_bind_thread(s->devices[0]) == LS_OK);
    s->device_count = 1;
    CHECK((plan->network ? ls_model_create_segments_of(&s->model, s->devices[0], plan->network, rows, plan->precision,
                                                       LS_FORWARD_ONLY, true)
                         : ls_model_create_segments(&s->model, s->devices[0], plan->model, rows, plan->precision,
                                                    LS_FORWARD_ONLY, true)) == LS_OK);
}

void stage_job_open(struct rank *rank, struct stage_job *job, const struct stage_plan *plan) {
    struct session *s = &job->session;
    int replicas = replicas_of(plan);
    size_t rows =
        ls_micro_batch_rows((plan->plan.batch + (size_t)replicas - 1) / (size_t)replicas, micro_batches(&plan->plan));
    *job = (struct stage_job){.session = {.rank = rank->rank, .world_size = rank->world_size}};
    ls_set_wait_timeout_s(2 * PLAN_TIMEOUT_S);
    join(rank, job, plan);
    open_model(rank, s, &plan->plan, rows);
    ddp_options options = {.comm = job->mesh.axis[LS_MESH_DATA],
                           .mesh = &job->mesh,
                           .sync_bn = job->sync_bn,
                           .stages = job->beside,
                           .shards = job->all,
                           .schedule = plan->schedule,
                           .micro_batches = micro_batches(&plan->plan),
                           .max_batch = rows,
                           .optimizer = plan->plan.optimizer};
    if (plan->plan.precision == LS_FP16) options.optimizer.scaler.enabled = true;
    CHECK(ddp_create_pipeline(&s->parallel, s->model, &options) == LS_OK);
    s->parallel->micro_batches = micro_batches(&plan->plan);
    CHECK(ls_model_init(s->model, plan->plan.seed) == LS_OK);
    CHECK(samples_make(&job->samples, &plan->plan, s->model, s->parallel->data_rank, s->parallel->data_size));
}

void stage_job_close(const struct rank *rank, struct stage_job *job) {
    struct session *s = &job->session;
    ls_memory_report memory;
    samples_free(&job->samples);
    s->parallel->ops->destroy(s->parallel);
    ls_model_destroy(s->model);
    ls_device_memory(s->devices[0], &memory);
    CHECK(memory.current_total_bytes == 0);
    ls_device_close(s->devices[0]);
    ls_comm_destroy(job->all);
    ls_comm_destroy(job->sync_bn);
    ls_comm_destroy(job->beside);
    ls_mesh_destroy(&job->mesh);
}

static void compare(struct rank *rank, struct stage_job *job, const struct stage_plan *plan, size_t k) {
    ls_parallel *p = job->session.parallel;
    const struct outcome *expected = &plan->expected[0];
    uint64_t weights, state;
    double loss;
    struct ls_scaler_state scaler;
    CHECK(p->process->before_evaluation(p) == LS_OK);
    CHECK(session_hash(&job->session, &weights, &state) == LS_OK);
    CHECK(weights == expected->weights[k]);
    CHECK(state == expected->state[k]);
    CHECK(session_scaler(&job->session, &scaler) == LS_OK && scaler.scale == expected->scales[k]);
    CHECK(session_loss(&job->session, k, &loss) == LS_OK);
    if (!p->loss_elsewhere) CHECK(loss == plan->expected[p->data_rank].losses[k]);
}

static void run_rank(struct rank *rank) {
    const struct stage_plan *plan = rank->argument;
    struct stage_job job;
    stage_job_open(rank, &job, plan);
    for (size_t k = 0; k < plan->plan.steps; k++) {
        CHECK(session_step(&job.session, &job.samples.batches[k]) == LS_OK);
        CHECK(session_synchronize(&job.session) == LS_OK);
        compare(rank, &job, plan, k);
    }
    stage_job_close(rank, &job);
}

void stages_expect_bits(const struct stage_plan *plan) { run_training_ranks(stage_ranks(plan), run_rank, plan); }

void stages_expect_reference(struct stage_plan plan) {
    struct outcome *expected = outcomes_run(&plan.plan);
    plan.expected = expected;
    for (plan.schedule = DDP_GPIPE; plan.schedule <= DDP_1F1B; plan.schedule++) stages_expect_bits(&plan);
    outcomes_free(expected);
}
