/* steps — whole training steps by the programs themselves. Stage `steps`: the rows that README and docs/gpus.md name,
 * then the same, alternating with PyTorch's (labs/bench/peers/bench_pytorch_gpu.py). Stage `matrix`: every other model,
 * batch and precision.
 *   data  : 60,000 random samples, so that epochs are long; four loader workers. If the GPU still waits for the loader,
 *           the row has the share of the time. A step of wide at batch 8192 needs 268 MB of samples: two batches are
 *           kept on the GPU
 *   steps : as many as take a few seconds at most
 *   flops : of a step of a perceptron, 2 per weight and sample forward and 4 backward, less the first layer's input
 *           gradient, which is not needed; TFLOP/s are left out for convnet, whose time is not in matrix multiplies,
 *           and for gpt, whose rows are tokens */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/bench/gpu_check/gpu_check.h"
#include "labs/bench/shared/columns.h"

#define PYTORCH_S 240.0

static const struct workload {
    const char *model;
    long batches[2];
    int steps[2];
    bool resident[2]; /* two batches are kept on the GPU, without loader and copies */
    int goal;         /* the index of the batch that the pages name, -1: none ... */
    const char *in;   /* ... in this precision */
    const char *optimizer[3];
    double sizes[3]; /* of layers, if TFLOP/s make sense */
    int layers;
} workloads[] = {
    {"mlp", {64, 1024}, {4000, 2000}, {false, false}, 0, "fp32", {"--optimizer=adam", "--lr=0.001"}, {784, 256, 10}, 3},
    {"convnet",
     {100, 1000},
     {2000, 600},
     {false, false},
     0,
     "fp32",
     {"--optimizer=sgd", "--lr=0.01", "--momentum=0.9"},
     {0},
     0},
    {"deep", {64, 1024}, {1000, 400}, {false, false}, -1, "", {"--optimizer=sgd", "--lr=0.01"}, {0}, 0},
    {"wide", {512, 8192}, {200, 60}, {false, true}, 1, "bf16", {"--optimizer=sgd", "--lr=0.01"}, {4096, 8192, 4096}, 3},
    {"gpt", {12, 192}, {1000, 300}, {false, false}, -1, "", {"--optimizer=adamw", "--lr=0.001"}, {0}, 0},
};
enum { WORKLOADS = sizeof workloads / sizeof *workloads, QUICK_STEPS = 45 };

static const struct precision {
    const char *name, *option; /* of the programs; NULL: their default */
} precisions[] = {{"fp32", NULL}, {"TF32", "--tf32"}, {"bf16", "--precision=bf16"}, {"fp16", "--precision=fp16"}};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

struct row {
    const char *mode;
    const struct workload *w;
    int size; /* the index of the batch */
    const struct precision *precision;
    bool graph;
    int devices;
};

static double step_flops(const struct workload *w, long batch) {
    double flops = 0;
    for (int l = 0; l + 1 < w->layers; l++) flops += (l == 0 ? 4 : 6) * w->sizes[l] * w->sizes[l + 1];
    return flops * (double)batch;
}

static cJSON *figures_of(const struct row *row, const gpu_check_training *run) {
    const struct workload *w = row->w;
    long batch = w->batches[row->size];
    cJSON *figures = cJSON_CreateObject();
    cJSON_AddStringToObject(figures, "mode", row->mode);
    cJSON_AddStringToObject(figures, "model", w->model);
    cJSON_AddNumberToObject(figures, "devices", row->devices);
    cJSON_AddNumberToObject(figures, "batch", (double)batch);
    cJSON_AddStringToObject(figures, "precision", row->precision->name);
    cJSON_AddBoolToObject(figures, "graph", row->graph);
    cJSON_AddBoolToObject(figures, "resident", w->resident[row->size]);
    bench_add_number(figures, "step_ms", run->step_ms);
    bench_add_number(figures, "samples_per_s", run->samples_per_s);
    bench_add_number(figures, "TFLOPs", w->layers > 0 ? step_flops(w, batch) / run->step_ms * 1e-9 : NAN);
    bench_add_number(figures, "peak_bytes", run->peak_bytes);
    bench_add_number(figures, "loader_wait_share", run->loader_share);
    return figures;
}

