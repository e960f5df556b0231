#include "common/seam/options.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "common/data/loader.h"
#include "common/device/host_lock.h"
#include "common/nn/tensor_parallel.h"
#include "common/seam/parallel.h"

static const char *const device_kinds[] = {"auto", "cpu", "cuda", "meta", NULL}; /* the order of ls_train_device_kind */
static const char *const normalizations[] = {"none", "mnist", "auto", NULL};     /* the order of ls_normalize */
static const char *const precisions[] = {"fp32", "fp16", "bf16", NULL};          /* the order of ls_dtype */
static const char *const optimizers[] = {"sgd", "adam", "adamw", NULL};          /* the order of ls_optimizer_kind */
static const char *const offloads[] = {"none", "optimizer", NULL};               /* the order of ls_train_offload */

static const char default_data[] = "data/digits"; /* this address means that --data is not given */

ls_train_options ls_train_defaults(void) {
    return (ls_train_options){
        .model = "mlp",
        .data = default_data,
        .normalize = -1,
        .epochs = 5,
        .batch_size = 64,
        .accumulate = 1,
        .shuffle = true,
        .set_epoch = true,
        .workers = 1,
        .prefetch = 4,
        .optimizer = LS_ADAM,
        .learning_rate = 1e-3,
        .weight_decay = -1,
        .decay_epochs = 30,
        .decay_factor = 0.1,
        .init_scale = 65536,
        .growth_interval = 2000,
        .pin_memory = true,
        .timeout_s = 60,
        .trace_steps = 20,
        .evaluate = true,
    };
}

/* Rows of each table at most. */
enum { RUN_ROWS = 26, RECIPE_ROWS = 19, GPU_ROWS = 6, OTHER_ROWS = 25 };
_Static_assert(RUN_ROWS + RECIPE_ROWS + GPU_ROWS + OTHER_ROWS <= LS_TRAIN_OPTION_ROWS,
               "LS_TRAIN_OPTION_ROWS is too small");

