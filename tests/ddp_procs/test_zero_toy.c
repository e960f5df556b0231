/* ZeRO-1 as a toy: each rank averages and updates its slice of every bucket, and gathers the parameters' slices. */
#include "common/train/loop.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/job.h"
#include "tests/ddp_procs/reduced.h"

enum { PARAMETERS = 4, ROWS = 6, OPTIMIZER = LS_MEMORY_OPTIMIZER }; /* of "mlp"; of a rank, at most */

static ls_status reduce_scatter(ls_comm *comm, ls_stream *stream, void *all, size_t count, ls_dtype t, ls_reduce_op o) {
    size_t slice = count / (size_t)ls_comm_world_size(comm);
    return ls_comm_reduce_scatter(comm, stream, all, (float *)all + slice * (size_t)ls_comm_rank(comm), slice, t, o);
}

/* What of the parameter's gradient lies in the rank's slice of its bucket, perhaps nothing. */
static ls_optimizer_range find_own(const struct rank *rank, const struct reduced *r, size_t p) {
    const struct ls_tensor *tensor = ls_model_parameter(r->model, p);
    const struct bucket *bucket = &r->reducer->buckets[r->reducer->bucket_of[p]];
    ptrdiff_t slice = (ptrdiff_t)bucket->count / rank->world_size, count = (ptrdiff_t)tensor->count;
    ptrdiff_t begin = slice * rank->rank - (tensor->gradient - bucket->data);
    ptrdiff_t first = begin > 0 ? begin : 0, last = begin + slice < count ? begin + slice : count;
    return (ls_optimizer_range){tensor, (size_t)first, first < last ? (size_t)(last - first) : 0, NULL, NULL};
}

/* By way of the buckets, whose gradients have served. All streams run inline. */
static void gather_parameters(struct rank *rank, struct reduced *r, const ls_optimizer_range *own) {
    for (const ls_optimizer_range *o = own; o < own + PARAMETERS; o++)
        ls_copy(r->compute, o->tensor->gradient + o->first, o->tensor->data + o->first, o->count * sizeof(float));
    for (size_t b = 0; b < r->reducer->bucket_count; b++) {
        float *all = r->reducer->buckets[b].data;
        size_t slice = r->reducer->buckets[b].count / (size_t)rank->world_size, at = slice * (size_t)rank->rank;
        CHECK(ls_comm_all_gather(rank->comm, rank->stream, all + at, all, slice, LS_FP32) == LS_OK);
    }
    for (const ls_optimizer_range *o = own; o < own + PARAMETERS; o++)
        ls_copy(r->compute, o->tensor->data, o->tensor->gradient, o->tensor->count * sizeof(float));
}

static void toy_rank(struct rank *rank) {
    const struct plan *plan = rank->argument;
    const ddp_reducer_options options = {0.01, .overlap = true, .reduce = reduce_scatter, .sliced = true};
    struct reduced zero;
    struct job ddp;
    ls_optimizer *optimizer;
    ls_optimizer_range own[PARAMETERS];
    ls_memory_report part, whole;
    uint64_t a, b;
    CHECK(rank_open(rank, "inline", plan->allreduce, PLAN_TIMEOUT_S) == LS_OK);
    job_open(rank, &ddp, *plan, rank->comm);
    reduced_create(rank, &zero, plan->model, ROWS, &options);
    for (size_t p = 0; p < PARAMETERS; p++) own[p] = find_own(rank, &zero, p);
    CHECK(ls_optimizer_create_of(&optimizer, rank->device, own, PARAMETERS, NULL, &plan->optimizer) == LS_OK);
    for (const ls_batch *batch = ddp.samples.batches; batch < ddp.samples.batches + plan->steps; batch++) {
        float loss, dy[ROWS * 10], weight = (float)((double)rank->world_size / (double)batch->global_count);
        CHECK(ddp_reducer_arm(zero.reducer, true, batch->count) == LS_OK);
        const float *y = ls_model_forward(zero.model, batch->inputs, batch->count, true);
        ls_cross_entropy(zero.compute, &loss, dy, y, batch->labels, batch->count, 10, weight);
        ls_model_backward(zero.model, dy, false);
        CHECK(ddp_reducer_finish(zero.reducer) == LS_OK && ls_optimizer_step(optimizer, NULL) == LS_OK);
        gather_parameters(rank, &zero, own);
        job_step(rank, &ddp, (size_t)(batch - ddp.samples.batches));
        CHECK(ls_model_hash(zero.model, &a) == LS_OK && ls_model_hash(ddp.session.model, &b) == LS_OK && a == b);
    }
    ls_device_memory(rank->device, &part);
    ls_device_memory(ddp.session.devices[0], &whole);
    CHECK(part.peak_bytes[OPTIMIZER] < whole.peak_bytes[OPTIMIZER] / (size_t)rank->world_size + 1024);
    ls_optimizer_destroy(optimizer);
    reduced_destroy(&zero);
    job_close(rank, &ddp);
    reduced_rank_close(rank);
}

TEST(slices_have_the_bits_of_distributed_data_parallel) {
    for (int i = 0; i < 16; i++) {
        struct plan plan = job_plan("mlp", (int[]){2, 3, 4, 6}[i / 4], 11, 66);
        plan.allreduce = i % 2 ? "direct" : "naive";
        plan.optimizer.momentum = 0.9;
        if (i / 2 % 2) plan.optimizer = ls_optimizer_defaults(LS_ADAM);
        run_good_ranks(plan.devices, toy_rank, &plan);
    }
}
