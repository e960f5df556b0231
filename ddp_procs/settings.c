#include "ddp_procs/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/comm/allreduce.h"
#include "common/comm/comm.h"
#include "ddp_procs/backend.h"
#include "ddp_procs/buckets.h"
#include "ddp_procs/pipeline.h"
#include "ddp_procs/units.h"

_Static_assert((int)DDP_MOST_STAGES >= LS_COMM_MAX_RANKS, "a stage needs a rank");

static const char *const shards[] = {"strided", "contiguous", NULL};        /* the order of ls_shard */
static const char *const backends[] = {"auto", "shm", "nccl", "mpi", NULL}; /* the order of ddp_backend */
static const char *const join_divisors[] = {"initial", "active", NULL};

ddp_settings ddp_settings_defaults(void) {
    return (ddp_settings){.train = ls_train_defaults(),
                          .bucket_cap_mb = DDP_DEFAULT_BUCKET_CAP_MB,
                          .compress = "none",
                          .overlap = true,
                          .prefetch_blocks = 1,
                          .pipeline = 1,
                          .tensor = 1,
                          .schedule = DDP_1F1B};
}

/* Rows of one or two lines keep the tables readable. */
/* clang-format off */
static size_t communication_rows(ddp_settings *s, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "Processes and communication"},
        {.kind = LS_OPTION_INT, .name = "spawn", .to.number = &s->spawn, .argument = "N",
         .limits = LS_BETWEEN(0, LS_COMM_MAX_RANKS), .kept = "devices",
         .help = "start N ranks of this program (with --device-kind meta: run as rank 0 of N)",
         .empty = "be one rank"},
        {.kind = LS_OPTION_STRING, .name = "elastic", .to.text = &s->elastic, .argument = "MIN:MAX",
         .help = "continue without ranks that die, while at least MIN are left; a restarted rank joins again, up to MAX",
         .empty = "none may die"},
        {.kind = LS_OPTION_INT, .name = "max-restarts", .to.number = &s->max_restarts, .argument = "K", .limits = LS_AT_LEAST(0),
         .agreement = LS_MAY_DIFFER, .help = "with --spawn: restart all ranks when a rank fails, at most K times; --save FILE --save-every N "
                                             "--resume-if-present FILE resumes the last checkpoint; with --elastic: restart that rank"},
        {.kind = LS_OPTION_STRING, .name = "local-rank", .to.text = &s->local_rank, .argument = "N", .agreement = LS_MAY_DIFFER,
         .empty = "LOCAL_RANK", .help = "added by old launchers; must equal LOCAL_RANK"},
        {.kind = LS_OPTION_INT_LIST, .name = "device-ids", .to.list = &s->device_ids, .argument = "D,D,...",
         .limits = LS_BETWEEN(0, 1023), .agreement = LS_MAY_DIFFER,
         .help = "devices of this machine's ranks, in rank order; ranks may share a GPU",
         .empty = "0, 1, 2, ..., again from 0 if ranks outnumber GPUs"},
        {.kind = LS_OPTION_CHOICE, .name = "shard", .to.number = &s->shard, .choices = shards, .kept = "shard",
         .help = "strided: the samples of DistributedSampler; contiguous: the chunks of DataParallel, which give its bits for N a power of two with "
                 "--allreduce auto, direct or naive, without --accumulate and --compress"},
        {.kind = LS_OPTION_CHOICE, .name = "backend", .to.number = &s->backend, .choices = backends,
         .help = "process group: shm: shared memory of one host, also to stage GPU memory; nccl: NCCL, a GPU per rank; mpi: Open MPI; auto: nccl if "
                 "possible, mpi for CPU devices on several hosts"},
        {.kind = LS_OPTION_CHOICE, .name = "allreduce", .to.number = &s->allreduce, .choices = s->algorithms,
         .help = "all-reduce algorithm for gradients; auto: " LS_ALLREDUCE_AUTO ", or NCCL's own"},
        {.kind = LS_OPTION_DOUBLE, .name = "bucket-cap-mb", .to.real = &s->bucket_cap_mb, .argument = "MIB",
         .limits = LS_ABOVE(0), .help = "size of a gradient bucket in MiB (the first: at most 1)"},
        {.kind = LS_OPTION_STRING, .name = "compress", .to.text = &s->compress, .argument = "HOW", .kept = "compress",
         .help = "fp16, bf16: all-reduce gradients in half precision; topk:FRACTION: send the largest elements of each gradient, that fraction, and "
                 "add the rest to the next gradient (,nofeedback: drop the rest)"},
        {.kind = LS_OPTION_SWITCH, .name = "overlap", .to.flag = &s->overlap,
         .help = "reduce buckets during the backward pass"},
        {.kind = LS_OPTION_INT, .name = "shard-state", .to.number = &s->shard_state, .argument = "STAGE",
         .limits = LS_BETWEEN(0, 3),
         .help = "ZeRO stage: each rank keeps 1/N of 1: the optimizer's state; 2: also the gradients (with --accumulate reduced per micro-batch); "
                 "3: also the parameters, gathered block by block; 0: nothing"},
        {.kind = LS_OPTION_INT, .name = "prefetch-blocks", .to.number = &s->prefetch_blocks, .argument = "COUNT",
         .limits = LS_BETWEEN(0, DDP_MOST_PREFETCHED),
         .help = "with --shard-state 3: gather the parameters of this many blocks ahead, with memory for each"},
        {.kind = LS_OPTION_FLAG, .name = "find-unused", .to.flag = &s->find_unused,
         .help = "allow parameters that the loss does not use (--model branched); costs a small all-reduce per step and some overlap"},
        {.kind = LS_OPTION_FLAG, .name = "debug-ranks", .to.flag = &s->debug_ranks,
         .help = "print a line from each rank at the start, and compare the ranks' state after every step; slow"},
        {.kind = LS_OPTION_FLAG, .name = "debug-collectives", .to.flag = &s->debug_collectives,
         .help = "compare the ranks' calls before each collective operation, send and receive; slow"},
        {.kind = LS_OPTION_FLAG, .name = "debug-values", .to.flag = &s->debug_values,
         .help = "check on each axis that communicated tensors are replicated, varying, partial or split as expected, and compare replicated ones; "
                 "slow"},
        {.kind = LS_OPTION_STRING, .name = "flight", .to.text = &s->flight, .argument = "DIR", .agreement = LS_ALL_OR_NONE,
         .help = "write the last operations of all ranks to DIR when a rank is lost or ranks disagree, for build/flight",
         .empty = "the environment's LS_FLIGHT, else nowhere"},
    };
    _Static_assert(sizeof table / sizeof *table <= DDP_TABLE_ROWS, "DDP_TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t model_parallel_rows(ddp_settings *s, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "A model split over ranks"},
        {.kind = LS_OPTION_INT, .name = "tensor", .to.number = &s->tensor, .argument = "T",
         .limits = LS_BETWEEN(1, LS_COMM_MAX_RANKS),
         .help = "T ranks share each pair of layers: each holds a part of the weights, and all compute the same samples"},
        {.kind = LS_OPTION_FLAG, .name = "sequence-parallel", .to.flag = &s->sequence_parallel,
         .help = "with --tensor: between pairs of layers each rank holds 1/T of a text's positions instead of all"},
        {.kind = LS_OPTION_INT, .name = "pipeline", .to.number = &s->pipeline, .argument = "P",
         .limits = LS_BETWEEN(1, LS_COMM_MAX_RANKS), .help = "cut the model into P stages of consecutive blocks, a rank for each"},
        {.kind = LS_OPTION_CHOICE, .name = "schedule", .to.number = &s->schedule, .choices = ddp_schedule_names,
         .help = "order of a pipeline's passes: gpipe: all forward, then all backward; 1f1b: alternating as soon as possible, with fewer "
                 "activations in memory; same bits"},
        {.kind = LS_OPTION_FLAG, .name = "show-schedule", .to.flag = &s->show_schedule, .agreement = LS_MAY_DIFFER,
         .help = "print a simulated step of each stage with --accumulate micro-batches, and exit"},
    };
    _Static_assert(sizeof table / sizeof *table <= DDP_TABLE_ROWS, "DDP_TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t join_rows(ddp_settings *s, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "Ranks that run out of samples at different steps"},
        {.kind = LS_OPTION_FLAG, .name = "uneven", .to.flag = &s->uneven, .kept = "uneven",
         .help = "strided shards without repeated samples: some ranks get one sample fewer"},
        {.kind = LS_OPTION_FLAG, .name = "join", .to.flag = &s->join, .kept = "join",
         .help = "ranks that have run out of samples take part in the others' steps until all have"},
        {.kind = LS_OPTION_CHOICE, .name = "join-divide", .to.number = &s->join_divide, .choices = join_divisors, .kept = "join",
         .help = "divisor of the gradients in such steps: the initial number of ranks, or the number of ranks with samples"},
        {.kind = LS_OPTION_FLAG, .name = "join-throw", .to.flag = &s->join_throw,
         .help = "with --join: fail when the first rank runs out of samples"},
    };
    _Static_assert(sizeof table / sizeof *table <= DDP_TABLE_ROWS, "DDP_TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}
/* clang-format on */

size_t ddp_option_rows(ddp_settings *s, ls_option rows[DDP_OPTION_ROWS]) {
    s->algorithms[0] = "auto";
    for (int a = 0; a + 1 < DDP_MAX_ALGORITHMS && ls_allreduce_algorithms[a].name; a++) {
        s->algorithms[a + 1] = ls_allreduce_algorithms[a].name;
    }
    size_t count = ls_train_option_rows(&s->train, rows);
    count += communication_rows(s, rows + count);
    count += model_parallel_rows(s, rows + count);
    return count + join_rows(s, rows + count);
}

ls_status ddp_settings_parse(ddp_settings *s, int argc, char **argv, bool *help) {
    ls_option rows[DDP_OPTION_ROWS];
    ls_parsed parsed;
    ls_command command = {.purpose = "Trains a model with DistributedDataParallel: one process per device.",
                          .options = rows,
                          .count = ddp_option_rows(s, rows)};
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    *help = status == LS_OK && parsed.help;
    if (status == LS_OK && !s->join && (s->join_divide > 0 || s->join_throw)) {
        return ls_fail(LS_ERR_USAGE, "--join-divide and --join-throw choose how ranks join; give --join, too");
    }
    if (!s->elastic) s->elastic = getenv(DDP_ELASTIC_VARIABLE); /* set by a launcher for all its ranks */
    if (status == LS_OK) status = ddp_limits_parse(&s->limits, s->elastic, s->spawn);
    return status == LS_OK && !parsed.help ? ddp_compression_parse(&s->compression, s->compress) : status;
}

static ls_status check_uneven(const ddp_settings *s) {
    const char *option = s->join ? "join" : s->uneven ? "uneven" : NULL;
    if (!option) return LS_OK;
    if (s->train.resident_batches > 0)
        return ls_fail(LS_ERR_USAGE, "--resident-batches cannot be combined with --%s: no rank runs out of samples",
                       option);
    if (ddp_is_meta(s)) return ls_devices_refuse_meta(option);
    return LS_OK;
}

/* In stages 2 and 3 buckets share their memory in turn. */
static ls_status check_shards(const ddp_settings *s) {
    if (s->shard_state < 3 && s->prefetch_blocks != ddp_settings_defaults().prefetch_blocks)
        return ls_fail(LS_ERR_USAGE,
                       "--prefetch-blocks chooses what --shard-state 3 gathers ahead; give --shard-state 3, too");
    if (s->shard_state < 2) return LS_OK;
    if (!s->overlap)
        return ls_fail(LS_ERR_USAGE,
                       "--no-overlap cannot be combined with --shard-state %d, where the next bucket takes a bucket's "
                       "memory while backward still runs",
                       s->shard_state);
    if (s->find_unused)
        return ls_fail(LS_ERR_USAGE,
                       "--find-unused cannot be combined with --shard-state %d, where another bucket's gradients take "
                       "the place of a missing one; --shard-state 1 allows it",
                       s->shard_state);
    return LS_OK;
}

ls_status ddp_settings_sizes(const ddp_settings *s, int world_size, int sizes[LS_MESH_AXES]) {
    sizes[LS_MESH_TENSOR] = s->tensor;
    sizes[LS_MESH_PIPELINE] = s->pipeline;
    int together = sizes[LS_MESH_TENSOR] * sizes[LS_MESH_PIPELINE];
    sizes[LS_MESH_DATA] = world_size / together;
    if (world_size % together == 0) return LS_OK;
    char grid[64] = "";
    if (s->tensor > 1) snprintf(grid, sizeof grid, "--tensor %d%s", s->tensor, s->pipeline > 1 ? " " : "");
    size_t length = strlen(grid);
    if (s->pipeline > 1) snprintf(grid + length, sizeof grid - length, "--pipeline %d", s->pipeline);
    return ls_fail(LS_ERR_USAGE, "%s needs a multiple of %d ranks, but there %s %d", grid, together,
                   world_size == 1 ? "is" : "are", world_size);
}

/* Refuses options that pipeline stages do not support. */
static ls_status check_pipeline(const ddp_settings *s) {
    if (s->pipeline == 1) return LS_OK;
    const char *other = s->join || s->uneven ? "--uneven and --join: all stages take the same steps"
                        : s->shard_state > 1 ? "--shard-state 2 and 3; 1 shards the optimizer's state"
                        : s->find_unused     ? "--find-unused: unused parameters are left alone as it is"
                        : s->compression.half != LS_FP32 || s->compression.fraction > 0 ? "--compress"
                        : s->debug_ranks                  ? "--debug-ranks, whose ranks hold the same"
                        : s->train.checkpoint_activations ? "--checkpoint-activations"
                        : s->train.cuda_graph             ? "--cuda-graph: stages run several micro-batches in turn"
                        : s->train.resident_batches > 0   ? "--resident-batches"
                                                          : NULL;
    if (other) return ls_fail(LS_ERR_USAGE, "--pipeline cannot be combined with %s", other);
    const ddp_schedule schedule = ddp_schedule_of(s);
    return ddp_pipeline_check(&schedule);
}

/* Refuses options that errors, which are kept from step to step (topk.c), do not support. */
static ls_status check_top_k(const ddp_settings *s) {
    if (s->compression.fraction == 0) return LS_OK;
    if (s->shard_state > 0)
        return ls_fail(
            LS_ERR_USAGE,
            "--compress %s cannot be combined with --shard-state, where ranks have sums of their slices only",
            s->compress);
    if (!s->compression.feedback) return LS_OK;
    if (s->train.precision == LS_FP16)
        return ls_fail(LS_ERR_USAGE,
                       "--compress %s cannot be combined with --precision fp16: unsent elements would be scaled by an "
                       "earlier loss scale; use --precision bf16 or topk:FRACTION,nofeedback",
                       s->compress);
    if (s->find_unused)
        return ls_fail(LS_ERR_USAGE,
                       "--find-unused cannot be combined with --compress %s: unsent elements of an unused parameter "
                       "would be lost; use topk:FRACTION,nofeedback",
                       s->compress);
    return LS_OK;
}

/* Refuses options that tensor parallelism does not support. */
static ls_status check_tensor(const ddp_settings *s) {
    if (s->sequence_parallel && s->tensor == 1)
        return ls_fail(LS_ERR_USAGE, "--sequence-parallel shards what --tensor leaves replicated; give --tensor, too");
    if (s->tensor == 1) return LS_OK;
    const char *other = s->uneven || s->join  ? "--uneven and --join: ranks that share layers take the same steps"
                        : s->shard_state == 3 ? "--shard-state 3, whose blocks are whole; stages 1 and 2 allow it"
                        : s->find_unused      ? "--find-unused: no part of a layer is unused"
                        : s->compression.fraction > 0 ? "--compress topk, which keeps errors of whole gradients"
                        : s->train.cuda_graph         ? "--cuda-graph, whose steps are one rank's alone"
                                                      : NULL;
    return other ? ls_fail(LS_ERR_USAGE, "--tensor cannot be combined with %s", other) : LS_OK;
}

/* Refuses options that labels of values do not cover. */
static ls_status check_values(const ddp_settings *s) {
    if (!s->debug_values) return LS_OK;
    const char *other = s->compression.half != LS_FP32 || s->compression.fraction > 0
                            ? "--compress, whose gradients are sent in another form"
                        : s->train.cuda_graph ? "--cuda-graph, whose steps the host does not enqueue"
                        : s->limits.least > 0 ? "--elastic, whose ranks change"
                                              : NULL;
    return other ? ls_fail(LS_ERR_USAGE, "--debug-values cannot be combined with %s", other) : LS_OK;
}

/* Checked at the start, since the folder is needed only after another failure. */
static ls_status check_flight(const ddp_settings *s) {
    if (!s->flight || access(s->flight, W_OK | X_OK) == 0) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "--flight %s: %s; give a folder that can be written", s->flight, strerror(errno));
}