/* Rows of one or two lines keep the tables readable. */
/* clang-format off */
static size_t run_rows(ls_train_options *o, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is trained"},
        {.kind = LS_OPTION_CHOICE, .name = "device-kind", .to.number = &o->device_kind, .choices = device_kinds, .agreement = LS_MAY_DIFFER,
         .help = "kind of devices: cuda: GPUs; cpu: cores, each with memory of its own; auto: GPUs if there are any; meta: compute nothing, count "
                 "and trace operations and bytes"},
        {.kind = LS_OPTION_STRING, .name = "model", .to.text = &o->model, .argument = "NAME", .kept = "model",
         .help = "mlp, mlp:SIZES (mlp:784,512,10), convnet, wide, wide:SIZES, deep, branched (for --find-unused), gpt, "
                 "gpt:LAYERS,HEADS,CHANNELS,CONTEXT[,scores], or FILE.net, your own network (docs/networks.md)"},
        {.kind = LS_OPTION_FLAG, .name = "show-model", .to.flag = &o->show_model, .agreement = LS_MAY_DIFFER,
         .help = "print the model as a text that --model reads, with shapes and parameter counts, and exit"},
        {.kind = LS_OPTION_FLAG, .name = "show-pytorch", .to.flag = &o->show_pytorch, .agreement = LS_MAY_DIFFER,
         .help = "print the model as a Python program for PyTorch, with the same names and initial weights, and exit"},
        {.kind = LS_OPTION_STRING, .name = "data", .to.text = &o->data, .argument = "DIR|fashion-mnist|random:SEED|stream:DIR|text:FILE[,FILE]|sums:SEED",
         .agreement = LS_MAY_DIFFER, .kept = "data",
         .help = "a folder of MNIST's or CIFAR's files, or of inputs.npy and targets.npy; Debian's Fashion-MNIST; random samples; a folder as a "
                 "stream; for gpt: texts, or generated sums, the default (docs/data.md)"},
        {.kind = LS_OPTION_CHOICE, .name = "normalize", .to.number = &o->normalize, .choices = normalizations,
         .kept = "normalize",
         .help = "mnist: (pixel/255 - 0.1307)/0.3081; auto: each channel's mean and deviation over the training data; none: pixel/255, floats "
                 "unchanged", .empty = "mnist for MNIST's files, none for floats, else auto"},
        {.kind = LS_OPTION_FLAG, .name = "sync-bn", .to.flag = &o->sync_bn, .kept = "sync_bn",
         .help = "batch norm over the whole batch of all devices (SyncBatchNorm)"},
        {.kind = LS_OPTION_STRING, .name = "checkpoint-activations", .to.text = &o->checkpoint_activations, .argument = "EVERY|sqrt",
         .help = "of each EVERY blocks keep only the input, and repeat their forward pass before their backward: same bits, less memory, more time; "
                 "sqrt: as many blocks per segment as segments", .empty = "keep all activations"},
        {.kind = LS_OPTION_STRING, .name = "init", .to.text = &o->init, .argument = "FILE", .agreement = LS_ALL_OR_NONE,
         .help = "start from the weights of this safetensors file", .empty = "PyTorch's initial weights for --seed"},

        {.kind = LS_OPTION_HEADING, .help = "How long, and in which order"},
        {.kind = LS_OPTION_INT64, .name = "epochs", .to.big_number = &o->epochs, .argument = "N",
         .limits = LS_AT_LEAST(1), .kept = "schedule", .help = "passes over the training data"},
        {.kind = LS_OPTION_INT64, .name = "steps", .to.big_number = &o->steps, .argument = "N",
         .limits = LS_AT_LEAST(1), .kept = "schedule",
         .help = "train this many steps, over as many epochs as it takes", .empty = "--epochs"},
        {.kind = LS_OPTION_INT64, .name = "batch-size", .to.big_number = &o->asked_batch_size, .argument = "N",
         .limits = LS_AT_LEAST(1), .kept = "batch_size",
         .help = "samples per optimizer step, over all devices and micro-batches", .empty = "64"},
        {.kind = LS_OPTION_INT64, .name = "per-device-batch", .to.big_number = &o->per_device_batch, .argument = "N",
         .limits = LS_AT_LEAST(1), .agreement = LS_MAY_DIFFER, .kept = "batch_size",
         .help = "samples per micro-batch on each device, instead of --batch-size", .empty = "--batch-size"},
        {.kind = LS_OPTION_INT, .name = "accumulate", .to.number = &o->accumulate, .argument = "K",
         .limits = LS_BETWEEN(1, 4096), .kept = "accumulate",
         .help = "split each step into K micro-batches, and communicate only after the last (no_sync)"},
        {.kind = LS_OPTION_INT, .name = "resident-batches", .to.number = &o->resident_batches, .argument = "K",
         .limits = LS_BETWEEN(1, LS_MOST_BATCH_PLACES), .empty = "each step loads its own",
         .help = "keep the first K batches on the devices and reuse them in turn: later steps neither load nor copy"},
        {.kind = LS_OPTION_SWITCH, .name = "shuffle", .to.flag = &o->shuffle, .kept = "shuffle", .help = "shuffle the samples in each epoch"},
        {.kind = LS_OPTION_SWITCH, .name = "set-epoch", .to.flag = &o->set_epoch, .kept = "shuffle",
         .help = "tell the sampler which epoch begins; otherwise every epoch has the order of the first (a common mistake)"},
        {.kind = LS_OPTION_FLAG, .name = "drop-last", .to.flag = &o->drop_last, .kept = "drop_last",
         .help = "leave out an epoch's last batch unless full"},
        {.kind = LS_OPTION_INT64, .name = "seed", .to.big_number = &o->seed, .argument = "N", .kept = "seed",
         .help = "seed of the initial weights and of the order of the samples"},
        {.kind = LS_OPTION_INT, .name = "workers", .to.number = &o->workers, .argument = "N",
         .limits = LS_BETWEEN(0, LS_LOADER_MAX_WORKERS), .kept = "workers",
         .help = "loader threads per rank; more than cores, over all ranks, slow training down; 0: the training thread assembles batches"},
        {.kind = LS_OPTION_INT, .name = "prefetch", .to.number = &o->prefetch, .argument = "N",
         .limits = LS_BETWEEN(1, 64), .agreement = LS_MAY_DIFFER, .help = "batches that each worker prepares ahead"},
    };
    _Static_assert(sizeof table / sizeof *table <= RUN_ROWS, "RUN_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t gpu_rows(ls_train_options *o, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "GPUs"},
        {.kind = LS_OPTION_FLAG, .name = "tf32", .to.flag = &o->tf32, .kept = "tf32",
         .help = "round the inputs of matrix multiplies to TF32 (10 bits of mantissa)"},
        {.kind = LS_OPTION_FLAG, .name = "cuda-graph", .to.flag = &o->cuda_graph,
         .help = "record the step as a CUDA graph and launch it as a whole"},
        {.kind = LS_OPTION_SWITCH, .name = "pin-memory", .to.flag = &o->pin_memory, .agreement = LS_MAY_DIFFER,
         .help = "page-lock the loader's batches: copies then overlap with training"},
        {.kind = LS_OPTION_FLAG, .name = "debug-launches", .to.flag = &o->debug_launches, .agreement = LS_MAY_DIFFER,
         .help = "wait after each operation: a failure then names the operation; slow"},
    };
    _Static_assert(sizeof table / sizeof *table <= GPU_ROWS, "GPU_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t recipe_rows(ls_train_options *o, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "The optimizer"},
        {.kind = LS_OPTION_CHOICE, .name = "optimizer", .to.number = &o->optimizer, .choices = optimizers,
         .kept = "optimizer", .help = "update rule"},
        {.kind = LS_OPTION_DOUBLE, .name = "lr", .to.real = &o->learning_rate, .argument = "X",
         .limits = LS_AT_LEAST(0), .kept = "lr", .help = "learning rate"},
        {.kind = LS_OPTION_DOUBLE, .name = "momentum", .to.real = &o->momentum, .argument = "X",
         .limits = LS_AT_LEAST(0), .kept = "momentum", .help = "momentum of sgd"},
        {.kind = LS_OPTION_FLAG, .name = "nesterov", .to.flag = &o->nesterov, .kept = "nesterov", .help = "Nesterov's momentum for sgd"},
        {.kind = LS_OPTION_DOUBLE, .name = "weight-decay", .to.real = &o->weight_decay, .argument = "X", .kept = "weight_decay",
         .help = "L2 term (adamw: decoupled); negative: the optimizer's default, 0.01 for adamw, otherwise 0"},
        {.kind = LS_OPTION_DOUBLE, .name = "clip-norm", .to.real = &o->clip_norm, .argument = "X", .limits = LS_ABOVE(0),
         .kept = "clip_norm",
         .help = "scale gradients down to this norm over all parameters", .empty = "no clipping"},
        {.kind = LS_OPTION_CHOICE, .name = "offload", .to.number = &o->offload, .choices = offloads,
         .help = "optimizer: keep the optimizer's state in host memory and update there: same bits, less device memory, more time; not on meta "
                 "devices"},
        {.kind = LS_OPTION_CHOICE, .name = "lr-scale", .to.number = &o->lr_scale, .choices = ls_rate_scaling_names,
         .kept = "lr_scale", .help = "multiply the learning rate by the number of devices, or its square root"},
        {.kind = LS_OPTION_INT64, .name = "warmup-steps", .to.big_number = &o->warmup_steps, .argument = "N",
         .limits = LS_AT_LEAST(0), .kept = "schedule", .help = "raise the learning rate linearly over the first N steps"},
        {.kind = LS_OPTION_CHOICE, .name = "lr-schedule", .to.number = &o->lr_schedule, .choices = ls_schedule_names, .kept = "schedule",
         .help = "cosine: decay to --lr-min at the end of the run; step: multiply by --lr-decay every --lr-decay-epochs epochs"},
        {.kind = LS_OPTION_DOUBLE, .name = "lr-min", .to.real = &o->min_rate, .argument = "X",
         .limits = LS_AT_LEAST(0), .kept = "schedule", .help = "learning rate at the end of the cosine"},
        {.kind = LS_OPTION_DOUBLE, .name = "lr-decay", .to.real = &o->decay_factor, .argument = "X",
         .limits = LS_AT_LEAST(0), .kept = "schedule", .help = "factor of the step schedule"},
        {.kind = LS_OPTION_INT64, .name = "lr-decay-epochs", .to.big_number = &o->decay_epochs, .argument = "N",
         .limits = LS_AT_LEAST(1), .kept = "schedule", .help = "epochs between two decays of the step schedule"},

        {.kind = LS_OPTION_HEADING, .help = "Precision"},
        {.kind = LS_OPTION_CHOICE, .name = "precision", .to.number = &o->precision, .choices = precisions, .kept = "precision",
         .help = "type of activations and of the inputs of matrix multiplies (automatic mixed precision); weights and their gradients stay fp32"},
        {.kind = LS_OPTION_DOUBLE, .name = "init-scale", .to.real = &o->init_scale, .argument = "X",
         .limits = LS_ABOVE(0), .help = "fp16: initial loss scale"},
        {.kind = LS_OPTION_INT, .name = "growth-interval", .to.number = &o->growth_interval, .argument = "N",
         .limits = LS_BETWEEN(1, INT32_MAX), .kept = "growth_interval",
         .help = "fp16: double the loss scale after this many steps in a row without infinities"},
    };
    _Static_assert(sizeof table / sizeof *table <= RECIPE_ROWS, "RECIPE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t other_rows(ls_train_options *o, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "Checkpoints"},
        {.kind = LS_OPTION_STRING, .name = "save", .to.text = &o->save, .argument = "FILE", .agreement = LS_ALL_OR_NONE,
         .help = "write a checkpoint at the end of the run (weights, optimizer, position; safetensors)"},
        {.kind = LS_OPTION_INT64, .name = "save-every", .to.big_number = &o->save_every, .argument = "N",
         .limits = LS_AT_LEAST(1), .help = "write the checkpoint also after every N steps", .empty = "at the end only"},
        {.kind = LS_OPTION_STRING, .name = "resume", .to.text = &o->resume, .argument = "FILE",
         .agreement = LS_ALL_OR_NONE, .help = "resume from this checkpoint, bit for bit"},
        {.kind = LS_OPTION_STRING, .name = "resume-if-present", .to.text = &o->resume_if_present, .argument = "FILE",
         .agreement = LS_ALL_OR_NONE,
         .help = "the same if the file exists, otherwise start at step 0, for jobs that restart; --metrics and --dump-losses are continued; a damaged "
                 "file is refused"},
        {.kind = LS_OPTION_STRING, .name = "save-weights", .to.text = &o->save_weights, .argument = "FILE",
         .agreement = LS_MAY_DIFFER, .help = "write only the trained weights, as a PyTorch state dict in safetensors"},
        {.kind = LS_OPTION_FLAG, .name = "save-module-prefix", .to.flag = &o->save_module_prefix, .agreement = LS_MAY_DIFFER,
         .help = "with --save-weights: begin names with module., as PyTorch's DataParallel and DDP do"},

        {.kind = LS_OPTION_HEADING, .help = "The host"},
        {.kind = LS_OPTION_DOUBLE, .name = "host-lock", .to.real = &o->host_lock_us, .argument = "US",
         .limits = LS_BETWEEN(0, LS_HOST_LOCK_MOST_US), .empty = "no lock",
         .help = "emulate an interpreter's lock: each launch holds the process's lock and a core for US microseconds; not on meta devices"},

        {.kind = LS_OPTION_HEADING, .help = "Limits"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &o->timeout_s, .argument = "SECONDS",
         .limits = LS_ABOVE(0), .agreement = LS_MAY_DIFFER,
         .help = "deadline of every wait for another device or rank, in seconds"},
        {.kind = LS_OPTION_BYTES, .name = "device-memory", .to.nbytes = &o->device_memory_bytes, .argument = "BYTES",
         .agreement = LS_MAY_DIFFER, .help = "capacity of each device's memory in bytes (suffixes K, M, G)", .empty = "the machine's"},

        {.kind = LS_OPTION_HEADING, .help = "What is written"},
        {.kind = LS_OPTION_STRING, .name = "metrics", .to.text = &o->metrics, .argument = "FILE", .agreement = LS_MAY_DIFFER,
         .help = "write a line of JSON per step, and a summary as the last line; on a terminal also show the devices live"},
        {.kind = LS_OPTION_STRING, .name = "summary", .to.text = &o->summary, .argument = "FILE", .agreement = LS_MAY_DIFFER,
         .help = "write only the summary, at no cost per step; -: as the last line of standard output"},
        {.kind = LS_OPTION_STRING, .name = "dump-losses", .to.text = &o->dump_losses, .argument = "FILE",
         .agreement = LS_MAY_DIFFER, .help = "write each step's global mean loss, a line per step"},
        {.kind = LS_OPTION_STRING, .name = "trace", .to.text = &o->trace, .argument = "DIR",
         .help = "record what every device and thread does in some steps, in files for Perfetto and replay"},
        {.kind = LS_OPTION_INT64, .name = "trace-steps", .to.big_number = &o->trace_steps, .argument = "N",
         .limits = LS_BETWEEN(1, 100000), .help = "steps to record, after the warm-up"},
        {.kind = LS_OPTION_FLAG, .name = "virtual-time", .to.flag = &o->virtual_time,
         .help = "with --trace, for more devices than cores: run all CPU devices on one core and record CPU time"},
        {.kind = LS_OPTION_SWITCH, .name = "evaluate", .to.flag = &o->evaluate,
         .help = "measure accuracy on the test samples after each epoch; otherwise a folder needs no test samples"},
        {.kind = LS_OPTION_INT64, .name = "generate", .to.big_number = &o->generate, .argument = "N",
         .limits = LS_BETWEEN(1, 1000000), .empty = "nothing",
         .help = "after training, continue the start of the text's test set by N tokens, and print both"},
        {.kind = LS_OPTION_DOUBLE, .name = "temperature", .to.real = &o->temperature, .argument = "T", .limits = LS_ABOVE(0),
         .empty = "always the likeliest token",
         .help = "with --generate: sample tokens by --seed, with probability softmax(logits/T)"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &o->quiet, .agreement = LS_MAY_DIFFER, .help = "no progress, no notes"},
        {.kind = LS_OPTION_FLAG, .name = "verbose", .to.flag = &o->verbose, .agreement = LS_MAY_DIFFER,
         .help = "print what was chosen and why: kind of devices, back-end"},
    };
    _Static_assert(sizeof table / sizeof *table <= OTHER_ROWS, "OTHER_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}
/* clang-format on */

size_t ls_train_option_rows(ls_train_options *o, ls_option *rows) {
    size_t count = run_rows(o, rows);
    count += recipe_rows(o, rows + count);
    count += gpu_rows(o, rows + count);
    return count + other_rows(o, rows + count);
}

bool ls_train_sync_bn(const ls_train_options *o, const ls_model *model, bool tell) {
    bool has_batchnorm = ls_model_batchnorm_count(model) > 0;
    if (o->sync_bn && !has_batchnorm && tell) ls_note("--sync-bn has no effect: %s has no batch norm", o->model);
    return o->sync_bn && has_batchnorm;
}

ls_optimizer_options ls_train_optimizer(const ls_train_options *o) {
    ls_optimizer_options optimizer = ls_optimizer_defaults((ls_optimizer_kind)o->optimizer);
    optimizer.learning_rate = o->learning_rate;
    optimizer.momentum = o->momentum;
    optimizer.nesterov = o->nesterov;
    if (o->weight_decay >= 0) optimizer.weight_decay = o->weight_decay;
    optimizer.clip_norm = o->clip_norm;
    optimizer.offload = o->offload == LS_TRAIN_OFFLOAD_OPTIMIZER;
    optimizer.scaler.enabled = o->precision == LS_FP16;
    optimizer.scaler.init_scale = o->init_scale;
    optimizer.scaler.growth_interval = o->growth_interval;
    optimizer.measure_norm = o->metrics != NULL;
    optimizer.record_count = o->metrics ? LS_LOSS_RING : 0;
    return optimizer;
}

const char *ls_train_optimizer_name(const ls_train_options *o) {
    return o->optimizer == LS_SGD && o->momentum != 0 ? "sgd-momentum" : optimizers[o->optimizer];
}

ls_schedule ls_train_schedule(const ls_train_options *o, int device_count, int64_t total_steps) {
    return (ls_schedule){
        .kind = (ls_schedule_kind)o->lr_schedule,
        .rate = ls_scaled_rate(o->learning_rate, (ls_rate_scaling)o->lr_scale, device_count),
        .warmup_steps = o->warmup_steps,
        .total_steps = total_steps,
        .min_rate = o->min_rate,
        .decay_epochs = o->decay_epochs,
        .decay_factor = o->decay_factor,
    };
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

ls_status ls_parse_every(const char *text, int *every) {
    char *end;
    *every = 0;
    if (!text) return LS_OK;
    bool is_sqrt = strcmp(text, "sqrt") == 0;
    long number = strtol(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && number >= 1 && number <= INT_MAX;
    if (!is_sqrt && !is_number)
        return ls_fail(LS_ERR_USAGE, "--checkpoint-activations %s: expected a number of blocks, 1 or more, or sqrt",
                       text);
    *every = is_sqrt ? LS_EVERY_SQRT : (int)number;
    return LS_OK;
}

ls_status ls_train_open_model(ls_model **out, const ls_train_options *o, ls_device *device, size_t max_batch,
                              int flags) {
    int every;
    bool placed = flags & LS_OPEN_PLACED, tell = flags & LS_OPEN_TELL;
    *out = NULL;
    ls_status status = ls_parse_every(o->checkpoint_activations, &every);
    if (flags & LS_OPEN_FORWARD_ONLY) every = LS_FORWARD_ONLY;
    if (status == LS_OK)
        status =
            ls_tensor_create_model(out, device, o->model, &o->tensor, max_batch, (ls_dtype)o->precision, every, placed);
    int blocks = status == LS_OK ? ls_network_blocks(ls_model_network(*out)).end : 0;
    if (status == LS_OK && tell && (every >= blocks || (every == LS_EVERY_SQRT && blocks == 1)))
        ls_note("--checkpoint-activations %s has no effect: %s has %d block%s", o->checkpoint_activations, o->model,
                blocks, blocks == 1 ? "" : "s");
    return status;
}

/* --- resuming ----------------------------------------------------------------------------------------------------- */

const char *ls_train_resume(const ls_train_options *o) { return o->resume ? o->resume : o->resume_if_present; }

/* Other errors of the file are reported when it is read. */
bool ls_train_resumes(const ls_train_options *o) {
    struct stat info;
    return o->resume || (o->resume_if_present && (stat(o->resume_if_present, &info) == 0 || errno != ENOENT));
}
