/* Checkpoints, also as --init reads them: accepted files are consistent, and rejected files change nothing. */
#include <math.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/weights.h"
#include "tests/fuzz/targets/checkpoint_run.h"
#include "tests/fuzz/targets/targets.h"

static uint64_t state_of(const ls_parallel *p) {
    float *state;
    size_t count;
    ls_model_state(p->model, &state, &count);
    uint64_t hash = ls_hash(LS_HASH_SEED, state, count * sizeof *state);
    for (size_t m = 0; m < ls_optimizer_moment_count(p->optimizer); m++) {
        for (size_t i = 0; i < ls_model_parameter_count(p->model); i++) {
            size_t nbytes = ls_model_parameter(p->model, i)->count * sizeof(float);
            hash = ls_hash(hash, ls_optimizer_moment(p->optimizer, m, i), nbytes);
        }
    }
    return hash;
}

static void look_at(const struct ls_position *at, const ls_parallel *p) {
    struct ls_scaler_state scaler;
    struct ls_update_state states[FUZZ_CHECKPOINT_PARAMETERS];
    fuzz_require(at->epoch_steps >= 0 && at->epoch_steps <= at->step && at->step <= INT64_C(1) << 53,
                 "a run is at a step that it can have come to");
    fuzz_require(at->epoch >= 0 && at->epoch <= at->step && at->epoch_steps <= FUZZ_CHECKPOINT_STEPS_PER_EPOCH,
                 "an epoch has the steps that it has");
    fuzz_require(at->losses >= 0 && at->losses <= at->epoch_steps && isfinite(at->loss_sum), "losses are numbers");
    fuzz_require(ls_grad_scaler_read(ls_optimizer_scaler(p->optimizer), &scaler) == LS_OK, "the scaler can be read");
    fuzz_require(scaler.scale > 0 && isfinite(scaler.scale) && scaler.growth_tracker >= 0, "a loss scale is a scale");
    fuzz_require(ls_optimizer_read_states(p->optimizer, states) == LS_OK, "update states can be read");
    for (size_t i = 0; i < ls_optimizer_state_count(p->optimizer); i++) {
        fuzz_require(states[i].step >= 0 && states[i].learning_rate >= 0, "updates are counted from 0");
    }
}

void fuzz_checkpoint(const uint8_t *data, size_t nbytes) {
    struct ls_checkpointed *run = fuzz_checkpoint_run();
    struct ls_position at;
    const char *path = fuzz_memory_file(data, nbytes);
    uint64_t before = state_of(run->parallel);
    if (ls_checkpoint_load(run, path, &at) == LS_OK) {
        look_at(&at, run->parallel);
    } else {
        fuzz_require(state_of(run->parallel) == before, "a file that is refused changes nothing");
    }
    before = state_of(run->parallel);
    if (ls_weights_load(run->parallel->model, path, false) == LS_OK) return;
    fuzz_require(state_of(run->parallel) == before, "weights that do not fit change nothing");
}
