#include "common/train/checkpoint.h"

#include "common/base/log.h"
#include "common/train/weights.h"

ls_status ls_checkpoint_save(ls_parallel *parallel, const ls_train_options *options, const struct ls_position *position,
                             const char *path) {
    (void)options, (void)position;
    return ls_weights_save(parallel->model, path);
}

ls_status ls_checkpoint_load(ls_parallel *parallel, const ls_train_options *options, const char *path,
                             struct ls_position *position) {
    (void)parallel, (void)options, (void)position;
    return ls_fail(LS_ERR_UNSUPPORTED, "%s cannot be resumed from yet", path);
}
