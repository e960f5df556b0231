/* DistributedDataParallel on the data axis of a grid: for gradients each group of that axis is a separate job; for the
 * end of ranks all of them are one job. */
#include <string.h>

#include "common/comm/mesh.h"
#include "tests/base/test.h"
#include "tests/parallel/plan.h"

enum { TENSOR = 2, DATA = 2, RANKS = TENSOR * DATA };

static const int sizes[LS_MESH_AXES] = {TENSOR, DATA, 1};

struct grid_rank {
    ls_mesh mesh;
    ls_device *device;
    ls_model *model;
    ls_parallel *parallel;
    struct samples samples;
};

static struct plan plan_of(void) {
    struct plan plan = {.mode = MODE_DDP, .devices = DATA, .model = "convnet", .batch = 12, .samples = 48, .steps = 4};
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

/* Each data group begins with its first rank's weights: those of seed 0. */
static struct grid_rank open_grid(struct rank *rank) {
    struct grid_rank g = {0};
    const struct plan plan = plan_of();
    ls_comm_options options = {
        .rank = rank->rank, .world_size = RANKS, .timeout_s = PLAN_TIMEOUT_S, .bootstrap = &rank->bootstrap};
    options.allreduce = "naive";
    ls_device_options device = {.index = rank->rank, .devices_on_node = RANKS, .place = rank->rank};
    CHECK(ls_mesh_create_shm(&g.mesh, sizes, &options) == LS_OK);
    CHECK(ls_device_open(&g.device, &device) == LS_OK);
    CHECK(ls_model_create(&g.model, g.device, plan.model, plan.batch, LS_FP32) == LS_OK);
    CHECK(ls_model_init(g.model, (uint64_t)(rank->rank / TENSOR)) == LS_OK);
    ddp_options ddp = {.comm = g.mesh.axis[LS_MESH_DATA],
                       .mesh = &g.mesh,
                       .max_batch = plan.batch,
                       .optimizer = plan.optimizer,
                       .reducer = {.bucket_cap_mb = 25, .overlap = true}};
    CHECK(ddp_create(&g.parallel, g.model, &ddp) == LS_OK);
    CHECK(samples_make(&g.samples, &plan, g.model, g.parallel->data_rank, g.parallel->data_size));
    return g;
}

static void close_grid(struct grid_rank *g) {
    g->parallel->ops->destroy(g->parallel);
    ls_model_destroy(g->model);
    ls_mesh_destroy(&g->mesh);
    ls_device_close(g->device);
    samples_free(&g->samples);
}

/* The reference's outcomes are those of its two ranks. */
static void trains_rank(struct rank *rank) {
    const struct outcome *wanted = rank->argument;
    struct grid_rank g = open_grid(rank);
    ls_parallel *p = g.parallel;
    CHECK(p->rank == rank->rank && p->world_size == RANKS && p->device_count == RANKS);
    CHECK(p->data_rank == rank->rank / TENSOR && p->data_size == DATA && ls_parallel_replicas(p) == DATA);
    CHECK(p->tensor_rank == rank->rank % TENSOR && p->tensor_size == TENSOR);
    struct session session = {.rank = rank->rank,
                              .world_size = RANKS,
                              .device_count = 1,
                              .devices = {g.device},
                              .model = g.model,
                              .parallel = p};
    for (size_t k = 0; k < plan_of().steps; k++) {
        uint64_t weights, state;
        double loss, sum;
        CHECK(session_step(&session, &g.samples.batches[k]) == LS_OK);
        CHECK(session_hash(&session, &weights, &state) == LS_OK);
        CHECK(weights == wanted->weights[k]);
        CHECK(session_loss(&session, k, &loss) == LS_OK);
        sum = p->loss_elsewhere ? 0 : loss;
        CHECK(ls_sum_over_ranks(p, &sum, 1) == LS_OK); /* each replica's counts once */
        CHECK(sum == wanted[0].losses[k] + wanted[1].losses[k]);
    }
    close_grid(&g);
}

TEST(a_data_axis_has_the_bits_of_a_job_of_its_ranks) {
    struct outcome *outcomes = shared_alloc(DATA * sizeof *outcomes);
    assert_non_null(outcomes);
    const struct plan plan = plan_of();
    run_plan(&plan, outcomes, NULL);
    for (int r = 0; r < DATA; r++) assert_int_equal(outcomes[r].status, LS_OK);
    run_training_ranks(RANKS, trains_rank, outcomes);
    shared_free(outcomes, DATA * sizeof *outcomes);
}

/* A rank that gives up is named on all ranks, also on those of other data groups. */
static void gives_up_rank(struct rank *rank) {
    struct grid_rank g = open_grid(rank);
    ls_parallel *p = g.parallel;
    ls_status status = LS_OK;
    double value = 1;
    if (rank->rank == 3) {
        CHECK(ls_sum_over_ranks(p, &value, 1) == LS_OK); /* all ranks are running */
        CHECK(p->process->give_up(p, "for a reason", &status));
    } else {
        while (status == LS_OK) status = ls_sum_over_ranks(p, &value, 1);
        CHECK(status == LS_ERR_PEER);
        CHECK(strstr(rank->message, "rank 3") && strstr(rank->message, "for a reason"));
    }
    close_grid(&g);
}

TEST(a_rank_that_gives_up_ends_the_whole_grid) { run_training_ranks(RANKS, gives_up_rank, NULL); }
