/* The optimizer's update on the host (ZeRO-Offload): moments and a copy of the values are in host memory; gradients are
 * copied to the host, new values to the device. Used by optimizer.c only. */
#ifndef LS_OPTIM_OFFLOAD_H
#define LS_OPTIM_OFFLOAD_H

#include "common/device/device.h"
#include "kernels/kernels.h"

typedef struct ls_offload ls_offload;

/* The memory and the traffic of offloading. */
typedef struct ls_offload_report {
    size_t host_nbytes;  /* host memory */
    size_t step_nbytes;  /* moved by a step of all tensors, in both directions */
    size_t moved_nbytes; /* moved by the last step: less if the update was skipped */
} ls_offload_report;

/* Returns the operation that updates one tensor by a rule, wherever the memory is. */
typedef struct ls_op (*ls_update_op_fn)(const void *rule, const struct ls_update_state *state,
                                        const struct ls_update_tensor *tensor);

/* For a list of tensors, of which only the counts are used, with `moment_count` moments each, initially zeros. `rule`
 * is passed to update_op, and borrowed until destroy. On failure *out is NULL. */
ls_status ls_offload_create(ls_offload **out, ls_device *device, ls_update_op_fn update_op, const void *rule,
                            const struct ls_update_tensor *list, size_t count, int moment_count);

/* Host memory: the tensors' moments, consecutive, aligned to ls_aligned_floats. NULL: the rule has no such moment. */
float *ls_offload_moment(const ls_offload *offload, int moment);

/* Runs one update of the tensors, except those marked in `skip` (NULL: none). Parameters, gradients and states are
 * device memory; there is one state for all tensors or one for each, after ls_begin_update on the compute stream.
 * Blocks the host until all gradients are on the host. Later work on the compute stream sees the new values. */
ls_status ls_offload_update(ls_offload *offload, const struct ls_update_tensor *list,
                            const struct ls_update_state *states, size_t state_count, const bool *skip);

/* Call after other code has changed the values on the device: the next update copies them to the host first. */
void ls_offload_forget_values(ls_offload *offload);

const ls_offload_report *ls_offload_report_of(const ls_offload *offload);

/* After the device's work is done. NULL is a no-op. */
void ls_offload_destroy(ls_offload *offload);

#endif
