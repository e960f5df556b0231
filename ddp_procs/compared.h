/* What the ranks of a job compare before the first step: the program and its settings as soon as they have found each
 * other, the data once each has opened its own. The errors are ddp_agree's (agree.h). */
#ifndef DDP_COMPARED_H
#define DDP_COMPARED_H

#include "common/base/options.h"
#include "common/data/dataset.h"
#include "common/device/device.h"
#include "ddp_procs/agree.h"

/* Collective. The build of the program, and of every row what it says that ranks agree on (ls_agreement), after all
 * checks that still change a value. */
ls_status ddp_agree_on_settings(const ddp_agreement *agreement, const ls_option *rows, size_t count);

/* What a rank found when it opened what its settings name. */
typedef struct ddp_found {
    ls_device_kind device_kind;
    const ls_dataset *train, *test; /* NULL: none */
} ddp_found;

/* Collective. Each data set's shape, size and some of its samples; the kind of devices, and of GPUs the build of
 * ls_cuda.so. `so_far`: the status of opening them. A rank that has failed tells the others and returns it. */
ls_status ddp_agree_on_data(const ddp_agreement *agreement, const ddp_found *found, ls_status so_far);

#endif
