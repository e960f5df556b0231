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
         .help = "start N ranks of this program (--device-kind meta: be rank 0 of N)",
         .empty = "be one rank"},
        {.kind = LS_OPTION_STRING, .name = "elastic", .to.text = &s->elastic, .argument = "MIN:MAX",
         .help = "a rank that dies is left behind, and those that are left, MIN at least, go on; one that is started again joins them, up to MAX",
         .empty = "none may die"},
        {.kind = LS_OPTION_INT, .name = "max-restarts", .to.number = &s->max_restarts, .argument = "K", .limits = LS_AT_LEAST(0),
         .agreement = LS_MAY_DIFFER, .help = "with --spawn: when a rank fails, start all ranks again, K times in the whole job; with --save "
                 "FILE --save-every N --resume-if-present FILE from the last checkpoint, else from the beginning; with --elastic: start that rank again"},
        {.kind = LS_OPTION_STRING, .name = "local-rank", .to.text = &s->local_rank, .argument = "N", .agreement = LS_MAY_DIFFER,
         .empty = "LOCAL_RANK", .help = "the argument that old launchers add; it must be LOCAL_RANK's value"},
        {.kind = LS_OPTION_INT_LIST, .name = "device-ids", .to.list = &s->device_ids, .argument = "D,D,...",
         .limits = LS_BETWEEN(0, 1023), .agreement = LS_MAY_DIFFER,
         .help = "the devices of this machine's ranks, in their order; ranks may share a GPU",
         .empty = "0, 1, 2, ..., and again from 0 where ranks outnumber GPUs"},
        {.kind = LS_OPTION_CHOICE, .name = "shard", .to.number = &s->shard, .choices = shards, .kept = "shard",
         .help = "strided: DistributedSampler's samples; contiguous: DataParallel's chunks of the same global order, which give "
                 "DataParallel's bits if N is a power of two, gradients are added in rank order (--allreduce auto, direct, naive; for N = 2 "
                 "any), and there is neither --accumulate nor --compress"},
        {.kind = LS_OPTION_CHOICE, .name = "backend", .to.number = &s->backend, .choices = backends,
         .help = "of the process group: shm: shared memory on this node, through which GPUs' memory is staged; nccl: NCCL, with a GPU per rank; "
                 "mpi: Open MPI; auto: nccl where possible, and mpi for CPU devices on several hosts"},
        {.kind = LS_OPTION_CHOICE, .name = "allreduce", .to.number = &s->allreduce, .choices = s->algorithms,
         .help = "algorithm of the gradients' all-reduce; auto: " LS_ALLREDUCE_AUTO ", or NCCL's own"},
        {.kind = LS_OPTION_DOUBLE, .name = "bucket-cap-mb", .to.real = &s->bucket_cap_mb, .argument = "MIB",
         .limits = LS_ABOVE(0), .help = "size of a gradient bucket (the first: at most 1)"},
        {.kind = LS_OPTION_STRING, .name = "compress", .to.text = &s->compress, .argument = "HOW", .kept = "compress",
         .help = "fp16, bf16: all-reduce gradients in half precision, which halves the bytes; what a half cannot hold becomes infinite; "
                 "topk:FRACTION: send that fraction of each gradient, its largest elements, and add what stays behind to the next "
                 "gradient (topk:FRACTION,nofeedback: drop it)"},
        {.kind = LS_OPTION_SWITCH, .name = "overlap", .to.flag = &s->overlap,
         .help = "reduce buckets while the backward pass still runs"},
        {.kind = LS_OPTION_INT, .name = "shard-state", .to.number = &s->shard_state, .argument = "STAGE",
         .limits = LS_BETWEEN(0, 3),
         .help = "ZeRO: of what all ranks would hold alike, each keeps 1/N; 0: of nothing; 1: of the optimizer's state; 2: of "
                 "the gradients, too (with --accumulate each micro-batch's travel); 3: of the parameters, too, which are gathered block by block"},
        {.kind = LS_OPTION_INT, .name = "prefetch-blocks", .to.number = &s->prefetch_blocks, .argument = "COUNT",
         .limits = LS_BETWEEN(0, DDP_MOST_PREFETCHED),
         .help = "with --shard-state 3: gather the parameters of so many blocks ahead, in memory for each of them"},
        {.kind = LS_OPTION_FLAG, .name = "find-unused", .to.flag = &s->find_unused,
         .help = "allow parameters that take no part in the loss (--model branched); costs a small all-reduce a step and some overlap"},
        {.kind = LS_OPTION_FLAG, .name = "debug-ranks", .to.flag = &s->debug_ranks,
         .help = "print a line from each rank at the start, and compare all ranks' state after every step; slow"},
        {.kind = LS_OPTION_FLAG, .name = "debug-collectives", .to.flag = &s->debug_collectives,
         .help = "before each collective operation, send and receive compare what all its ranks call, and for what; slow"},
        {.kind = LS_OPTION_FLAG, .name = "debug-values", .to.flag = &s->debug_values,
         .help = "check on each axis whether what ranks communicate is replicated, varying, partial or split as it should be, and compare what is replicated; slow"},
        {.kind = LS_OPTION_STRING, .name = "flight", .to.text = &s->flight, .argument = "DIR", .agreement = LS_ALL_OR_NONE,
         .help = "when a rank is lost or ranks disagree, write the last operations of all ranks to DIR, for build/flight",
         .empty = "the environment's LS_FLIGHT, or nowhere"},
    };
    _Static_assert(sizeof table / sizeof *table <= DDP_TABLE_ROWS, "DDP_TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t model_parallel_rows(ddp_settings *s, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "A model that ranks share out"},
        {.kind = LS_OPTION_INT, .name = "tensor", .to.number = &s->tensor, .argument = "T",
         .limits = LS_BETWEEN(1, LS_COMM_MAX_RANKS),
         .help = "T ranks share each pair of layers: each has a part of the weights, and all compute the same samples together"},
        {.kind = LS_OPTION_FLAG, .name = "sequence-parallel", .to.flag = &s->sequence_parallel,
         .help = "with --tensor: between pairs each rank has rows of its own, 1/T of a text's positions, in place of all alike"},
        {.kind = LS_OPTION_INT, .name = "pipeline", .to.number = &s->pipeline, .argument = "P",
         .limits = LS_BETWEEN(1, LS_COMM_MAX_RANKS), .help = "cut the model into P stages of consecutive blocks, each on a rank of its own"},
        {.kind = LS_OPTION_CHOICE, .name = "schedule", .to.number = &s->schedule, .choices = ddp_schedule_names,
         .help = "order of a pipeline's passes; gpipe: all forward passes, then all backward passes; 1f1b: in turn, as soon as "
                 "possible, with activations of fewer micro-batches in memory; the same bits"},
        {.kind = LS_OPTION_FLAG, .name = "show-schedule", .to.flag = &s->show_schedule, .agreement = LS_MAY_DIFFER,
         .help = "print what each stage does in a step of --accumulate micro-batches, simulated, and train nothing"},
    };
    _Static_assert(sizeof table / sizeof *table <= DDP_TABLE_ROWS, "DDP_TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t join_rows(ddp_settings *s, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "Ranks that run out of samples at different steps"},
        {.kind = LS_OPTION_FLAG, .name = "uneven", .to.flag = &s->uneven, .kept = "uneven",
         .help = "strided shards without repeated samples: some ranks get one sample less than others"},
        {.kind = LS_OPTION_FLAG, .name = "join", .to.flag = &s->join, .kept = "join",
         .help = "a rank without samples takes part in the others' steps until all have run out"},
        {.kind = LS_OPTION_CHOICE, .name = "join-divide", .to.number = &s->join_divide, .choices = join_divisors, .kept = "join",
         .help = "what the gradients of such steps are divided by: the initial number of ranks, or the number of ranks with samples"},
        {.kind = LS_OPTION_FLAG, .name = "join-throw", .to.flag = &s->join_throw,
         .help = "with --join: end the run, as a failure, when the first rank runs out"},
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
        return ls_fail(LS_ERR_USAGE, "--join-divide and --join-throw say how ranks join; they need --join");
    }
    if (!s->elastic) s->elastic = getenv(DDP_ELASTIC_VARIABLE); /* a launcher's word for all its ranks */
    if (status == LS_OK) status = ddp_limits_parse(&s->limits, s->elastic, s->spawn);
    return status == LS_OK && !parsed.help ? ddp_compression_parse(&s->compression, s->compress) : status;
}

