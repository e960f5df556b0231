/* Descriptions of networks: an accepted description is a step that can be built and costed. */
#include <math.h>
#include <string.h>

#include "labs/replay/engine/workload_cut.h"
#include "tests/fuzz/targets/targets.h"

static int is_amount(double value) { return isfinite(value) && value >= 0; }

static void look_at_work(const ls_workload *w, const struct ls_work *work, int *ready) {
    static const char *const phases[] = {"forward", "loss", "backward", "optimizer"};
    int known = 0;
    for (int p = 0; p < 4; p++) known += strcmp(work->phase, phases[p]) == 0;
    fuzz_require(known == 1 && work->name, "an operation has a name and a phase");
    fuzz_require(is_amount(work->flops) && is_amount(work->bytes) && is_amount(work->fixed_bytes) &&
                     work->fixed_bytes <= work->bytes,
                 "flops and bytes are amounts");
    fuzz_require(work->us < 0 && work->host_us < 0, "a file has no measured times");
    if (work->ready_count == 0) return;
    fuzz_require(work->first_ready == *ready && work->ready_count > 0, "gradients are ready in their order");
    *ready += work->ready_count;
    fuzz_require(*ready <= w->ready_count, "gradients are ready once");
}

static void look_at_step(const ls_workload *w) {
    int ready = 0;
    fuzz_require(w->work_count >= 4 && w->samples == 1 && w->element_bytes >= 2, "a step has its four phases");
    fuzz_require(is_amount(w->input_bytes) && is_amount(w->output_bytes) && is_amount(w->answer_bytes) &&
                     is_amount(w->activation_bytes) && is_amount(w->exchange_bytes) && is_amount(w->buffer_bytes),
                 "what a sample needs is an amount");
    for (int i = 0; i < w->work_count; i++) look_at_work(w, &w->work[i], &ready);
    fuzz_require(ready == w->ready_count && ready == w->parameter_count, "each gradient becomes ready");
    for (int i = 0; i < w->ready_count; i++) {
        fuzz_require(w->ready[i] >= 0 && w->ready[i] < w->parameter_count, "a gradient is a parameter's");
    }
}

void fuzz_workload(const uint8_t *data, size_t nbytes) {
    ls_workload *w = NULL, *part;
    ls_status status = ls_workload_parse(&w, "workload", (const char *)data, nbytes);
    fuzz_require((status == LS_OK) == (w != NULL), "a workload is there if and only if it was read");
    if (!w) return;
    look_at_step(w);
    status = ls_workload_cut(&part, w, 2, nbytes % 2);
    fuzz_require((status == LS_OK) == (part != NULL), "a part is there if and only if ranks can share the workload");
    if (part) look_at_step(part);
    ls_workload_close(part);
    ls_workload_close(w);
}
