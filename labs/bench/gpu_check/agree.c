/* agree — checks that the modes agree on a real device.
 *   1 one device: the same weight bits enqueued one by one, as a CUDA graph, with CUDA_LAUNCH_BLOCKING=1, and by DDP over
 *     NCCL with one rank, as a graph or not
 *   2 DataParallel and DistributedDataParallel, staged, with the ordered reduction and the same chunks: the same weight bits
 *   3 the same command twice: the same weight bits
 *   4 N devices follow one device: final losses within 1 % after 20 steps (6 with --quick)
 * on 2 and 4 logical devices of one GPU, and on as many GPUs as there are. Ranks of one run are compared after every
 * step by --debug-ranks. A run that several comparisons need is executed once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/bench/gpu_check/gpu_check.h"

enum { WORDS_MAX = 40, RUNS_MAX = 96, LINE = 300 };

/* A command, its words separated by single blanks; a leading NAME=VALUE goes into the environment. `again`
 * distinguishes two runs of one command. */
struct command {
    char line[LINE];
    bool again;
};

static struct made {
    struct command command;
    gpu_check_training run;
} made[RUNS_MAX];
static int made_count;

static void train(gpu_check *check, const struct command *command, gpu_check_training *run) {
    char line[LINE], *rest;
    const char *arguments[WORDS_MAX] = {"--device-kind=cuda",
                                        "--quiet",
                                        "--no-evaluate",
                                        "--drop-last",
                                        "--batch-size=64",
                                        "--lr=0.001",
                                        check->quick ? "--steps=6" : "--steps=20"};
    int count = 7;
    snprintf(line, sizeof line, "%s", command->line);
    char *word = strtok_r(line, " ", &rest), *value = strchr(word, '=');
    if (value) {
        *value = '\0';
        setenv(word, value + 1, 1);
    }
    const char *program = value ? strtok_r(NULL, " ", &rest) : word;
    for (char *at; count + 1 < WORDS_MAX && (at = strtok_r(NULL, " ", &rest));) arguments[count++] = at;
    gpu_check_train(check, run, program, arguments);
    if (value) unsetenv(word);
}

static const gpu_check_training *get(gpu_check *check, const struct command *command) {
    for (int i = 0; i < made_count; i++)
        if (made[i].command.again == command->again && strcmp(made[i].command.line, command->line) == 0)
            return &made[i].run;
    struct made *slot = &made[made_count < RUNS_MAX ? made_count++ : RUNS_MAX - 1];
    slot->command = *command;
    train(check, command, &slot->run);
    return &slot->run;
}

/* Checks for the same weights or, if `follows`, nearly the same loss. */
static void compare(gpu_check *check, const char *what, const struct command *one, const struct command *other,
                    bool follows) {
    if (!gpu_check_due(check, what)) return;
    const gpu_check_training *a = get(check, one), *b = get(check, other), *bad = a->end != GPU_CHECK_WELL ? a : b;
    double seconds = a->seconds + b->seconds;
    if (bad->end != GPU_CHECK_WELL) {
        bool cut = a->end == GPU_CHECK_OUT_OF_TIME || b->end == GPU_CHECK_OUT_OF_TIME;
        bool failed = a->end == GPU_CHECK_FAILED || b->end == GPU_CHECK_FAILED;
        gpu_check_say(check, what, cut && !failed ? GPU_CHECK_NOT_RUN : GPU_CHECK_BROKEN, seconds, NULL, "%s",
                      bad->why);
    } else if (follows) {
        bool close = fabs(a->final_loss - b->final_loss) <= 0.01 * fabs(a->final_loss);
        gpu_check_say(check, what, close ? GPU_CHECK_HELD : GPU_CHECK_BROKEN, seconds, NULL, "loss %.6f and %.6f",
                      a->final_loss, b->final_loss);
    } else {
        bool same = strcmp(a->weights, b->weights) == 0;
        gpu_check_say(check, what, same ? GPU_CHECK_HELD : GPU_CHECK_BROKEN, seconds, NULL, "weights %s%s%s",
                      a->weights, same ? ", both" : " and ", same ? "" : b->weights);
    }
}

