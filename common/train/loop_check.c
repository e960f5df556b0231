/* loop_check — checks that a process which takes no part in a run can make before it begins. */
#include "common/checkpoint/checkpoint.h"
#include "common/report/recording.h"
#include "common/report/report.h"
#include "common/train/feed.h"
#include "common/train/loop.h"

/* On one device: differences between ranks do not matter for what a checkpoint must match. */
static ls_status check_checkpoint(const ls_train_options *options, ls_sharing sharing, ls_model *model,
                                  int64_t steps_per_epoch) {
    ls_parallel *p;
    ls_optimizer_options optimizer = ls_train_optimizer(options);
    ls_status status = ls_single_create(&p, ls_model_device(model), model, &optimizer, 1);
    if (status != LS_OK) return status;
    struct ls_checkpointed run = {
        .parallel = p, .options = options, .sharing = sharing, .steps_per_epoch = steps_per_epoch};
    status = ls_checkpoint_check(&run, ls_train_resume(options));
    p->ops->destroy(p);
    return status;
}

ls_status ls_train_check(const ls_train_options *options, int world_size, ls_sharing sharing, const ls_dataset *train,
                         ls_model *model) {
    int64_t steps_per_epoch;
    ls_status status = ls_feed_check(options, world_size, sharing, train, &steps_per_epoch);
    if (status == LS_OK) status = ls_report_check(options);
    if (status == LS_OK) status = ls_recording_check(options);
    if (status != LS_OK || !model || !ls_train_resumes(options)) return status;
    return check_checkpoint(options, sharing, model, steps_per_epoch);
}

ls_status ls_train_describe_share(const ls_train_options *options, int rank, int world_size, ls_sharing sharing,
                                  const ls_dataset *train, char *text, size_t capacity) {
    return ls_feed_describe(options, rank, world_size, sharing, train, text, capacity);
}
