/* predict — the memory of each device: one row for each category, valid for every device of every mode.
 *   terms : piece = the samples of the device with the most, ceil(batch / N): every device has room for that many
 *   modes : a device's memory follows from the modes' allocations: dp_threads/data_parallel.c and
 *           ddp_procs/distributed.c
 *   exact : ls_device_memory counts the same bytes (who_holds compares) */
#include "labs/09-memory/who_holds/predict.h"

struct holds_bytes holds_predict(const struct holds_run *run, int device) {
    const struct holds_sizes *s = &run->sizes;
    bool ddp = run->mode == HOLDS_DDP, first = run->mode == HOLDS_DP && device == 0;
    bool other = run->mode == HOLDS_DP && device > 0;
    size_t n = (size_t)run->devices, piece = (run->batch + n - 1) / n, loaded = first ? run->batch : piece;
    return (struct holds_bytes){{
        [LS_MEMORY_PARAMETER] = s->parameters + s->buffers,
        [LS_MEMORY_GRADIENT] = ddp ? 0 : (first ? n : 1) * s->parameters,
        [LS_MEMORY_OPTIMIZER] = other ? 0 : run->moments * s->parameters + s->update,
        [LS_MEMORY_ACTIVATION] = s->statistics + piece * (s->activations + (first ? 0 : s->output)),
        [LS_MEMORY_INPUT] = loaded * (s->input + (other ? 0 : s->answer)),
        [LS_MEMORY_GATHERED_OUTPUT] = first ? run->batch * s->output : 0,
        [LS_MEMORY_BUCKET] = ddp ? s->parameters : 0,
        [LS_MEMORY_WORKSPACE] = s->scratch + (other ? 0 : s->losses),
    }};
}
