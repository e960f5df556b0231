/* settings: the command line. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/seam/options.h"
#include "labs/bench/shared/settings.h"
#include "labs/replay/record/record.h"
#include "labs/replay/replay/replay.h"

static const char *const precisions[] = {"fp32", "fp16", "bf16", NULL}; /* the order of ls_dtype */
static const char *const collectives[] = {"cost", "messages", NULL};    /* of ls_plan_collectives */
static const char *const patterns[] = {"ring",   "server", "tree", "halving-doubling",
                                       "direct", NULL}; /* of ls_pattern */
static const char *const replications[] = {"copies", "collectives", "both", NULL};

_Static_assert(sizeof patterns / sizeof *patterns == LS_PATTERN_COUNT + 1, "a pattern has no name");

enum { BOTH = LS_PLAN_DDP + 1, TABLE_ROWS = 25 };

static const char *modes[BOTH + 2] = {[BOTH] = "both"}; /* in the order of ls_plan_mode, and both */

struct choices {
    int mode, precision, collectives, pattern, replicate;
    const char *caps, *compress;
};

/* clang-format off */
static size_t add_what(ls_option *rows, replay_settings *s, struct choices *choices) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is replayed"},
        {.kind = LS_OPTION_STRING, .name = "workload", .to.text = &s->workload, .argument = "NAME",
         .help = "network: a file, or a name in labs/replay/workloads"},
        {.kind = LS_OPTION_STRING, .name = "trace", .to.text = &s->trace, .argument = "DIR",
         .help = "folder written by --trace; with one device, its operations are the workload"},
        {.kind = LS_OPTION_FLAG, .name = "as-recorded", .to.flag = &s->as_recorded,
         .help = "replay the trace's own tasks beside the recorded times; the default without --node"},
        {.kind = LS_OPTION_CHOICE, .name = "mode", .to.number = &choices->mode, .choices = modes,
         .help = "DataParallel, DDP or both"},
        {.kind = LS_OPTION_INT_LIST, .name = "n", .to.list = &s->n, .argument = "N,N,...",
         .limits = LS_BETWEEN(1, 65536), .help = "devices", .empty = "1, 2, 4, ... up to the node's devices"},
        {.kind = LS_OPTION_DOUBLE, .name = "batch", .to.real = &s->batch, .argument = "SAMPLES",
         .limits = LS_ABOVE(0), .help = "samples per step over all devices (strong scaling)",
         .empty = "that of the trace, or the workload's"},
        {.kind = LS_OPTION_DOUBLE, .name = "per-device-batch", .to.real = &s->per_device_batch, .argument = "SAMPLES",
         .limits = LS_ABOVE(0), .help = "samples per step on each device (weak scaling), instead of --batch",
         .empty = "none"},
        {.kind = LS_OPTION_CHOICE, .name = "precision", .to.number = &choices->precision, .choices = precisions,
         .help = "of products and activations", .empty = "the workload's, or fp32"},
        {.kind = LS_OPTION_INT, .name = "accumulate", .to.number = &s->accumulate, .argument = "K",
         .limits = LS_BETWEEN(0, 1000),
         .help = "micro-batches per step, of equal size: gradients accumulate, and are reduced with the last",
         .empty = "the trace's, or 1"},
        {.kind = LS_OPTION_STRING, .name = "checkpoint-activations", .to.text = &s->checkpoint_activations,
         .argument = "EVERY|sqrt", .empty = "activations stay",
         .help = "of each EVERY blocks of the workload (entries of its file) keep only the input, and repeat their forward pass before their "
                 "backward"},
        {.kind = LS_OPTION_INT, .name = "tensor", .to.number = &s->tensor, .argument = "T",
         .limits = LS_BETWEEN(1, LS_COMM_MAX_RANKS),
         .help = "DDP: T neighbouring ranks share each layer of the workload, as in ddp_train; N/T replicas take samples of their own"},
        {.kind = LS_OPTION_FLAG, .name = "sequence-parallel", .to.flag = &s->sequence_parallel,
         .help = "with --tensor: between pairs of layers each rank has rows of its own, 1/T of a text's positions"},
        {.kind = LS_OPTION_INT, .name = "shard-state", .to.number = &s->shard_state, .argument = "STAGE",
         .limits = LS_BETWEEN(0, RECORD_SHARD_STAGES), .empty = "all of it on every rank",
         .help = "DDP: ZeRO stage, as in ddp_train: each rank keeps 1/N of the state that all would hold"},
        {.kind = LS_OPTION_INT, .name = "prefetch-blocks", .to.number = &s->prefetch_blocks, .argument = "COUNT",
         .limits = LS_BETWEEN(0, 2), .help = "with --shard-state 3: blocks whose parameters are gathered ahead"},
        {.kind = LS_OPTION_FLAG, .name = "sync-bn", .to.flag = &s->sync_bn,
         .help = "batch norm over all devices: collectives exchange its statistics, forward and backward"},
        {.kind = LS_OPTION_FLAG, .name = "join", .to.flag = &s->join,
         .help = "DDP: ranks may run out of samples; each step begins by gathering their counts"},
        {.kind = LS_OPTION_FLAG, .name = "cuda-graph", .to.flag = &s->graph,
         .help = "launch a step, from forward to the update, as one graph; DP on one device only"},
        {.kind = LS_OPTION_INT, .name = "steps", .to.number = &s->steps, .argument = "N", .limits = LS_BETWEEN(1, 1000),
         .help = "steps to replay; of several, the first is warm-up and not counted",
         .empty = "4; with --vary one more than in the trace"},
        {.kind = LS_OPTION_FLAG, .name = "vary", .to.flag = &s->vary,
         .help = "with --trace: per-device jitter: each device takes the times of another recorded step, instead of medians"},
    };
    _Static_assert(sizeof table <= TABLE_ROWS * sizeof *table, "TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t add_where(ls_option *rows, replay_settings *s, struct choices *choices) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "On what, and how"},
        {.kind = LS_OPTION_STRING, .name = "node", .to.text = &s->node, .argument = "NAME",
         .help = "machine: a file, or a name in labs/replay/nodes"},
        {.kind = LS_OPTION_INT, .name = "devices-per-node", .to.number = &s->devices_per_node, .argument = "K",
         .limits = LS_BETWEEN(0, LS_NODE_MAX_DEVICES), .empty = "all of the node's",
         .help = "use K devices of each node: N ranks lie on N/K nodes"},
        {.kind = LS_OPTION_DOUBLE, .name = "calibrate-t1", .to.real = &s->calibrate_t1_ms, .argument = "MS",
         .limits = LS_ABOVE(0), .help = "scale the node's rates until one device's step takes this many milliseconds",
         .empty = "the node's own rates"},
        {.kind = LS_OPTION_DOUBLE, .name = "host-lock", .to.real = &s->host_lock_us, .argument = "US",
         .limits = LS_BETWEEN(-1, 1e6),
         .help = "time of a launch, in every mode and in T1, under its process's one lock, as in Python. Only DP's threads "
                 "queue for it; 0: no lock; -1: the node's"},
        {.kind = LS_OPTION_DOUBLE, .name = "spread", .to.real = &s->spread_percent, .argument = "PERCENT",
         .limits = LS_BETWEEN(0, 20),
         .help = "devices are not equally fast: the standard deviation of their kernels' times, in percent of the mean. "
                 "N devices take what is to be expected of N"},
        {.kind = LS_OPTION_CHOICE, .name = "replicate", .to.number = &choices->replicate, .choices = replications,
         .help = "DP: move parameters and gradients by copies from and to device 0 (dp_train's default), or by broadcast and reduce (PyTorch's, "
                 "over NCCL); both: a table of each",
         .empty = "the workload's, or copies"},
        {.kind = LS_OPTION_STRING, .name = "bucket-cap-mb", .to.text = &choices->caps, .argument = "MIB,MIB,...",
         .help = "DDP: size of a gradient bucket in MiB (the first: at most 1); a row for each size"},
        {.kind = LS_OPTION_SWITCH, .name = "overlap", .to.flag = &s->overlap,
         .help = "DDP: reduce buckets during the backward pass"},
        {.kind = LS_OPTION_STRING, .name = "compress", .to.text = &choices->compress, .argument = "HOW",
         .help = "DDP: fp16, bf16: all-reduce gradients in half precision; topk:FRACTION: send that fraction of each, the largest "
                 "elements, and keep the rest for the next step; topk:FRACTION,nofeedback: drop the rest"},
        {.kind = LS_OPTION_CHOICE, .name = "collectives", .to.number = &choices->collectives, .choices = collectives,
         .help = "timing of collectives: by the node's table or formula, or message by message over its links"},
        {.kind = LS_OPTION_CHOICE, .name = "algorithm", .to.number = &choices->pattern, .choices = patterns,
         .help = "message pattern with --collectives=messages"},
        {.kind = LS_OPTION_FLAG, .name = "hierarchical", .to.flag = &s->hierarchical,
         .help = "DDP: all-reduces over several nodes are a reduce-scatter within each, an all-reduce across, and an all-gather within"},
        {.kind = LS_OPTION_HEADING, .help = "What is written beside the tables"},
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->folder, .argument = "DIR",
         .help = "folder for replay.csv (read by fit_tn), replay_devices.csv and replay.json"},
        {.kind = LS_OPTION_STRING, .name = "json", .to.text = &s->json, .argument = "FILE", .help = "the JSON"},
        {.kind = LS_OPTION_STRING, .name = "timeline", .to.text = &s->timeline, .argument = "FILE.json",
         .help = "write a timeline for Perfetto: of the last N, of one --mode"},
        {.kind = LS_OPTION_STRING, .name = "gantt", .to.text = &s->gantt, .argument = "FILE.csv",
         .help = "write one step of the last N as bars, for plots/gantt.gp"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &s->quiet, .help = "no notes"},
    };
    _Static_assert(sizeof table <= TABLE_ROWS * sizeof *table, "TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}
/* clang-format on */

static ls_status parse(replay_settings *settings, struct choices *choices, int argc, char **argv, bool *help) {
    ls_option rows[2 * TABLE_ROWS];
    size_t count = add_what(rows, settings, choices);
    count += add_where(rows + count, settings, choices);
    return bench_parse_options(rows, count,
                               "Replays a training step on a modelled machine: nothing is run and no time is measured.",
                               argc, argv, help);
}

static ls_status parse_caps(replay_settings *settings, const char *text) {
    for (const char *at = text;; at++) {
        char *end;
        double cap_mb = strtod(at, &end);
        if (end == at || !(cap_mb > 0 && cap_mb <= 1e6) || (*end != ',' && *end != '\0'))
            return ls_fail(LS_ERR_USAGE, "--bucket-cap-mb: expected a list of sizes above 0, as in 1,5,25, found '%s'",
                           text);
        if (settings->cap_count == REPLAY_CAPS_MAX)
            return ls_fail(LS_ERR_USAGE, "--bucket-cap-mb: too many sizes; expected at most %d", REPLAY_CAPS_MAX);
        settings->caps_mb[settings->cap_count++] = cap_mb;
        if (*end == '\0') return LS_OK;
        at = end;
    }
}

static ls_status check_recorded(const replay_settings *s) {
    if (s->workload || !s->trace)
        return ls_fail(LS_ERR_USAGE, "--as-recorded needs a --trace, which is its own workload");
    if (s->n.count > 0 || s->batch > 0 || s->per_device_batch > 0)
        return ls_fail(LS_ERR_USAGE, "a trace without a --node is replayed as recorded: leave out N and the batch");
    if (s->vary) return ls_fail(LS_ERR_USAGE, "--as-recorded has each task's own time; leave --vary out");
    if (s->folder || s->gantt)
        return ls_fail(LS_ERR_USAGE, "--as-recorded writes no CSV; leave --%s out", s->folder ? "out" : "gantt");
    return LS_OK;
}

static ls_status check(const replay_settings *s) {
    if (s->as_recorded) return check_recorded(s);
    if (!s->workload == !s->trace) return ls_fail(LS_ERR_USAGE, "give either --workload or --trace; see --help");
    if (!s->node) return ls_fail(LS_ERR_USAGE, "replay needs a --node: a file, or a name in labs/replay/nodes");
    if (s->vary && !s->trace) return ls_fail(LS_ERR_USAGE, "--vary needs the times of a --trace's steps");
    if (s->batch > 0 && s->per_device_batch > 0)
        return ls_fail(LS_ERR_USAGE, "--batch is of all devices, --per-device-batch of each: give only one");
    if (s->modes[LS_PLAN_SINGLE] && (s->n.count > 1 || (s->n.count == 1 && s->n.values[0] != 1)))
        return ls_fail(LS_ERR_USAGE, "--mode=single uses one device; leave --n out");
    if (s->timeline && s->modes[LS_PLAN_DP] && s->modes[LS_PLAN_DDP])
        return ls_fail(LS_ERR_USAGE, "--timeline shows one --mode: dp, ddp or single");
    if (s->shard_state < 3 && s->prefetch_blocks != 1)
        return ls_fail(LS_ERR_USAGE,
                       "--prefetch-blocks chooses what --shard-state 3 gathers ahead; give --shard-state 3, too");
    if (s->shard_state > 0 && s->compression.fraction > 0)
        return ls_fail(LS_ERR_USAGE, "--compress topk cannot be combined with --shard-state");
    if (s->sequence_parallel && s->tensor == 1)
        return ls_fail(LS_ERR_USAGE, "--sequence-parallel shards what --tensor leaves replicated; give --tensor, too");
    if (s->tensor > 1 && (s->modes[LS_PLAN_SINGLE] || s->modes[LS_PLAN_DP]))
        return ls_fail(LS_ERR_USAGE, "--tensor needs ranks that share layers: give --mode ddp");
    if (s->tensor > 1 && s->trace)
        return ls_fail(
            LS_ERR_USAGE,
            "--tensor needs to know how layers can be shared, which a --trace does not tell; give a --workload");
    if (s->host_lock_us < 0 && s->host_lock_us != -1)
        return ls_fail(LS_ERR_USAGE, "--host-lock: expected a time from 0, found %g", s->host_lock_us);
    return LS_OK;
}

ls_status replay_parse(replay_settings *settings, int argc, char **argv, bool *help) {
    struct choices choices = {.mode = BOTH, .precision = -1, .replicate = -1, .caps = "25", .compress = "none"};
    *settings = (replay_settings){.overlap = true, .tensor = 1, .prefetch_blocks = 1, .host_lock_us = -1};
    for (int mode = 0; mode < BOTH; mode++) modes[mode] = record_modes[mode].mode->option;
    ls_status status = parse(settings, &choices, argc, argv, help);
    if (status != LS_OK || *help) return status;
    for (int mode = 0; mode < BOTH; mode++)
        settings->modes[mode] = choices.mode == mode || (choices.mode == BOTH && mode != LS_PLAN_SINGLE);
    settings->precision_given = choices.precision >= 0;
    settings->precision = settings->precision_given ? (ls_dtype)choices.precision : LS_FP32;
    settings->collectives = (ls_plan_collectives)choices.collectives;
    settings->pattern = (ls_pattern)choices.pattern;
    settings->by_copies = choices.replicate == 0 || choices.replicate == 2;
    settings->by_collectives = choices.replicate >= 1;
    settings->as_recorded = settings->as_recorded || (settings->trace && !settings->node);
    bench_sort_numbers(&settings->n);
    status = parse_caps(settings, choices.caps);
    if (status == LS_OK) status = ddp_compression_parse(&settings->compression, choices.compress);
    if (status == LS_OK) status = ls_parse_every(settings->checkpoint_activations, &settings->every);
    return status == LS_OK ? check(settings) : status;
}
