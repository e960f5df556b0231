/* checkpoint — writes a checkpoint.
 *   idea  : model and moments go to the file as they are (state_dict.h); update states and scaler, which are structs
 *           on the device, become a few small tensors on the way
 *   cost  : host memory and a file of the size of model and moments: 4 bytes a parameter with plain SGD, 8 with
 *           momentum, 12 with Adam, and 4 more for each rank that has a state of its own; and the time to write it, in
 *           which the other ranks wait
 *   fails : with one line; the earlier file stays (common/base/file.h) */
#include "common/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/checkpoint/checkpoint_internal.h"
#include "common/checkpoint/checkpoint_text.h"

const char *const ls_checkpoint_tensors[] = {"optimizer.", "scaler.", "mode.", NULL};

enum { STAGED_MAX = 6 };

/* --- contents ---------------------------------------------------------------------------------------------------- */

ls_status ls_checkpoint_stage(struct ls_checkpoint_staging *s, size_t state_count, size_t resume_count) {
    *s = (struct ls_checkpoint_staging){.state_count = state_count, .resume_count = resume_count};
    s->steps = calloc(state_count, sizeof *s->steps);
    s->rates = calloc(state_count, sizeof *s->rates);
    s->resume_state = calloc(resume_count + 1, sizeof *s->resume_state);
    if (s->steps && s->rates && s->resume_state) return LS_OK;
    ls_checkpoint_unstage(s);
    return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a checkpoint");
}

void ls_checkpoint_unstage(struct ls_checkpoint_staging *s) {
    free(s->steps);
    free(s->rates);
    free(s->resume_state);
    *s = (struct ls_checkpoint_staging){0};
}

static void add_staged(ls_state_dict *dict, const char *name, ls_safetensor_dtype dtype, int ndim, size_t count,
                       void *memory) {
    struct ls_state_tensor tensor = {.dtype = dtype, .ndim = ndim, .shape = {count}, .memory = memory};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    ls_state_dict_add(dict, &tensor);
}

/* PyTorch's names. */
static const char *moment_name(const ls_optimizer *optimizer, size_t moment) {
    if (ls_optimizer_moment_count(optimizer) == 1) return "momentum_buffer";
    return moment == 0 ? "exp_avg" : "exp_avg_sq";
}

static void add_moment(ls_state_dict *dict, const ls_parallel *p, size_t moment, size_t parameter) {
    const struct ls_tensor *of = ls_model_parameter(p->model, parameter);
    const ls_optimizer_range *range = ls_optimizer_range_at(p->optimizer, parameter);
    struct ls_state_tensor tensor = {.memory = ls_optimizer_moment(p->optimizer, moment, parameter),
                                     .is_shared_out = ls_optimizer_group(p->optimizer) != NULL,
                                     .first = range->first,
                                     .held = range->count};
    snprintf(tensor.name, sizeof tensor.name, "optimizer.%s.%s", moment_name(p->optimizer, moment), of->name);
    ls_state_dict_shape(&tensor, ls_model_tensors(p->model), parameter);
    ls_state_dict_add(dict, &tensor);
}

/* Adds a tensor with a row for each rank; this rank has its own row. */
static void add_rank_state(ls_state_dict *dict, const ls_parallel *p, size_t parameter) {
    const struct ls_tensor *of = ls_model_parameter(p->model, parameter);
    struct ls_rank_state state = ls_parallel_rank_state(p, parameter);
    struct ls_state_tensor tensor = {.dtype = LS_SAFETENSOR_F32,
                                     .ndim = 2,
                                     .shape = {(size_t)p->world_size, of->count},
                                     .memory = state.values,
                                     .on_device = true,
                                     .is_shared_out = true,
                                     .first = (size_t)p->rank * of->count,
                                     .held = of->count};
    snprintf(tensor.name, sizeof tensor.name, LS_RANK_STATE "%s", of->name);
    dict->group = state.group;
    ls_state_dict_add(dict, &tensor);
}

