/* steps — whole training steps by the programs themselves: models, batches, precisions, with and without a CUDA graph.
 *   data  : 60,000 random samples, so that epochs are long; four loader workers. Where the loader still keeps the GPU waiting, the row
 *           says for what share of the time. A step of wide at batch 8192 needs 268 MB of samples: two batches stay on the GPU
 *   steps : so many that a run takes a few seconds at most
 *   flops : of a step of a perceptron, 2 per weight and sample forward and 4 backward, less the first layer's unneeded input gradient;
 *           TFLOP/s are left out for convnet, whose time is not in matrix products */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/gpu_check/gpu_check.h"

static const struct workload {
    const char *model;
    long batches[2];
    int steps[2];
    bool resident[2]; /* two batches stay on the GPU, without loader and copies */
    int layers;
    double sizes[3]; /* of layers, where TFLOP/s make sense */
} workloads[] = {
    {"mlp", {64, 1024}, {4000, 2000}, {false, false}, 3, {784, 256, 10}},
    {"convnet", {100, 1000}, {2000, 600}, {false, false}, 0, {0}},
    {"deep", {64, 1024}, {1000, 400}, {false, false}, 0, {0}},
    {"wide", {512, 8192}, {200, 60}, {false, true}, 3, {4096, 8192, 4096}},
};

static const struct precision {
    const char *name, *option; /* of the programs; NULL: their default */
} precisions[] = {{"fp32", NULL}, {"TF32", "--tf32"}, {"bf16", "--precision=bf16"}, {"fp16", "--precision=fp16"}};

static double step_flops(const struct workload *w, long batch) {
    double flops = 0;
    for (int l = 0; l + 1 < w->layers; l++) flops += (l == 0 ? 4 : 6) * w->sizes[l] * w->sizes[l + 1];
    return flops * (double)batch;
}

static void add_step(gpu_check_result *result, const gpu_check_settings *settings, const char *program,
                     const char *const *extra, gpu_check_step step, const struct workload *w) {
    if (result->step_count == GPU_CHECK_STEPS_MAX) return;
    int size = step.batch == w->batches[1];
    char batch[32], steps[32];
    snprintf(batch, sizeof batch, "--batch-size=%ld", step.batch);
    snprintf(steps, sizeof steps, "--steps=%d", settings->quick ? 45 : w->steps[size]);
    const char *arguments[32] = {"--device-kind=cuda", "--quiet", "--no-evaluate", "--drop-last", "--workers=4",
                                 "--data=random:0",    "--model", w->model,        batch,         steps};
    int count = 10;
    for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
        bool is_it = precisions[p].option && strcmp(step.precision, precisions[p].name) == 0;
        if (is_it) arguments[count++] = precisions[p].option;
    }
    if (step.graph) arguments[count++] = "--cuda-graph";
    if (w->resident[size]) arguments[count++] = "--resident-batches=2";
    for (int e = 0; extra[e]; e++) arguments[count++] = extra[e];
    gpu_check_run run;
    (void)gpu_check_train(&run, program, arguments, settings); /* a failure leaves its note */
    step.model = w->model;
    step.step_ms = run.step_ms;
    step.samples_per_s = run.samples_per_s;
    step.peak_bytes = run.peak_bytes;
    step.loader_share = run.loader_share;
    step.TFLOPs = w->layers > 0 ? step_flops(w, step.batch) / run.step_ms * 1e-9 : NAN;
    snprintf(step.note, sizeof step.note, "%s", run.note);
    step.left_out = run.left_out;
    result->steps[result->step_count++] = step;
}

static void measure_single(gpu_check_result *result, const gpu_check_settings *settings, const char *ids) {
    const char *extra[] = {"--single", "--device-ids", ids, NULL};
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        for (int b = 0; b < (settings->quick ? 1 : 2); b++) {
            for (int variant = 0; variant < 8; variant++) {
                if (settings->quick && (i > 0 || (variant != 0 && variant != 3 && variant != 7))) continue;
                gpu_check_step step = {.mode = "single",
                                       .precision = precisions[variant / 2].name,
                                       .devices = 1,
                                       .batch = workloads[i].batches[b],
                                       .graph = variant % 2 == 1};
                add_step(result, settings, "dp_train", extra, step, &workloads[i]);
            }
        }
    }
}

/* Both modes on all GPUs, or, where there is one, on two logical devices that share it. */
static void measure_parallel(gpu_check_result *result, const gpu_check_settings *settings, const char *ids,
                             const char *count) {
    const char *dp[] = {"--device-ids", ids, NULL}, *ddp[] = {"--spawn", count, "--device-ids", ids, NULL};
    for (size_t i = 0; i < (settings->quick ? 1 : sizeof workloads / sizeof *workloads); i++) {
        int last = settings->quick ? 0 : 1;
        gpu_check_step step = {.precision = "fp32", .devices = atoi(count), .batch = workloads[i].batches[last]};
        step.mode = "DP";
        add_step(result, settings, "dp_train", dp, step, &workloads[i]);
        step.mode = "DDP";
        add_step(result, settings, "ddp_train", ddp, step, &workloads[i]);
    }
}

void gpu_check_measure_steps(gpu_check_result *result, const gpu_check_settings *settings) {
    char one[16], all[128], count[16];
    snprintf(one, sizeof one, "%d", settings->gpu);
    int devices = result->gpu_count > 1 ? result->gpu_count : 2;
    if (devices > 8) devices = 8;
    gpu_check_list_ids(all, sizeof all, devices, result->gpu_count > 1 ? -1 : settings->gpu);
    snprintf(count, sizeof count, "%d", devices);
    measure_single(result, settings, one);
    measure_parallel(result, settings, all, count);
}

void gpu_check_list_ids(char *text, size_t capacity, int devices, int gpu) {
    size_t length = 0;
    text[0] = '\0';
    for (int d = 0; d < devices && length < capacity; d++) {
        length += (size_t)snprintf(text + length, capacity - length, "%s%d", d ? "," : "", gpu < 0 ? d : gpu);
    }
}