static void add_row(gpu_check *check, const struct row *row, const char *program, const char *const *extra) {
    const struct workload *w = row->w;
    char name[GPU_CHECK_TEXT], batch[32], steps[32];
    snprintf(name, sizeof name, "%s, batch %ld, %s, %s%s", w->model, w->batches[row->size], row->precision->name,
             row->mode, row->graph ? ", graph" : "");
    if (!gpu_check_due(check, name)) return;
    snprintf(batch, sizeof batch, "--batch-size=%ld", w->batches[row->size]);
    snprintf(steps, sizeof steps, "--steps=%d", check->quick ? QUICK_STEPS : w->steps[row->size]);
    const char *arguments[32] = {"--device-kind=cuda", "--quiet", "--no-evaluate", "--drop-last", "--workers=4",
                                 "--data=random:0",    "--model", w->model,        batch,         steps};
    int count = 10;
    for (int o = 0; o < 3 && w->optimizer[o]; o++) arguments[count++] = w->optimizer[o];
    if (row->precision->option) arguments[count++] = row->precision->option;
    if (row->graph) arguments[count++] = "--cuda-graph";
    if (w->resident[row->size]) arguments[count++] = "--resident-batches=2";
    for (int e = 0; extra[e]; e++) arguments[count++] = extra[e];
    gpu_check_training run;
    gpu_check_train(check, &run, program, arguments);
    bool held = run.end == GPU_CHECK_WELL && run.step_ms > 0;
    gpu_check_say(check, name, held ? GPU_CHECK_HELD : gpu_check_verdict_of(run.end), run.seconds,
                  held ? figures_of(row, &run) : NULL, "%s",
                  held         ? ""
                  : run.why[0] ? run.why
                               : "no step was timed");
}

/* On one device: the rows of the present stage. With `quick`: mlp, and one row of the matrix. */
static void measure_single(gpu_check *check) {
    char id[16];
    snprintf(id, sizeof id, "%d", check->gpu);
    const char *extra[] = {"--single", "--device-ids", id, NULL};
    for (int all = 0; all < WORKLOADS * 2 * PRECISIONS * 2; all++) {
        int graph = all % 2, p = all / 2 % PRECISIONS, size = all / 2 / PRECISIONS % 2, i = all / 4 / PRECISIONS;
        struct row row = {"single", &workloads[i], size, &precisions[p], graph == 1, 1};
        bool is_goal = row.w->goal == size && strcmp(row.w->in, row.precision->name) == 0;
        if (is_goal != (check->stage == GPU_CHECK_steps)) continue;
        if (check->quick && (i > 0 || size > 0 || (!is_goal && all != 2 * PRECISIONS - 1))) continue;
        add_row(check, &row, "dp_train", extra);
    }
}

/* Both modes on all GPUs or, if there is only one, on two logical devices that share it. */
static void measure_parallel(gpu_check *check) {
    char ids[128], count[16];
    int devices = check->gpu_count > 8 ? 8 : check->gpu_count > 1 ? check->gpu_count : 2;
    gpu_check_list_ids(ids, sizeof ids, devices, check->gpu_count > 1 ? -1 : check->gpu);
    snprintf(count, sizeof count, "%d", devices);
    const char *dp[] = {"--device-ids", ids, NULL}, *ddp[] = {"--spawn", count, "--device-ids", ids, NULL};
    for (int i = 0; i < (check->quick ? 1 : WORKLOADS); i++) {
        struct row row = {"DP", &workloads[i], check->quick ? 0 : 1, &precisions[0], false, devices};
        add_row(check, &row, "dp_train", dp);
        row.mode = "DDP";
        add_row(check, &row, "ddp_train", ddp);
    }
}

/* If PyTorch cannot run a case here, the item is not broken. */
static void say_pytorch(gpu_check *check, gpu_check_end end, double seconds, const char *why) {
    static const gpu_check_verdict verdicts[] = {GPU_CHECK_HELD, GPU_CHECK_NO_TOOL, GPU_CHECK_NOT_RUN};
    gpu_check_say(check, "PyTorch", verdicts[end], seconds, NULL, "%s", why);
}

/* The script appends its lines to the log itself. */
static void measure_pytorch(gpu_check *check) {
    static const char probe[] = "import sys, torch\nsys.exit(0 if torch.cuda.is_available() else 'no CUDA in PyTorch')";
    static char python[BENCH_PATH_CAPACITY];
    static bench_output output;
    char why[GPU_CHECK_TEXT] = "there is no python3, or --pytorch was not given", limit[32];
    double seconds = -1;
    if (!gpu_check_due(check, "PyTorch")) return;
    char *const try[] = {python, "-c", (char *)probe, NULL};
    gpu_check_end end = GPU_CHECK_FAILED;
    if (check->pytorch && bench_find_tool(python, "python3"))
        end = gpu_check_run(check, try, 60, &output, why, &seconds);
    if (end != GPU_CHECK_WELL) {
        say_pytorch(check, end, seconds, why);
        return;
    }
    snprintf(limit, sizeof limit, "%.0f",
             fmin(PYTORCH_S, gpu_check_left_s(check)) * 0.8); /* the last case ends later */
    char *const argv[] = {python, (char *)check->pytorch, "1", check->path, limit, NULL};
    end = gpu_check_run(check, argv, PYTORCH_S, &output, why, &seconds);
    say_pytorch(check, end, seconds, why);
}

void gpu_check_steps(gpu_check *check) {
    measure_single(check);
    if (check->stage == GPU_CHECK_steps)
        measure_pytorch(check);
    else
        measure_parallel(check);
}