/* Refuses options with state that is lost with a rank, or that fewer ranks cannot share. */
static ls_status check_elastic(const ddp_settings *s) {
    const ls_train_options *o = &s->train;
    if (s->limits.least == 0) return LS_OK;
    const char *other = s->shard_state > 0 ? "--shard-state: a rank that dies takes its shard along"
                        : s->pipeline > 1  ? "--pipeline: a rank that dies takes its stage along"
                        : s->tensor > 1    ? "--tensor: a rank that dies takes its part of the layers along"
                        : s->compression.fraction > 0
                            ? "--compress topk: a rank that dies takes along what it has not sent"
                        : s->join || s->uneven           ? "--uneven and --join"
                        : s->debug_ranks                 ? "--debug-ranks"
                        : s->backend == DDP_BACKEND_NCCL ? "--backend nccl"
                        : ddp_is_meta(s)                 ? "--device-kind meta"
                        : ls_train_is_stream(o)          ? "--data stream:, whose position is not known"
                        : o->resident_batches > 0        ? "--resident-batches"
                        : o->cuda_graph                  ? "--cuda-graph"
                        : o->trace                       ? "--trace"
                        : o->virtual_time                ? "--virtual-time"
                                                         : NULL;
    if (other) return ls_fail(LS_ERR_USAGE, "--elastic cannot be combined with %s", other);
    for (int ranks = s->limits.least; ranks <= s->limits.most && s->shard == LS_SHARD_STRIDED; ranks++) {
        if (o->batch_size % ranks == 0) continue;
        return ls_fail(
            LS_ERR_USAGE,
            "--elastic %s: a batch of %lld samples cannot be shared equally by %d ranks: choose a multiple of "
            "each number of ranks (--batch-size), or --shard contiguous",
            s->elastic, (long long)o->batch_size, ranks);
    }
    return LS_OK;
}