static void check_one_device(gpu_check *check, const char *model) {
    char what[GPU_CHECK_TEXT];
    struct command single = {"", false}, other = {"", false};
    snprintf(single.line, LINE, "dp_train --single --device-ids=%d --model=%s", check->gpu, model);
    const struct {
        const char *what, *before, *program, *after;
        bool nccl;
    } ways[] = {
        {"as a graph", "", "dp_train --single", " --cuda-graph", false},
        {"with CUDA_LAUNCH_BLOCKING=1", "CUDA_LAUNCH_BLOCKING=1 ", "dp_train --single", "", false},
        {"DDP over NCCL, one rank", "", "ddp_train --spawn=1 --backend=nccl", "", true},
        {"DDP over NCCL, one rank, as a graph", "", "ddp_train --spawn=1 --backend=nccl", " --cuda-graph", true},
    };
    cJSON *lines;
    if (gpu_check_read(check->path, &lines) != LS_OK) return;
    const cJSON *nccl = gpu_check_find_line(lines, "look", "NCCL");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(what, sizeof what, "%s: eager, and %s", model, ways[i].what);
        snprintf(other.line, LINE, "%s%s --device-ids=%d --model=%s%s", ways[i].before, ways[i].program, check->gpu,
                 model, ways[i].after);
        if (ways[i].nccl && gpu_check_verdict_in(nccl) != GPU_CHECK_HELD)
            gpu_check_say(check, what, GPU_CHECK_NO_TOOL, -1, NULL, "%s", gpu_check_text(nccl, "detail"));
        else
            compare(check, what, &single, &other, false);
    }
    cJSON_Delete(lines);
}

/* Batch norm's statistics are those of a device's part of the batch, so convnet is compared only with itself. */
static void check_devices(gpu_check *check, const char *model, int devices, bool logical) {
    char what[GPU_CHECK_TEXT], ids[128], place[64];
    struct command single = {"", false}, dp = single, staged = single, automatic = single;
    gpu_check_list_ids(ids, sizeof ids, devices, logical ? check->gpu : -1);
    snprintf(place, sizeof place, "%s on %d %s", model, devices, logical ? "logical devices" : "GPUs");
    snprintf(single.line, LINE, "dp_train --single --device-ids=%d --model=%s", check->gpu, model);
    snprintf(dp.line, LINE, "dp_train --device-ids=%s --model=%s", ids, model);
    snprintf(staged.line, LINE,
             "ddp_train --spawn=%d --device-ids=%s --model=%s --backend=shm --allreduce=naive --shard=contiguous "
             "--debug-ranks",
             devices, ids, model);
    snprintf(automatic.line, LINE, "ddp_train --spawn=%d --device-ids=%s --model=%s --debug-ranks", devices, ids,
             model);
    struct command dp_again = dp, automatic_again = automatic;
    dp_again.again = automatic_again.again = true;
    const struct {
        const char *what;
        const struct command *one, *other;
        bool follows;
    } pairs[] = {{"DP and DDP, staged", &dp, &staged, false},
                 {"DP twice", &dp, &dp_again, false},
                 {"DDP twice", &automatic, &automatic_again, false},
                 {"one device and DP", &single, &dp, true},
                 {"one device and DDP", &single, &automatic, true}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (pairs[i].follows && strcmp(model, "convnet") == 0) continue;
        snprintf(what, sizeof what, "%s: %s", place, pairs[i].what);
        compare(check, what, pairs[i].one, pairs[i].other, pairs[i].follows);
    }
}

void gpu_check_agree(gpu_check *check) {
    const char *const models[] = {"mlp", "convnet", "gpt"};
    int count = check->quick ? 1 : 3;
    made_count = 0;
    for (int m = count - 1; m >= 0; m--) check_one_device(check, models[m]);
    for (int n = 2; n <= (check->quick ? 2 : 4); n *= 2)
        for (int m = 0; m < count; m++) check_devices(check, models[m], n, true);
    /* powers of two only: the factor 1/N must be exact */
    for (int n = 2; n <= 8 && n <= check->gpu_count && !check->quick; n *= 2)
        for (int m = 0; m < count; m++) check_devices(check, models[m], n, false);
    if (check->gpu_count == 1)
        gpu_check_say(check, "the same on several GPUs, with NCCL and copies between them", GPU_CHECK_NEEDS_GPUS, -1,
                      NULL, "%s", "there is one");
}
