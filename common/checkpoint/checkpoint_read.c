/* checkpoint_read — resumes from a checkpoint.
 *   order : the file by itself (safetensors.h); all ranks have the same; its metadata (checkpoint_text.h) and its
 *           checksum; names, shapes and types of all tensors; the few values that the run depends on. Only then is
 *           anything changed: the mode's own part, which the mode checks itself, then moments and weights
 *   cost  : each rank has the file in memory; if there are several ranks, they hash it
 *   fails : with one line, and before anything has changed. A device that fails while it is written to ends the run */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/checkpoint/checkpoint_internal.h"
#include "common/checkpoint/checkpoint_text.h"

/* If a file were replaced while ranks open it, they would train different models. */
static ls_status compare_ranks(ls_parallel *p, const ls_safetensors *file, const char *path) {
    enum { HALVES = 2 }; /* of the hash: each is exact as a double */
    if (p->world_size == 1) return LS_OK;
    uint64_t hash = ls_safetensors_hash(file);
    double mine[HALVES] = {(double)(hash >> 32), (double)(hash & UINT32_MAX)};
    double *all = calloc((size_t)p->world_size * HALVES, sizeof *all);
    uint64_t *hashes = calloc((size_t)p->world_size, sizeof *hashes);
    ls_status status = all && hashes ? p->process->gather_from_ranks(p, mine, HALVES, all)
                                     : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare the ranks");
    for (int r = 0; status == LS_OK && r < p->world_size; r++)
        hashes[r] = (uint64_t)all[HALVES * r] << 32 | (uint64_t)all[HALVES * r + 1];
    if (status == LS_OK) status = ls_safetensors_compare_ranks(path, hashes, p->world_size);
    free(hashes);
    free(all);
    return status;
}

ls_status ls_checkpoint_find(const struct ls_checkpointed *run, const char **path) {
    ls_parallel *p = run->parallel;
    const char *named = ls_train_resume(run->options);
    bool is_there = ls_train_resumes(run->options);
    *path = is_there ? named : NULL;
    if (!run->options->resume_if_present) return LS_OK;
    double finders = is_there;
    ls_status status = ls_sum_over_ranks(p, &finders, 1);
    if (status != LS_OK) return status;
    if (finders > 0 && finders < p->world_size) {
        return ls_fail(LS_ERR_INVALID, "only %g of %d ranks find %s; put the file on a disk that all ranks share",
                       finders, p->world_size, named);
    }
    if (!is_there && p->rank == 0) ls_note("%s is not there yet: this run begins at step 0", named);
    return LS_OK;
}

/* --- staging ----------------------------------------------------------------------------------------------------- */

static size_t stored_count(const ls_safetensors *file, const char *name) {
    const ls_safetensor *tensor = ls_safetensors_find(file, name);
    return tensor && tensor->ndim == 1 ? tensor->shape[0] : 0;
}

/* Whether this run continues with the ranks' own states. If not, but the run has such states, they start at zero, and a
 * note says so. */
static bool takes_rank_state(const ls_parallel *p, const ls_safetensors *file, const char *path, bool tell) {
    char name[LS_STATE_NAME_NBYTES];
    if (!ls_parallel_rank_state(p, 0).values) return false;
    snprintf(name, sizeof name, LS_RANK_STATE "%s", ls_model_parameter(p->model, 0)->name);
    const ls_safetensor *tensor = ls_safetensors_find(file, name);
    if (tensor && tensor->ndim == 2 && tensor->shape[0] == (size_t)p->world_size) return true;
    if (tell && p->rank == 0)
        ls_note("%s does not hold what %d ranks have left unsent (top-k's errors): they begin at zero here", path,
                p->world_size);
    return false;
}

