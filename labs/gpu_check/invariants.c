/* invariants — what must hold between the modes, on real devices.
 *   1 N devices follow one device: final losses within 1 % after 20 steps
 *   2 DataParallel and DistributedDataParallel, staged, with the ordered reduction and the same chunks: the same weight bits
 *   3 the same command twice: the same weight bits
 * Ranks of one run are compared after every step by --debug-ranks. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "labs/gpu_check/gpu_check.h"

void gpu_check_judge(gpu_check_result *result, bool passed, const char *name, const char *format, ...) {
    if (result->verdict_count == GPU_CHECK_VERDICTS_MAX) return;
    gpu_check_verdict *verdict = &result->verdicts[result->verdict_count++];
    snprintf(verdict->name, sizeof verdict->name, "%s", name);
    verdict->ran = true;
    verdict->passed = passed;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->detail, sizeof verdict->detail, format, arguments);
    va_end(arguments);
}

struct place {
    char ids[128], count[16], text[64];
};

static bool train(gpu_check_run *run, const gpu_check_settings *settings, const char *program, const char *model,
                  const char *const *extra) {
    const char *arguments[32] = {"--device-kind=cuda", "--quiet",    "--no-evaluate", "--drop-last", "--model", model,
                                 "--batch-size=64",    "--steps=20", "--lr=0.001"};
    int count = 9;
    for (int e = 0; extra[e]; e++) arguments[count++] = extra[e];
    return gpu_check_train(run, program, arguments, settings);
}

/* The last verdict, if one of its runs was left out. */
static void withdraw(gpu_check_result *result, const gpu_check_run *a, const gpu_check_run *b) {
    if (a->left_out || b->left_out) result->verdicts[result->verdict_count - 1].ran = false;
}

static void judge_bits(gpu_check_result *result, const char *what, const char *model, const struct place *place,
                       const gpu_check_run *a, const gpu_check_run *b) {
    char name[GPU_CHECK_TEXT];
    snprintf(name, sizeof name, "%s, %s, %s", what, model, place->text);
    bool same = a->weights[0] != '\0' && strcmp(a->weights, b->weights) == 0;
    gpu_check_judge(result, same, name, "weights %s and %s%s%s", a->weights, b->weights, a->note, b->note);
    withdraw(result, a, b);
}

static void judge_loss(gpu_check_result *result, const char *what, const char *model, const struct place *place,
                       const gpu_check_run *one, const gpu_check_run *many) {
    char name[GPU_CHECK_TEXT];
    snprintf(name, sizeof name, "%s, %s, %s", what, model, place->text);
    bool close = fabs(one->final_loss - many->final_loss) <= 0.01 * fabs(one->final_loss);
    gpu_check_judge(result, close, name, "loss %.6f and %.6f%s%s", one->final_loss, many->final_loss, one->note,
                    many->note);
    withdraw(result, one, many);
}

/* Batch norm's statistics are those of a device's piece, so convnet is compared with itself only. */
static void check_model(gpu_check_result *result, const gpu_check_settings *settings, const char *model,
                        const struct place *place) {
    char one_id[16];
    snprintf(one_id, sizeof one_id, "%d", settings->gpu);
    const char *single[] = {"--single", "--device-ids", one_id, NULL};
    const char *dp[] = {"--device-ids", place->ids, NULL};
    const char *staged[] = {"--spawn",           place->count,         "--device-ids",  place->ids, "--backend=shm",
                            "--allreduce=naive", "--shard=contiguous", "--debug-ranks", NULL};
    const char *automatic[] = {"--spawn", place->count, "--device-ids", place->ids, "--debug-ranks", NULL};
    gpu_check_run one, two, first, second, third, fourth;
    bool follows = strcmp(model, "mlp") == 0;
    if (follows) (void)train(&one, settings, "dp_train", model, single);
    (void)train(&first, settings, "dp_train", model, dp);
    (void)train(&two, settings, "dp_train", model, dp);
    (void)train(&second, settings, "ddp_train", model, staged);
    (void)train(&third, settings, "ddp_train", model, automatic);
    (void)train(&fourth, settings, "ddp_train", model, automatic);
    judge_bits(result, "DP twice", model, place, &first, &two);
    judge_bits(result, "DP and DDP (staged, naive)", model, place, &first, &second);
    judge_bits(result, "DDP twice", model, place, &third, &fourth);
    if (!follows) return;
    judge_loss(result, "one device and DP", model, place, &one, &first);
    judge_loss(result, "one device and DDP", model, place, &one, &third);
}

static void check_place(gpu_check_result *result, const gpu_check_settings *settings, int devices, bool logical) {
    struct place place;
    gpu_check_list_ids(place.ids, sizeof place.ids, devices, logical ? settings->gpu : -1);
    snprintf(place.count, sizeof place.count, "%d", devices);
    snprintf(place.text, sizeof place.text, "%d %s", devices, logical ? "logical devices" : "GPUs");
    check_model(result, settings, "mlp", &place);
    if (!settings->quick) check_model(result, settings, "convnet", &place);
}

void gpu_check_invariants(gpu_check_result *result, const gpu_check_settings *settings) {
    check_place(result, settings, 2, true);
    if (!settings->quick) check_place(result, settings, 4, true);
    /* powers of two only: the factor 1/N must be exact */
    for (int n = 2; n <= result->gpu_count && n <= 8 && !settings->quick; n *= 2)
        check_place(result, settings, n, false);
}