ls_status ddp_settings_check(const ddp_settings *s) {
    ls_status status = check_uneven(s);
    if (status == LS_OK) status = check_flight(s);
    if (status == LS_OK) status = check_values(s);
    if (status == LS_OK) status = check_elastic(s);
    if (status == LS_OK) status = check_tensor(s);
    if (status == LS_OK) status = check_shards(s);
    if (status == LS_OK) status = check_pipeline(s);
    return status == LS_OK ? check_top_k(s) : status;
}

static void note_idle_compression(const ddp_settings *s, int world_size) {
    const ddp_compression *c = &s->compression;
    if (c->half != LS_FP32 && world_size == 1)
        ls_note("--compress %s only rounds the gradients: with one rank nothing is sent", s->compress);
    if (c->fraction > 0 && world_size == 1)
        ls_note("--compress %s only leaves out gradients: with one rank nothing is sent", s->compress);
    if (c->fraction * world_size >= 1 && world_size > 1)
        ls_note("--compress %s saves no bytes with %d ranks: their lists take as many as an all-reduce, or more, from "
                "1/%d of "
                "the elements on",
                s->compress, world_size, world_size);
    if (c->fraction > 0 && s->allreduce > 0)
        ls_note("--allreduce has no effect: with --compress topk lists are gathered, and added in the ranks' order");
}

void ddp_settings_note_idle(const ddp_settings *s, int world_size) {
    note_idle_compression(s, world_size);
    if (s->schedule != ddp_settings_defaults().schedule && s->pipeline == 1)
        ls_note("--schedule has no effect: without --pipeline there is one stage, which runs each micro-batch in turn");
    if (s->pipeline > 1 && (s->bucket_cap_mb != ddp_settings_defaults().bucket_cap_mb || !s->overlap))
        ls_note(
            "--bucket-cap-mb and --no-overlap have no effect: with --pipeline a stage's gradients are reduced in one "
            "piece, behind the last backward");
    if (s->allreduce > 0 && s->shard_state > 0)
        ls_note("--allreduce has no effect: with --shard-state gradients are reduce-scattered, in the ranks' order");
    if (s->shard_state == 3 && s->bucket_cap_mb != ddp_settings_defaults().bucket_cap_mb)
        ls_note("--bucket-cap-mb has no effect: with --shard-state 3 a bucket is a block of the model");
}
