/* techniques: the techniques that save memory, a line each, and the networks they are tried with. A technique that is
 * added to ddp_train needs one more line here; techniques that replay does not support are only measured. */
#include "common/nn/model.h"
#include "common/train/loop.h"
#include "labs/bench/memory/bench_memory.h"

const memory_technique memory_techniques[] = {
    {.name = "plain DDP", .is_replayed = true},
    {.name = "checkpoint sqrt", .option = "--checkpoint-activations=sqrt", .every = LS_EVERY_SQRT, .is_replayed = true},
    {.name = "ZeRO-1", .option = "--shard-state=1", .shard_state = 1, .is_replayed = true},
    {.name = "ZeRO-2", .option = "--shard-state=2", .shard_state = 2, .is_replayed = true},
    {.name = "ZeRO-3", .option = "--shard-state=3", .shard_state = 3, .is_replayed = true},
    {.name = "offload", .option = "--offload=optimizer"},
    {.name = "pipeline", .split = "--pipeline", .option = "--accumulate=8", .by_blocks = true, .other_bits = true},
    {.name = "tensor", .split = "--tensor", .is_replayed = true, .other_bits = true},
    {.name = NULL},
};

const memory_model memory_models[] = {
    {.name = "deep",
     .data = "data/digits",
     .optimizer = "adam",
     .batch = 512,
     .steps = LS_WARMUP_STEPS + 6,
     .blocks = 17,
     .units = 1024},
    {.name = "wide",
     .data = "random:0",
     .optimizer = "adam",
     .batch = 64,
     .steps = LS_WARMUP_STEPS + 10,
     .blocks = 2,
     .units = 8192},
    {.name = "resnet50", .optimizer = "sgd, momentum", .batch = 256},
    {.name = NULL},
};
