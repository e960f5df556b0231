#include "tests/fuzz/targets/checkpoint_run.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "tests/fuzz/targets/targets.h"

static const int64_t memory[] = {3, 2, 1, 0};

static void get_resume_state(const ls_parallel *p, const int64_t **values, size_t *count) {
    (void)p;
    *values = memory;
    *count = sizeof memory / sizeof *memory;
}

static ls_status set_resume_state(ls_parallel *p, const int64_t *values, size_t count) {
    (void)p;
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i] == memory[i % 4];
    return sum == 4 && count == 4 ? LS_OK : ls_fail(LS_ERR_INVALID, "these are other numbers");
}

struct ls_checkpointed *fuzz_checkpoint_run(void) {
    static struct ls_checkpointed run;
    static const struct ls_process_ops process = {.get_resume_state = get_resume_state,
                                                  .set_resume_state = set_resume_state};
    static ls_train_options options;
    if (run.parallel) return &run;
    ls_device *device;
    ls_model *model;
    setenv("LS_CPU_STREAMS", "inline", 1);
    options = ls_train_defaults();
    options.model = "mlp:6,4,3";
    options.precision = LS_FP16; /* with loss scaling; nothing is computed here */
    ls_optimizer_options optimizer = ls_train_optimizer(&options);
    ls_status status = ls_device_open(&device, &(ls_device_options){.kind = LS_DEVICE_CPU, .devices_on_node = 1});
    if (status == LS_OK) status = ls_model_create(&model, device, options.model, 1, LS_FP32);
    if (status == LS_OK) status = ls_model_init(model, 0);
    if (status == LS_OK) status = ls_single_create(&run.parallel, device, model, &optimizer, 1);
    fuzz_require(status == LS_OK, "a small run can be built");
    run.parallel->process = &process;
    run.parallel->rank = 1; /* rank 1 prints no notes */
    run.options = &options;
    run.sharing.shard = LS_SHARD_CONTIGUOUS;
    run.steps_per_epoch = FUZZ_CHECKPOINT_STEPS_PER_EPOCH;
    return &run;
}