/* Allocates staging memory for the values that the file has and this run needs. */
static ls_status prepare_staging(struct ls_checkpoint_staging *s, const ls_parallel *p, const ls_safetensors *file,
                                 const struct ls_checkpoint_texts *texts, const struct ls_checkpointed *run) {
    bool same_mode = ls_checkpoint_same(texts, run, LS_TEXT_MODE) && p->process;
    size_t states = stored_count(file, "optimizer.step");
    /* the tensor check reports a wrong number */
    if (states != ls_model_parameter_count(p->model)) states = 1;
    ls_status status = ls_checkpoint_stage(s, states, same_mode ? stored_count(file, "mode.memory") : 0);
    if (status != LS_OK) return status;
    s->has_scaler = ls_optimizer_scaler(p->optimizer) && ls_checkpoint_same(texts, run, LS_TEXT_PRECISION);
    return LS_OK;
}

static ls_status check_staged(const struct ls_checkpoint_staging *s, const char *path) {
    for (size_t i = 0; i < s->state_count; i++) {
        if (!(s->steps[i] >= 0 && s->steps[i] < 0x1p53 && s->steps[i] == floor(s->steps[i]))) {
            return ls_fail(LS_ERR_FORMAT, "%s is damaged: optimizer.step is %g; expected a whole number from 0", path,
                           s->steps[i]);
        }
        if (!(s->rates[i] >= 0 && isfinite(s->rates[i]))) {
            return ls_fail(LS_ERR_FORMAT, "%s is damaged: optimizer.lr is %g; expected a finite number from 0", path,
                           s->rates[i]);
        }
    }
    if (!s->has_scaler) return LS_OK;
    if (!(s->scale > 0 && isfinite(s->scale))) {
        return ls_fail(LS_ERR_FORMAT, "%s is damaged: scaler.scale is %g; expected a positive finite number", path,
                       (double)s->scale);
    }
    if (s->growth_tracker < 0 || s->growth_tracker > INT32_MAX || s->skipped < 0) {
        return ls_fail(LS_ERR_FORMAT, "%s is damaged: scaler.growth_tracker is %" PRId64 ", scaler.skipped is %" PRId64,
                       path, s->growth_tracker, s->skipped);
    }
    return LS_OK;
}

static ls_status take_states(const struct ls_checkpoint_staging *s, const ls_parallel *p) {
    struct ls_update_state *states = calloc(s->state_count, sizeof *states);
    if (!states) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the update states");
    for (size_t i = 0; i < s->state_count; i++) {
        states[i] = (struct ls_update_state){
            .learning_rate = s->rates[i], .step = s->steps[i], .gradient_factor = 1, .scale = 1};
    }
    ls_status status = ls_optimizer_write_states(p->optimizer, states, s->state_count);
    free(states);
    return status;
}

static ls_status take_scaler(const struct ls_checkpoint_staging *s, const ls_parallel *p) {
    if (!s->has_scaler) return LS_OK;
    struct ls_scaler_state state = {
        .scale = s->scale, .growth_tracker = (int32_t)s->growth_tracker, .skipped = s->skipped};
    return ls_grad_scaler_write(ls_optimizer_scaler(p->optimizer), &state);
}

/* --- the whole checkpoint ---------------------------------------------------------------------------------------- */

/* The mode does not know the file, so its message is captured and the file's name added. */
static ls_status take_resume_state(const struct ls_checkpoint_staging *s, ls_parallel *p, const char *path) {
    char cause[300] = "";
    if (s->resume_count == 0) return LS_OK;
    ls_log_sink sink = ls_log_capture(cause, sizeof cause);
    ls_status status = p->process->set_resume_state(p, s->resume_state, s->resume_count);
    ls_log_restore(sink);
    return status == LS_OK ? LS_OK : ls_fail(status, "%s: mode.memory: %s", path, cause);
}

static ls_status take(const struct ls_state_source *source, const struct ls_checkpoint_staging *s,
                      const ls_state_dict *dict, size_t staged_count, ls_parallel *p) {
    ls_status status = take_resume_state(s, p, source->path);
    if (status == LS_OK) status = ls_state_dict_read(dict, source, staged_count, dict->count);
    if (status == LS_OK) status = take_states(s, p);
    if (status == LS_OK) status = take_scaler(s, p);
    ls_model_parameters_changed(p->model);
    return status;
}

