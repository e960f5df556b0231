/* operations: the measurements of this process itself, with the calls that training makes, on its first core.
 *   products : a step's matrix multiplies, one after another in their own shapes; and a large one, which shows the
 *              core's rate: at that rate the flops give the least time of a step. The two alternate; the figures are
 *              medians
 *   attention: forward and backward of one layer, alternating, repeated for 20 ms per run */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/base/statistics.h"
#include "kernels/kernels.h"
#include "labs/bench/gpt/bench_gpt.h"

#define RUN_US 20e3

enum { LARGE = 512, TURNS = 9, ATTENTION_PARTS = 6 };

/* Asks for more devices than any machine has cores, so that the streams are inline, and the thread is not pinned. */
ls_status gpt_open_device(gpt_results *results) {
    ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = 1 << 16};
    ls_status status = ls_device_open(&results->device, &options);
    return status == LS_OK ? ls_device_bind_thread(results->device) : status;
}

/* Allocates memory for measurements, and fills it: zeros would be as fast, but subnormal values would not. */
static ls_status take(gpt_results *results, float **memory, size_t count) {
    ls_status status =
        ls_device_alloc(results->device, LS_MEMORY_WORKSPACE, count * sizeof **memory, "bench", (void *)memory);
    for (size_t i = 0; status == LS_OK && i < count; i++) (*memory)[i] = 1e-3f * (float)((i * 37) % 101) - 0.05f;
    return status;
}

/* --- matrix multiplies --------------------------------------------------------------------------------------------- */

/* Forward, the input's gradient and the weights' of a linear layer. */
static void multiply_layer(ls_stream *stream, size_t rows, size_t in, size_t out, float *const at[3]) {
    ls_gemm(stream, LS_FP32, false, true, rows, out, in, at[0], at[1], 0, LS_FP32, at[2], NULL);
    ls_gemm(stream, LS_FP32, false, false, rows, in, out, at[2], at[1], 0, LS_FP32, at[0], NULL);
    ls_gemm(stream, LS_FP32, true, false, out, in, rows, at[2], at[0], 0, LS_FP32, at[1], NULL);
}

static void multiply_step(ls_stream *stream, const gpt_settings *s, float *const at[3]) {
    size_t rows = (size_t)s->batch * (size_t)s->sizes.context, c = (size_t)s->sizes.channels;
    for (int layer = 0; layer < s->sizes.layers; layer++) {
        multiply_layer(stream, rows, c, 3 * c, at);
        multiply_layer(stream, rows, c, c, at);
        multiply_layer(stream, rows, c, 4 * c, at);
        multiply_layer(stream, rows, 4 * c, c, at);
    }
    multiply_layer(stream, rows, c, (size_t)s->sizes.vocabulary, at);
}

static ls_status time_products(gpt_results *results, float *const at[3], double *large_us, double *step_us) {
    ls_stream *stream = ls_device_stream(results->device, LS_STREAM_COMPUTE);
    double large[TURNS], step[TURNS];
    for (int turn = -1; turn < TURNS; turn++) { /* the first warms up */
        double begin = ls_now_us();
        for (int i = 0; i < 4; i++)
            ls_gemm(stream, LS_FP32, false, true, LARGE, LARGE, LARGE, at[0], at[1], 0, LS_FP32, at[2], NULL);
        double middle = ls_now_us();
        multiply_step(stream, results->settings, at);
        if (turn < 0) continue;
        large[turn] = (middle - begin) / 4;
        step[turn] = ls_now_us() - middle;
    }
    ls_sort(large, TURNS);
    ls_sort(step, TURNS);
    *large_us = ls_quantile(large, TURNS, 0.5);
    *step_us = ls_quantile(step, TURNS, 0.5);
    return ls_device_status(results->device);
}

ls_status gpt_multiply(gpt_row *row, gpt_results *results) {
    const gpt_settings *s = results->settings;
    size_t rows = (size_t)s->batch * (size_t)s->sizes.context, c = 4 * (size_t)s->sizes.channels,
           large = (size_t)LARGE * LARGE;
    size_t widest = (size_t)s->sizes.vocabulary > c ? (size_t)s->sizes.vocabulary : c;
    size_t count = (rows > c ? rows : c) * widest;
    float *at[3] = {NULL};
    double large_us = 0, step_us = 0;
    ls_status status = LS_OK;
    for (int i = 0; i < 3 && status == LS_OK; i++) status = take(results, &at[i], count > large ? count : large);
    ls_run_on_core(0, 1);
    if (status == LS_OK) status = time_products(results, at, &large_us, &step_us);
    ls_run_on_any_core();
    for (int i = 0; i < 3; i++) ls_device_free(results->device, at[i]);
    if (status != LS_OK) return status;
    results->rates[row->run_count] = 2.0 * LARGE * LARGE * LARGE / large_us * 1e6;
    results->shapes_ms[row->run_count] = step_us * 1e-3;
    row->run_ms[row->run_count] = gpt_product_flops(s) / results->rates[row->run_count] * 1e3;
    row->run_count++;
    return LS_OK;
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static double time_attention(gpt_results *results, struct ls_attention_shape shape, float *const at[ATTENTION_PARTS],
                             int calls) {
    ls_stream *stream = ls_device_stream(results->device, LS_STREAM_COMPUTE);
    double begin = ls_now_us();
    for (int i = 0; i < calls; i++) {
        ls_attention_forward(stream, shape, at[1], at[0], at[4], at[5]);
        ls_attention_backward(stream, shape, at[3], at[2], at[0], at[1], at[4], at[5]);
    }
    return ls_now_us() - begin;
}

ls_status gpt_attend(gpt_row *row, gpt_results *results) {
    const struct ls_gpt_sizes *g = &results->settings->sizes;
    struct ls_attention_shape shape = {row->batch,  row->context, g->heads,
                                       g->channels, LS_FP32,      row->kind == GPT_TILES};
    size_t y = (size_t)row->batch * (size_t)row->context * (size_t)g->channels,
           saved = ls_attention_saved_nbytes(&shape);
    const size_t counts[ATTENTION_PARTS] = {3 * y,
                                            y,
                                            y,
                                            3 * y,
                                            saved / sizeof(float) + 1,
                                            ls_attention_workspace_nbytes(LS_DEVICE_CPU, &shape) / sizeof(float) + 1};
    float *at[ATTENTION_PARTS] = {NULL};
    ls_status status = LS_OK;
    for (int i = 0; i < ATTENTION_PARTS && status == LS_OK; i++) status = take(results, &at[i], counts[i]);
    ls_run_on_core(0, 1);
    if (status == LS_OK) {
        double once_us = time_attention(results, shape, at, 1); /* and warms up */
        int calls = once_us > RUN_US ? 1 : (int)(RUN_US / once_us) + 1;
        row->run_ms[row->run_count] = time_attention(results, shape, at, calls) / calls * 1e-3;
        status = ls_device_status(results->device);
    }
    ls_run_on_any_core();
    for (int i = 0; i < ATTENTION_PARTS; i++) ls_device_free(results->device, at[i]);
    row->run_count += status == LS_OK;
    row->kept_bytes = (double)saved;
    return status;
}
