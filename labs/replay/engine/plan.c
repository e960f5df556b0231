/* plan — the defaults, and the split of a batch. */
#include "labs/replay/engine/plan.h"

#include <math.h>

#include "common/base/chunk.h"

struct ls_plan ls_plan_defaults(ls_plan_mode mode, int devices, double batch) {
    return (struct ls_plan){
        .mode = mode,
        .devices = devices,
        .batch = batch,
        .micro_batches = 1,
        .tensor = 1,
        .pipeline = 1,
        .prefetch_blocks = 1,
        .steps = 4,
        .precision = LS_FP32,
        .overlap = true,
        .first_bucket_bytes = (uint64_t)1 << 20,
        .bucket_bytes = (uint64_t)25 << 20,
        .gradient_element_bytes = sizeof(float),
        .collectives = LS_PLAN_BY_COST,
        .pattern = LS_PATTERN_RING,
    };
}

double ls_plan_aligned(double count) { return 16 * ceil(count / 16); }

bool ls_plan_is_whole(double batch) { return batch == floor(batch) && batch < 9e15; }

int ls_plan_replicas(const struct ls_plan *o) { return o->devices / (o->tensor * o->pipeline); }

double ls_plan_rows(const struct ls_plan *o, int d) {
    int replicas = ls_plan_replicas(o);
    if (!ls_plan_is_whole(o->batch)) return o->batch / replicas;
    size_t begin, count;
    ls_chunk((size_t)o->batch, replicas, d / o->tensor % replicas, &begin, &count);
    return (double)count;
}