ls_status ls_checkpoint_dict(ls_state_dict *dict, size_t *staged_count, const ls_parallel *p,
                             struct ls_checkpoint_staging *s) {
    size_t moments = ls_optimizer_moment_count(p->optimizer), parameters = ls_model_parameter_count(p->model);
    ls_status status = ls_state_dict_open(dict, p->model, STAGED_MAX + (moments + 1) * parameters);
    if (status != LS_OK) return status;
    dict->group = ls_optimizer_group(p->optimizer);
    add_staged(dict, "optimizer.step", LS_SAFETENSOR_F64, 1, s->state_count, s->steps);
    add_staged(dict, "optimizer.lr", LS_SAFETENSOR_F64, 1, s->state_count, s->rates);
    if (s->has_scaler) {
        add_staged(dict, "scaler.scale", LS_SAFETENSOR_F32, 0, 1, &s->scale);
        add_staged(dict, "scaler.growth_tracker", LS_SAFETENSOR_I64, 0, 1, &s->growth_tracker);
        add_staged(dict, "scaler.skipped", LS_SAFETENSOR_I64, 0, 1, &s->skipped);
    }
    if (s->resume_count > 0) add_staged(dict, "mode.memory", LS_SAFETENSOR_I64, 1, s->resume_count, s->resume_state);
    *staged_count = dict->count;
    for (size_t m = 0; m < moments; m++) {
        for (size_t parameter = 0; parameter < parameters; parameter++) add_moment(dict, p, m, parameter);
    }
    for (size_t parameter = 0; s->has_rank_state && parameter < parameters; parameter++)
        add_rank_state(dict, p, parameter);
    ls_state_dict_add_model(dict, p->model);
    return LS_OK;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static ls_status stage_states(struct ls_checkpoint_staging *s, const ls_parallel *p) {
    struct ls_update_state *states = calloc(s->state_count, sizeof *states);
    if (!states) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a checkpoint");
    ls_status status = ls_optimizer_read_states(p->optimizer, states);
    for (size_t i = 0; status == LS_OK && i < s->state_count; i++) {
        s->steps[i] = states[i].step;
        s->rates[i] = states[i].learning_rate;
    }
    free(states);
    return status;
}

static ls_status stage_scaler(struct ls_checkpoint_staging *s, const ls_parallel *p) {
    const ls_grad_scaler *scaler = ls_optimizer_scaler(p->optimizer);
    struct ls_scaler_state state;
    if (!scaler) return LS_OK;
    ls_status status = ls_grad_scaler_read(scaler, &state);
    if (status != LS_OK) return status;
    s->has_scaler = true;
    s->scale = state.scale;
    s->growth_tracker = state.growth_tracker;
    s->skipped = state.skipped;
    return LS_OK;
}

static ls_status stage_all(struct ls_checkpoint_staging *s, const ls_parallel *p) {
    const int64_t *resume_state = NULL;
    size_t count = 0;
    if (p->process) p->process->get_resume_state(p, &resume_state, &count);
    ls_status status = ls_checkpoint_stage(s, ls_optimizer_state_count(p->optimizer), count);
    if (status != LS_OK) return status;
    if (count > 0) memcpy(s->resume_state, resume_state, count * sizeof *resume_state);
    status = stage_states(s, p);
    return status == LS_OK ? stage_scaler(s, p) : status;
}

/* `fd` -1: the file is `path`. */
static ls_status write_checkpoint(const struct ls_checkpointed *run, const struct ls_position *position, int fd,
                                  const char *path) {
    struct ls_checkpoint_staging staging = {0};
    struct ls_checkpoint_texts texts;
    ls_safetensors_text lines[2 + LS_TEXT_COUNT] = {{"format", "pt"}, /* as PyTorch's loaders expect */
                                                    {LS_SAFETENSORS_CRC32, ""}};
    ls_state_dict dict = {0};
    size_t staged_count;
    bool rank_state = ls_parallel_rank_state(run->parallel, 0).values != NULL;
    ls_checkpoint_describe(&texts, run, position);
    ls_checkpoint_metadata(&texts, lines + 2);
    ls_status status = stage_all(&staging, run->parallel);
    staging.has_rank_state = rank_state;
    if (status == LS_OK) status = ls_checkpoint_dict(&dict, &staged_count, run->parallel, &staging);
    if (status == LS_OK)
        status = fd < 0 ? ls_state_dict_write(&dict, path, lines, 2 + LS_TEXT_COUNT)
                        : ls_state_dict_write_fd(&dict, fd, path, lines, 2 + LS_TEXT_COUNT);
    ls_state_dict_close(&dict);
    ls_checkpoint_unstage(&staging);
    return status;
}

ls_status ls_checkpoint_save(const struct ls_checkpointed *run, const struct ls_position *position, const char *path) {
    const ls_parallel *p = run->parallel;
    bool alone = !ls_parallel_rank_state(p, 0).values && !ls_optimizer_group(p->optimizer) &&
                 !ls_parameters_are_collective(ls_model_tensors(p->model));
    return p->rank > 0 && alone ? LS_OK : write_checkpoint(run, position, -1, path);
}

ls_status ls_checkpoint_keep(const struct ls_checkpointed *run, const struct ls_position *position, int fd) {
    return write_checkpoint(run, position, fd, LS_KEPT);
}
