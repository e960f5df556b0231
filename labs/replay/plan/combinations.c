/* combinations: the combinations of options that are tried. The programs themselves refuse options that exclude one
 * another, so every list is crossed with every other. A technique that is added to ddp_train needs one more line
 * here. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/plan/planner.h"

static const char *const shards[] = {"", " --shard-state 1", " --shard-state 2", " --shard-state 3"};
static const char *const kept[] = {"", " --checkpoint-activations sqrt"};
static const int micro_batches[] = {1, 4}; /* of a pipeline: times its stages, since 1 makes no sense there */
static const struct {
    ls_dtype precision;
    const char *option;
} precisions[] = {{LS_FP32, ""}, {LS_BF16, " --precision bf16"}, {LS_FP16, " --precision fp16"}};
enum { TRIED_PRECISIONS = 2 }; /* fp16 only on request: it is as fast as bf16, and needs loss scaling */

#define COUNT(list) (sizeof(list) / sizeof *(list))

const struct planner_omission planner_omissions[] = {
    {"--offload optimizer", "replay has no price for the host's update"},
    {"--compress", "it changes what is trained; build/replay --compress says what a step takes"},
    {"--cuda-graph", "it saves launches on GPUs, and no memory; build/replay --cuda-graph says what a step takes"},
    {NULL, NULL},
};

const char *planner_program(const planner_row *row) { return row->mode == LS_PLAN_DP ? "dp_train" : "ddp_train"; }

const char *planner_devices_option(const planner_row *row) { return row->mode == LS_PLAN_DP ? "--devices" : "--spawn"; }

static ls_status add(planner_results *results, ls_plan_mode mode, const char *options) {
    if (results->count == results->capacity) {
        int capacity = 2 * results->capacity + 64;
        planner_row *rows = realloc(results->rows, (size_t)capacity * sizeof *rows);
        if (!rows) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %d combinations", capacity);
        results->rows = rows;
        results->capacity = capacity;
    }
    planner_row *row = &results->rows[results->count++];
    *row = (planner_row){.mode = mode};
    snprintf(row->options, sizeof row->options, "%s", options[0] == ' ' ? options + 1 : options);
    return LS_OK;
}

/* The number of micro-batches of equal size: `wanted`, or the next lower divisor of a replica's samples. */
static int divide_samples(double batch, int replicas, int wanted) {
    long long samples = (long long)batch / replicas;
    while (wanted > 1 && samples % wanted != 0) wanted--;
    return wanted;
}

/* Adds rows for all precisions, with activations kept or recomputed, in one micro-batch and in several. */
static ls_status add_ways(planner_results *results, ls_plan_mode mode, const char *layout, int stages, int replicas) {
    const int asked = results->settings->precision;
    ls_status status = LS_OK;
    for (size_t p = 0; p < COUNT(precisions); p++) {
        if (asked >= 0 ? (int)precisions[p].precision != asked : p >= TRIED_PRECISIONS) continue;
        for (size_t k = 0; k < COUNT(kept); k++) {
            for (size_t m = stages > 1; status == LS_OK && m < COUNT(micro_batches); m++) {
                char options[PLANNER_OPTIONS], accumulate[32] = "";
                int pieces = divide_samples(results->batch, replicas, micro_batches[m] * stages);
                if (micro_batches[m] > 1 && pieces == 1) continue;
                if (pieces > 1) snprintf(accumulate, sizeof accumulate, " --accumulate %d", pieces);
                snprintf(options, sizeof options, "%s%s%s%s", layout, accumulate, kept[k], precisions[p].option);
                status = add(results, mode, options);
            }
        }
    }
    return status;
}

/* ZeRO's stages on a grid. */
static ls_status add_grid(planner_results *results, int tensor, bool sequence, int pipeline) {
    int replicas = results->settings->devices / (tensor * pipeline);
    ls_status status = LS_OK;
    for (size_t s = 0; status == LS_OK && s < COUNT(shards) && (s == 0 || replicas > 1); s++) {
        char layout[PLANNER_OPTIONS], of_tensor[32] = "", of_pipeline[32] = "";
        if (tensor > 1) snprintf(of_tensor, sizeof of_tensor, " --tensor %d", tensor);
        if (pipeline > 1) snprintf(of_pipeline, sizeof of_pipeline, " --pipeline %d", pipeline);
        snprintf(layout, sizeof layout, "%s%s%s%s", of_tensor, sequence ? " --sequence-parallel" : "", of_pipeline,
                 shards[s]);
        status = add_ways(results, LS_PLAN_DDP, layout, pipeline, replicas);
    }
    return status;
}

ls_status planner_list(planner_results *results) {
    int devices = results->settings->devices;
    ls_status status = LS_OK;
    for (int tensor = 1; tensor <= devices; tensor++) {
        for (int sequence = 0; sequence <= (tensor > 1); sequence++)
            for (int pipeline = 1; status == LS_OK && tensor * pipeline <= devices; pipeline++)
                if (devices % (tensor * pipeline) == 0) status = add_grid(results, tensor, sequence, pipeline);
        if (status == LS_OK && tensor == 1) status = add_ways(results, LS_PLAN_DP, "", 1, devices);
    }
    return status;
}
