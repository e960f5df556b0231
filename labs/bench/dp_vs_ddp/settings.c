#include <stdio.h>
#include <string.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/comm/comm.h"
#include "common/report/step_times.h"
#include "common/seam/devices.h"
#include "common/train/loop.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/bench/shared/settings.h"

static const char *const devices[] = {"cpu", "cuda", NULL};

enum { GPU_STEPS = 10 }; /* factor of the steps on GPUs, which are faster */

/* How each model is trained; a run of these steps takes a second or two on a present-day core. A model that is not
 * listed, or does not exist, is trained like the first. */
#define DIGITS .data = "data/digits", .samples = 1500
static const bench_plan recipes[] = {
    {"mlp", DIGITS, .recipe = {"--optimizer=adam", "--lr=0.001"}, .batch = 64, .steps = 600},
    {"convnet", DIGITS, .recipe = {"--optimizer=sgd", "--lr=0.01", "--momentum=0.9"}, .batch = 100, .steps = 60},
    {"deep", DIGITS, .recipe = {"--optimizer=adam", "--lr=0.001"}, .batch = 64, .steps = 40},
    {"wide", .data = "random:0", .recipe = {"--optimizer=sgd", "--lr=0.01"}, .batch = 64, .steps = 15},
    {"gpt", .data = "random:0", .recipe = {"--optimizer=adamw", "--lr=0.001"}, .batch = 16, .steps = 30},
};

/* A recipe applies to the model of its name, whatever sizes follow ("mlp:784,512,10"). */
static const bench_plan *find_recipe(const char *model) {
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        size_t nbytes = strlen(recipes[i].model);
        if (strncmp(model, recipes[i].model, nbytes) == 0 && (model[nbytes] == '\0' || model[nbytes] == ':')) {
            return &recipes[i];
        }
    }
    return &recipes[0];
}

/* The end of the list's first name. A comma ends it, unless a number follows, which belongs to the name's sizes. */
static size_t name_nbytes(const char *list) {
    size_t nbytes = strcspn(list, ",");
    while (list[nbytes] == ',' && list[nbytes + 1] >= '0' && list[nbytes + 1] <= '9') {
        nbytes += 1 + strcspn(list + nbytes + 1, ",");
    }
    return nbytes;
}

struct choices {
    const char *models;
    int64_t batch, per_device_batch; /* 0: not chosen */
    int steps, device;
};

static ls_status add_plan(bench_settings *settings, const char *name, size_t nbytes, const struct choices *choices) {
    if (nbytes == 0 || nbytes >= BENCH_NAME_CAPACITY) {
        return ls_fail(LS_ERR_USAGE, "--models: a name is %s", nbytes ? "too long" : "empty");
    }
    if (settings->plan_count == BENCH_MODELS_MAX) {
        return ls_fail(LS_ERR_USAGE, "--models: too many models; expected at most %d", BENCH_MODELS_MAX);
    }
    char model[BENCH_NAME_CAPACITY];
    snprintf(model, sizeof model, "%.*s", (int)nbytes, name);
    for (int i = 0; i < settings->plan_count; i++) {
        if (strcmp(settings->plans[i].model, model) != 0) continue;
        return ls_fail(LS_ERR_USAGE, "--models: %s is named twice", model);
    }
    bench_plan *plan = &settings->plans[settings->plan_count++];
    *plan = *find_recipe(model);
    memcpy(plan->model, model, sizeof model);
    plan->weak = choices->per_device_batch > 0;
    if (choices->batch > 0) plan->batch = choices->batch;
    if (plan->weak) plan->batch = choices->per_device_batch;
    if (settings->gpus) plan->steps *= GPU_STEPS;
    if (choices->steps > 0) plan->steps = choices->steps;
    if (plan->steps >= settings->least_steps) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "--steps: expected at least %d on GPUs, where %d steps are timed together after as many to warm up",
                   settings->least_steps, LS_TIME_BLOCK);
}

static ls_status check_batches(const bench_settings *settings) {
    if (settings->n.count > BENCH_N_MAX)
        return ls_fail(LS_ERR_USAGE, "--n: too many numbers; expected at most %d", BENCH_N_MAX);
    for (int p = 0; p < settings->plan_count; p++) {
        const bench_plan *plan = &settings->plans[p];
        for (int i = 0; i < settings->n.count; i++) {
            int n = settings->n.values[i];
            if (plan->samples > 0 && bench_global_batch(plan, n) > plan->samples)
                return ls_fail(LS_ERR_USAGE, "%s on %d devices: a step takes %lld samples, but %s has only %lld",
                               plan->model, n, (long long)bench_global_batch(plan, n), plan->data,
                               (long long)plan->samples);
            if (bench_global_batch(plan, n) % n == 0) continue;
            return ls_fail(LS_ERR_USAGE, "%s: %d devices cannot share a batch of %lld equally; choose --batch or --n",
                           plan->model, n, (long long)plan->batch);
        }
    }
    return LS_OK;
}