/* `only_check`: nothing is loaded. */
static ls_status load_tensors(const struct ls_checkpointed *run, const ls_safetensors *file, const char *path,
                              const struct ls_checkpoint_texts *texts, bool only_check) {
    ls_parallel *p = run->parallel;
    struct ls_checkpoint_staging staging = {0};
    ls_state_dict dict = {0};
    size_t staged_count = 0, i = 0;
    const char *ignored[4] = {NULL};
    ls_status status = prepare_staging(&staging, p, file, texts, run);
    staging.has_rank_state = takes_rank_state(p, file, path, !only_check);
    if (status == LS_OK) status = ls_checkpoint_dict(&dict, &staged_count, p, &staging);
    if (!ls_checkpoint_same(texts, run, LS_TEXT_PRECISION)) ignored[i++] = "scaler.";
    if (!ls_checkpoint_same(texts, run, LS_TEXT_MODE)) ignored[i++] = "mode.";
    if (!staging.has_rank_state) ignored[i++] = LS_RANK_STATE;
    struct ls_state_source source = {
        .file = file, .path = path, .reader = "this run", .prefix = "", .ignored = ignored};
    if (status == LS_OK) status = ls_state_dict_check(&dict, &source);
    if (status == LS_OK) status = ls_state_dict_read(&dict, &source, 0, staged_count);
    if (status == LS_OK) status = check_staged(&staging, path);
    if (status == LS_OK && !only_check) status = take(&source, &staging, &dict, staged_count, p);
    ls_state_dict_close(&dict);
    ls_checkpoint_unstage(&staging);
    return status;
}

/* Closes the file. */
static ls_status load_file(const struct ls_checkpointed *run, ls_safetensors *file, const char *path, bool tell,
                           struct ls_position *position) {
    struct ls_checkpoint_texts texts;
    struct ls_position there;
    ls_status status = compare_ranks(run->parallel, file, path);
    if (status == LS_OK) status = ls_checkpoint_read_texts(&texts, file, path);
    if (status == LS_OK) status = ls_checkpoint_verify(file, path);
    if (status == LS_OK) status = ls_checkpoint_check_texts(&texts, run, path, &there);
    if (status == LS_OK) status = load_tensors(run, file, path, &texts, false);
    if (status == LS_OK) {
        *position = there;
        if (tell && run->parallel->rank == 0) ls_checkpoint_note(&texts, run, path, position);
    }
    ls_safetensors_close(file);
    return status;
}

ls_status ls_checkpoint_load(const struct ls_checkpointed *run, const char *path, struct ls_position *position) {
    ls_safetensors *file;
    ls_status status = ls_safetensors_open(&file, path);
    return status == LS_OK ? load_file(run, file, path, true, position) : status;
}

ls_status ls_checkpoint_load_kept(const struct ls_checkpointed *run, int fd, struct ls_position *position) {
    ls_safetensors *file;
    ls_status status = ls_safetensors_open_fd(&file, fd, LS_KEPT);
    return status == LS_OK ? load_file(run, file, LS_KEPT, false, position) : status;
}

ls_status ls_checkpoint_check(const struct ls_checkpointed *run, const char *path) {
    ls_safetensors *file;
    struct ls_checkpoint_texts texts;
    struct ls_position there;
    ls_status status = ls_safetensors_open(&file, path);
    if (status != LS_OK) return status;
    status = ls_checkpoint_read_texts(&texts, file, path);
    if (status == LS_OK) status = ls_checkpoint_verify(file, path);
    if (status == LS_OK) status = ls_checkpoint_check_texts(&texts, run, path, &there);
    if (status == LS_OK) status = load_tensors(run, file, path, &texts, true);
    ls_safetensors_close(file);
    return status;
}
