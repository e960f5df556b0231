/* dp_run — a run of DataParallel, from its options to its result. */
#include "dp_threads/dp_run.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/checkpoint/weights.h"
#include "common/seam/virtual_time.h"
#include "dp_threads/data_parallel.h"

static const char *const replications[] = {"flat", "nccl", NULL}; /* the order of dp_replication */

struct dp_settings dp_settings_defaults(void) {
    return (struct dp_settings){.train = ls_train_defaults(), .output_device = -1};
}

ls_status dp_settings_parse(struct dp_settings *s, int argc, char **argv, bool *help) {
    ls_option rows[LS_TRAIN_OPTION_ROWS + 6];
    size_t count = ls_train_option_rows(&s->train, rows);
    /* clang-format off */
    const ls_option own[] = {
        {.kind = LS_OPTION_HEADING, .help = "Devices"},
        {.kind = LS_OPTION_INT, .name = "devices", .to.number = &s->devices, .argument = "N",
         .limits = LS_BETWEEN(1, LS_MAX_DEVICES), .kept = "devices", .help = "devices 0 .. N-1",
         .empty = "all GPUs, or a CPU device for each core"},
        {.kind = LS_OPTION_INT_LIST, .name = "device-ids", .to.list = &s->device_ids, .argument = "D,D,...",
         .limits = LS_BETWEEN(0, 1023), .kept = "devices",
         .help = "devices by number; the first holds the model. A GPU named more than once is shared",
         .empty = "--devices"},
        {.kind = LS_OPTION_INT, .name = "output-device", .to.number = &s->output_device, .argument = "D",
         .limits = LS_BETWEEN(-1, 1023),
         .help = "device that gathers the outputs and computes the loss; -1: the first"},
        {.kind = LS_OPTION_CHOICE, .name = "replicate", .to.number = &s->replicate, .choices = replications,
         .help = "flat: copy parameters from, and gradients to, the first device; nccl: broadcast and reduce by NCCL (needs a GPU for each device)"},
        {.kind = LS_OPTION_FLAG, .name = "single", .to.flag = &s->single, .kept = "mode",
         .help = "train on one device without DataParallel: the baseline T1 of speed-ups"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) rows[count++] = own[i];
    ls_parsed parsed;
    ls_command command = {.purpose = "Trains a model with DataParallel: one process, one thread per device.",
                          .options = rows,
                          .count = count};
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    *help = status == LS_OK && parsed.help;
    return status;
}

/* CUDA usually loads a kernel at its first launch, which may wait for all work of the GPU, including an operation of
 * NCCL that waits for this very thread: a deadlock (the CUDA programming guide warns of it under "lazy loading"). CUDA
 * reads this variable when it starts. */
static void load_kernels_at_the_start(void) {
    static const char *const variable = "CUDA_MODULE_LOADING";
    (void)setenv(variable, "EAGER", 0);
    ls_detail("%s=%s: NCCL's operations wait for one another between threads", variable, getenv(variable));
}

static ls_status choose_devices(struct dp_settings *s) {
    if (s->device_ids.count > 0 && s->devices > 0) {
        return ls_fail(LS_ERR_USAGE, "--devices and --device-ids exclude each other");
    }
    if (s->single && s->replicate == DP_REPLICATE_NCCL) {
        return ls_fail(LS_ERR_USAGE, "--single has no replicas for --replicate nccl; leave one of the two out");
    }
    if (s->replicate == DP_REPLICATE_NCCL) load_kernels_at_the_start();
    ls_status status = ls_devices_find(&s->choice, &s->train, LS_DEVICES_TELL);
    int count = s->devices > 0 ? s->devices : s->single ? 1 : 0;
    if (status == LS_OK) status = ls_devices_choose(&s->choice, &s->device_ids, count);
    if (status == LS_OK && s->single && s->choice.count != 1) {
        return ls_fail(LS_ERR_USAGE, "--single trains on one device");
    }
    return status;
}

/* The first device with this index: several may share a GPU. */
static ls_status find_output_device(const struct dp_settings *s, int *place) {
    *place = 0;
    if (s->output_device < 0) return LS_OK;
    for (*place = 0; *place < s->choice.count; ++*place) {
        if (s->choice.indices[*place] == s->output_device) return LS_OK;
    }
    return ls_fail(LS_ERR_USAGE, "output device %d is not among the devices", s->output_device);
}

static ls_status open_devices(struct dp_session *session, const struct dp_settings *s) {
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < s->choice.count; i++) {
        status = ls_devices_open(&session->devices[i], &s->choice, i, &s->train);
        if (status == LS_OK) session->count++;
    }
    return status;
}