/* clang-format off */
static ls_status parse(bench_settings *s, struct choices *c, int argc, char **argv, bool *help) {
    const int n_most = LS_MAX_DEVICES < LS_COMM_MAX_RANKS ? LS_MAX_DEVICES : LS_COMM_MAX_RANKS;
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is compared"},
        {.kind = LS_OPTION_STRING, .name = "models", .to.text = &c->models, .argument = "NAME,NAME,...",
         .help = "mlp, mlp:SIZES (as mlp:784,512,10), convnet, deep, wide, wide:SIZES, gpt or gpt:SIZES"},
        {.kind = LS_OPTION_INT64, .name = "batch", .to.big_number = &c->batch, .argument = "B",
         .limits = LS_BETWEEN(1, INT32_MAX / 4),
         .help = "samples per step over all devices, the same for every N (strong scaling); every N must divide it",
         .empty = "mlp 64, convnet 100"},
        {.kind = LS_OPTION_INT64, .name = "per-device-batch", .to.big_number = &c->per_device_batch, .argument = "B",
         .limits = LS_BETWEEN(1, INT32_MAX / 4 / LS_MAX_DEVICES),
         .help = "samples per step on each device, instead: N devices share N times as many (weak scaling)",
         .empty = "strong scaling"},
        {.kind = LS_OPTION_INT_LIST, .name = "n", .to.list = &s->n, .argument = "N,N,...",
         .limits = LS_BETWEEN(1, n_most),
         .help = "numbers of devices. If one exceeds the number of cores, each N also gets a virtual time: what it "
                 "would take with a core for each device",
         .empty = "1,2,4, and a virtual time for 8, or the next number below it that divides the batch; on GPUs the "
                  "powers of two up to their number"},
        {.kind = LS_OPTION_CHOICE, .name = "device", .to.number = &c->device, .choices = devices,
         .help = "kind of devices: a core (cpu) or a GPU (cuda); devices share GPUs if there are fewer"},
        {.kind = LS_OPTION_HEADING, .help = "How it is measured"},
        {.kind = LS_OPTION_INT, .name = "rounds", .to.number = &s->rounds, .argument = "R",
         .limits = LS_BETWEEN(1, BENCH_ROUNDS_MAX), .help = "runs of each row; every row runs once per round"},
        {.kind = LS_OPTION_INT, .name = "steps", .to.number = &c->steps, .argument = "S",
         .limits = LS_BETWEEN(LS_WARMUP_STEPS + 1, 10000000),
         .help = "training steps per run; the first 10 (on GPUs 20, or 40 where steps are short) are not timed",
         .empty = "mlp 600, convnet 60; on GPUs ten times as many"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &s->timeout_s, .argument = "SECONDS",
         .limits = LS_ABOVE(0), .help = "end a run after this many seconds; its row counts as failed"},
        {.kind = LS_OPTION_HEADING, .help = "What is written"},
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->folder, .argument = "DIR",
         .help = "folder for the results: dp_vs_ddp.txt (all tables), dp_vs_ddp*.csv, dp_vs_ddp.json, traces"},
        {.kind = LS_OPTION_FLAG, .name = "all", .to.flag = &s->all,
         .help = "print all tables, and what their columns mean: what the gap to T1/N is made of, the interpreter's "
                 "lock, virtual times, replays"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &s->quiet, .help = "no progress, no notes"},
    };
    return BENCH_PARSE(table, "Trains on N devices with one thread per device (DP) and with one process per device "
                               "(DDP), and compares step times and weights. It prints the answers first, then one "
                               "table for each model.", argc, argv, help);
}
/* clang-format on */

/* Counts the machine's devices of the requested kind, and sets the N to run. */
static ls_status look_at_machine(bench_settings *settings) {
    settings->gpus = strcmp(settings->device, "cuda") == 0;
    settings->processors = ls_usable_cores();
    settings->least_steps = settings->gpus ? 2 * LS_TIME_BLOCK : LS_WARMUP_STEPS + 1;
    char why[512] = "";
    if (settings->gpus) ls_find_gpus_apart(&settings->processors, why, sizeof why);
    if (settings->processors == 0) return ls_fail(LS_ERR_UNSUPPORTED, "--device cuda: no GPU can be used: %s", why);
    int most = settings->gpus ? settings->processors : 4;
    settings->n_chosen = settings->n.count > 0;
    for (int n = 1; !settings->n_chosen && n <= most; n *= 2) settings->n.values[settings->n.count++] = n;
    return LS_OK;
}

ls_status bench_parse(bench_settings *settings, int argc, char **argv, bool *help) {
    struct choices choices = {.models = "mlp,convnet"};
    *settings = (bench_settings){.rounds = 3, .timeout_s = 120, .folder = "build/results"};
    ls_status status = parse(settings, &choices, argc, argv, help);
    if (status != LS_OK || *help) return status;
    settings->device = devices[choices.device];
    if (choices.batch > 0 && choices.per_device_batch > 0)
        return ls_fail(LS_ERR_USAGE, "--batch is for strong scaling and --per-device-batch for weak; choose one");
    status = look_at_machine(settings);
    bench_sort_numbers(&settings->n);
    const char *list = choices.models;
    while (status == LS_OK) {
        size_t nbytes = name_nbytes(list);
        status = add_plan(settings, list, nbytes, &choices);
        if (list[nbytes] == '\0') break;
        list += nbytes + 1;
    }
    return status == LS_OK ? check_batches(settings) : status;
}
