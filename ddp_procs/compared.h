/* The facts that the ranks of a job compare before the first step: the program and its settings right after the
 * rendezvous, the data once each rank has opened its own. The errors are ddp_agree's (agree.h). */
#ifndef DDP_COMPARED_H
#define DDP_COMPARED_H

#include "common/base/options.h"
#include "common/data/dataset.h"
#include "common/device/device.h"
#include "ddp_procs/agree.h"

/* Collective. Compares the build of the program, and each row of options as its ls_agreement requires. Call after all
 * checks that may change a value. */
ls_status ddp_agree_on_settings(const ddp_agreement *agreement, const ls_option *rows, size_t count);

/* The devices and data that a rank has opened. */
typedef struct ddp_found {
    ls_device_kind device_kind;
    const ls_dataset *train, *test; /* NULL: none */
} ddp_found;

/* Collective. Compares each data set's shape, size and some of its samples; the kind of devices; and, for GPUs, the
 * build of ls_cuda.so. `so_far`: the status of opening them. A rank with a failure informs the others and returns
 * it. */
ls_status ddp_agree_on_data(const ddp_agreement *agreement, const ddp_found *found, ls_status so_far);

#endif
