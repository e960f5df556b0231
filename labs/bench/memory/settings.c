/* settings: the command line. */
#include <string.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/comm/comm.h"
#include "common/train/loop.h"
#include "labs/bench/memory/bench_memory.h"
#include "labs/bench/shared/settings.h"
#include "labs/replay/engine/node.h"

struct choices {
    const char *models;
    int64_t batch;
    int steps;
};

/* clang-format off */
static ls_status parse(memory_settings *s, struct choices *c, int argc, char **argv, bool *help) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is compared"},
        {.kind = LS_OPTION_STRING, .name = "models", .to.text = &c->models, .argument = "NAME,NAME,...",
         .help = "deep, wide (run and replayed) and resnet50 (replayed)"},
        {.kind = LS_OPTION_INT64, .name = "batch", .to.big_number = &c->batch, .argument = "B",
         .limits = LS_BETWEEN(1, 1 << 24), .help = "samples per step over all devices, the same for every N",
         .empty = "deep 512, wide 64, resnet50 256"},
        {.kind = LS_OPTION_INT_LIST, .name = "n", .to.list = &s->n, .argument = "N,N,...",
         .limits = LS_BETWEEN(2, LS_COMM_MAX_RANKS),
         .help = "numbers of devices, at most 4 of them: 2, and those with a core for each device, are measured where the network "
                 "can be run; all others are replayed",
         .empty = "2,4,8"},
        {.kind = LS_OPTION_DOUBLE, .name = "bucket-cap-mb", .to.real = &s->bucket_cap_mb, .argument = "MIB",
         .limits = LS_ABOVE(0), .help = "size of DDP's buckets, under every technique; ZeRO-2 holds two or three of them"},
        {.kind = LS_OPTION_STRING, .name = "node", .to.text = &s->node, .argument = "NAME",
         .help = "the machine of the replays: labs/replay/nodes"},
        {.kind = LS_OPTION_HEADING, .help = "How it is measured"},
        {.kind = LS_OPTION_INT, .name = "rounds", .to.number = &s->rounds, .argument = "R",
         .limits = LS_BETWEEN(1, MEMORY_ROUNDS_MAX), .help = "runs of each measured row; every row runs once per round"},
        {.kind = LS_OPTION_INT, .name = "steps", .to.number = &c->steps, .argument = "S",
         .limits = LS_BETWEEN(LS_WARMUP_STEPS + 1, 10000000), .help = "training steps per run; the first 10 are not timed",
         .empty = "deep 16, wide 20"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &s->timeout_s, .argument = "SECONDS",
         .limits = LS_ABOVE(0), .help = "end a run after this many seconds; its row counts as failed"},
        {.kind = LS_OPTION_HEADING, .help = "What is written"},
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->folder, .argument = "DIR",
         .help = "folder for the results: memory.txt, memory.csv, memory.json"},
        {.kind = LS_OPTION_FLAG, .name = "all", .to.flag = &s->all, .help = "print the rows of every N, not of the first and the last only"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &s->quiet, .help = "no progress, no notes"},
    };
    return BENCH_PARSE(table, "Trains with each technique that saves memory, and compares what a device holds, what a step takes and "
                              "what it sends with plain DDP's. It prints the answers first, then a table.", argc, argv, help);
}
/* clang-format on */

static const memory_model *find_model(const char *name, size_t nbytes) {
    for (const memory_model *model = memory_models; model->name; model++)
        if (strlen(model->name) == nbytes && strncmp(model->name, name, nbytes) == 0) return model;
    return NULL;
}

static ls_status add_model(memory_settings *s, const struct choices *c, const char *name, size_t nbytes) {
    const memory_model *model = find_model(name, nbytes);
    if (!model)
        return ls_fail(LS_ERR_USAGE, "--models: unknown model %.*s; expected deep, wide or resnet50", (int)nbytes,
                       name);
    for (int i = 0; i < s->model_count; i++)
        if (strcmp(s->models[i].name, model->name) == 0)
            return ls_fail(LS_ERR_USAGE, "--models: %s is named twice", model->name);
    memory_model *own = &s->models[s->model_count++];
    *own = *model;
    if (c->batch > 0) own->batch = c->batch;
    if (c->steps > 0) own->steps = c->steps;
    for (int i = 0; i < s->n.count; i++)
        if (own->batch % s->n.values[i] != 0)
            return ls_fail(LS_ERR_USAGE, "%s: %d devices cannot share a batch of %lld equally; choose --batch or --n",
                           own->name, s->n.values[i], (long long)own->batch);
    return LS_OK;
}

static ls_status count_node_devices(memory_settings *s) {
    ls_node *node;
    ls_status status = ls_node_open(&node, s->node);
    if (status != LS_OK) return status;
    s->node_devices = ls_node_device_count(node);
    ls_node_close(node);
    return LS_OK;
}

ls_status memory_parse(memory_settings *settings, int argc, char **argv, bool *help) {
    struct choices choices = {.models = "deep,wide,resnet50"};
    *settings = (memory_settings){.bucket_cap_mb = 25,
                                  .rounds = 3,
                                  .cores = ls_usable_cores(),
                                  .timeout_s = 120,
                                  .node = "hgx-h200",
                                  .folder = "build/results"};
    ls_status status = parse(settings, &choices, argc, argv, help);
    if (status != LS_OK || *help) return status;
    if (settings->n.count == 0) settings->n = (ls_int_list){.values = {2, 4, 8}, .count = 3};
    bench_sort_numbers(&settings->n);
    if (settings->n.count > MEMORY_N_MAX)
        return ls_fail(LS_ERR_USAGE, "--n: too many numbers; expected at most %d", MEMORY_N_MAX);
    for (const char *at = choices.models; status == LS_OK;) {
        size_t nbytes = strcspn(at, ",");
        status = add_model(settings, &choices, at, nbytes);
        if (at[nbytes] == '\0') break;
        at += nbytes + 1;
    }
    return status == LS_OK ? count_node_devices(settings) : status;
}