static ls_status build(struct dp_session *session, struct dp_settings *s) {
    int output = 0;
    size_t max_batch = ls_micro_batch_rows((size_t)s->train.batch_size, s->train.accumulate);
    ls_status status = find_output_device(s, &output);
    if (status == LS_OK) status = open_devices(session, s);
    size_t piece = (max_batch + (size_t)s->choice.count - 1) / (size_t)s->choice.count;
    if (status == LS_OK) status = ls_train_open_first(&s->train, &session->train, &session->test);
    if (status == LS_OK)
        status = ls_train_open_model(&session->model, &s->train, session->devices[0], piece, LS_OPEN_TELL);
    if (status == LS_OK) status = ls_train_open_data(&s->train, session->model, &session->train, &session->test);
    if (status == LS_OK) {
        status = s->train.init ? ls_weights_load(session->model, s->train.init, true)
                               : ls_model_init(session->model, (uint64_t)s->train.seed);
    }
    if (status != LS_OK) return status;
    ls_optimizer_options optimizer = ls_train_optimizer(&s->train);
    if (s->single) {
        status = ls_device_bind_thread(session->devices[0]);
        if (status != LS_OK) return status;
        return ls_single_create(&session->parallel, session->devices[0], session->model, &optimizer, max_batch);
    }
    dp_options options = {.devices = session->devices,
                          .device_count = session->count,
                          .output_device = output,
                          .max_batch = max_batch,
                          .sync_bn = ls_train_sync_bn(&s->train, session->model, true),
                          .replicate = (dp_replication)s->replicate,
                          .optimizer = optimizer};
    return dp_create(&session->parallel, session->model, &options);
}

void dp_session_close(struct dp_session *session) {
    bool stuck = session->parallel && session->parallel->stuck;
    if (session->parallel) session->parallel->ops->destroy(session->parallel);
    if (stuck) return; /* a thread may still use the rest; the process ends soon */
    ls_dataset_close(session->train);
    ls_dataset_close(session->test);
    ls_model_destroy(session->model);
    for (int i = 0; i < session->count; i++) ls_device_close(session->devices[i]);
}

ls_status dp_session_open(struct dp_session *session, struct dp_settings *s) {
    ls_status status = choose_devices(s);
    if (status == LS_OK) status = ls_train_options_check(&s->train, s->choice.count);
    return status == LS_OK ? build(session, s) : status;
}

static ls_status train(struct dp_session *session, struct dp_settings *s, ls_train_result *result) {
    ls_status status = ls_virtual_time_begin(&s->train);
    if (status == LS_OK) status = dp_session_open(session, s);
    if (status != LS_OK) return status;
    if (s->choice.gpu_expected) session->parallel->why_not_gpu = s->choice.found;
    ls_train_warn_workers(&s->train, 1);
    /* one process: the global order of the samples, the same for all ways of sharding */
    ls_sharing sharing = {.shard = LS_SHARD_CONTIGUOUS};
    return ls_train(session->parallel, &s->train, sharing, session->train, session->test, result);
}

ls_status dp_run(struct dp_settings *s, ls_train_result *result) {
    struct dp_session session = {0};
    /* waits for a device time out later than those for NCCL's operations, whose messages name the operation */
    ls_set_wait_timeout_s((s->replicate == DP_REPLICATE_NCCL ? 2 : 1) * s->train.timeout_s);
    ls_status status = train(&session, s, result);
    dp_session_close(&session);
    return status;
}