static ls_status check_uneven(const ddp_settings *s) {
    const char *option = s->join ? "join" : s->uneven ? "uneven" : NULL;
    if (!option) return LS_OK;
    if (s->train.resident_batches > 0)
        return ls_fail(LS_ERR_USAGE, "--resident-batches does not go with --%s: no rank runs out of samples", option);
    if (ddp_is_meta(s)) return ls_devices_refuse_meta(option);
    return LS_OK;
}

/* In stages 2 and 3 buckets take turns with their memory. */
static ls_status check_shards(const ddp_settings *s) {
    if (s->shard_state < 3 && s->prefetch_blocks != ddp_settings_defaults().prefetch_blocks)
        return ls_fail(LS_ERR_USAGE, "--prefetch-blocks says what --shard-state 3 gathers ahead, which it needs");
    if (s->shard_state < 2) return LS_OK;
    if (!s->overlap)
        return ls_fail(
            LS_ERR_USAGE,
            "--no-overlap does not go with --shard-state %d, under which a bucket's memory is the next one's "
            "while backward still runs",
            s->shard_state);
    if (s->find_unused)
        return ls_fail(
            LS_ERR_USAGE,
            "--find-unused does not go with --shard-state %d, under which another bucket's gradients lie where "
            "one is missing; --shard-state 1 allows it",
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
    return ls_fail(LS_ERR_USAGE, "%s takes a multiple of %d ranks, and there %s %d", grid, together,
                   world_size == 1 ? "is" : "are", world_size);
}

/* What stages of a model have no place for. */
static ls_status check_pipeline(const ddp_settings *s) {
    if (s->pipeline == 1) return LS_OK;
    const char *other = s->join || s->uneven ? "--uneven and --join: all stages take the same steps"
                        : s->shard_state > 1 ? "--shard-state 2 and 3; 1 shares out the optimizer's state"
                        : s->find_unused     ? "--find-unused: unused parameters are left alone as it is"
                        : s->compression.half != LS_FP32 || s->compression.fraction > 0 ? "--compress"
                        : s->debug_ranks                  ? "--debug-ranks, whose ranks hold the same"
                        : s->train.checkpoint_activations ? "--checkpoint-activations"
                        : s->train.cuda_graph             ? "--cuda-graph: stages run several micro-batches in turn"
                        : s->train.resident_batches > 0   ? "--resident-batches"
                                                          : NULL;
    if (other) return ls_fail(LS_ERR_USAGE, "--pipeline does not go with %s", other);
    const ddp_schedule schedule = ddp_schedule_of(s);
    return ddp_pipeline_check(&schedule);
}

/* Errors are kept from step to step (topk.c). */
static ls_status check_top_k(const ddp_settings *s) {
    if (s->compression.fraction == 0) return LS_OK;
    if (s->shard_state > 0)
        return ls_fail(
            LS_ERR_USAGE,
            "--compress %s does not go with --shard-state, under which ranks have sums of their slices, not of all "
            "elements",
            s->compress);
    if (!s->compression.feedback) return LS_OK;
    if (s->train.precision == LS_FP16)
        return ls_fail(
            LS_ERR_USAGE,
            "--compress %s does not go with --precision fp16: what has not been sent would be in the unit of an "
            "earlier loss scale, or infinite; --precision bf16 has no loss scale, topk:FRACTION,nofeedback keeps "
            "nothing",
            s->compress);
    if (s->find_unused)
        return ls_fail(
            LS_ERR_USAGE,
            "--find-unused does not go with --compress %s: what is sent late of a parameter that no rank has "
            "used would be lost; topk:FRACTION,nofeedback sends nothing late",
            s->compress);
    return LS_OK;
}

/* What ranks that share layers have no way to do together. */
static ls_status check_tensor(const ddp_settings *s) {
    if (s->sequence_parallel && s->tensor == 1)
        return ls_fail(LS_ERR_USAGE, "--sequence-parallel shares out what --tensor leaves alike, which it needs");
    if (s->tensor == 1) return LS_OK;
    const char *other = s->uneven || s->join  ? "--uneven and --join: ranks that share layers take the same steps"
                        : s->shard_state == 3 ? "--shard-state 3, whose blocks are whole; stages 1 and 2 allow it"
                        : s->find_unused      ? "--find-unused: no part of a layer is unused"
                        : s->compression.fraction > 0 ? "--compress topk, which keeps errors of whole gradients"
                        : s->train.cuda_graph         ? "--cuda-graph, whose steps are one rank's alone"
                                                      : NULL;
    return other ? ls_fail(LS_ERR_USAGE, "--tensor does not go with %s", other) : LS_OK;
}

/* What labels of values do not follow. */
static ls_status check_values(const ddp_settings *s) {
    if (!s->debug_values) return LS_OK;
    const char *other = s->compression.half != LS_FP32 || s->compression.fraction > 0
                            ? "--compress, whose gradients travel as something else"
                        : s->train.cuda_graph ? "--cuda-graph, whose steps the host does not enqueue"
                        : s->limits.least > 0 ? "--elastic, whose ranks change"
                                              : NULL;
    return other ? ls_fail(LS_ERR_USAGE, "--debug-values does not go with %s", other) : LS_OK;
}

/* It is needed when something else has failed already. */
static ls_status check_flight(const ddp_settings *s) {
    if (!s->flight || access(s->flight, W_OK | X_OK) == 0) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "--flight %s: %s; give a folder that can be written", s->flight, strerror(errno));
}

/* What ranks would lose that part, or could not share with fewer. */
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
                        : ls_train_is_stream(o)          ? "--data stream:, whose place nobody knows"
                        : o->resident_batches > 0        ? "--resident-batches"
                        : o->cuda_graph                  ? "--cuda-graph"
                        : o->trace                       ? "--trace"
                        : o->virtual_time                ? "--virtual-time"
                                                         : NULL;
    if (other) return ls_fail(LS_ERR_USAGE, "--elastic does not go with %s", other);
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
        ls_note("--compress %s only rounds the gradients: with one rank nothing travels", s->compress);
    if (c->fraction > 0 && world_size == 1)
        ls_note("--compress %s only leaves out gradients: with one rank nothing travels", s->compress);
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
