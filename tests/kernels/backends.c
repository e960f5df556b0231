#define _GNU_SOURCE
#include "tests/kernels/backends.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/device/device_internal.h"
#include "common/device/plugin.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/transplant.h"

enum { NAIVE, FAST };

static const struct backend gpu_backends[] = {
    {"naive", ON_NAIVE, NULL, NAIVE, "CUDA_ON_CPU_THREADS=random:2 CUDA_ON_CPU_ROUNDING=ulps"},
    {"fast", ON_FAST, NULL, FAST, ""},
    {"fast-descending", ON_FAST_OTHERWISE, NULL, FAST,
     "CUDA_ON_CPU_THREADS=descending CUDA_ON_CPU_ROUNDING=slices:2,cut,ulps"},
    {"fast-random", ON_FAST_OTHERWISE, NULL, FAST,
     "CUDA_ON_CPU_THREADS=random:1 CUDA_ON_CPU_STREAMS=shuffle:1 CUDA_ON_CPU_ROUNDING=slices:8,place,cut,flush"},
};

enum { MAX_BACKENDS = 8, MAX_TESTS = 256 };
static struct backend backends[MAX_BACKENDS];
static int backend_count;
static struct backend best;

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void add_backend(struct backend backend) {
    const char *only = getenv("LS_BACKEND");
    if (!only || strcmp(only, backend.name) == 0) backends[backend_count++] = backend;
}

static void add_builds(void) {
    add_backend(best);
#if defined(__x86_64__)
    extern const struct ls_kernels ls_cpu_kernels_v2, ls_cpu_kernels_v3;
    bool is_v4 = strcmp(best.name, "v4") == 0, is_v2 = strcmp(best.name, "v2") == 0;
    if (is_v4) add_backend((struct backend){"v3", ON_OTHER_BUILDS, &ls_cpu_kernels_v3, 0, NULL});
    if (!is_v2) add_backend((struct backend){"v2", ON_OTHER_BUILDS, &ls_cpu_kernels_v2, 0, NULL});
#endif
}

static void find_backends(void) {
    char folder[4096];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 16);
    if (length > 0 && !getenv("LS_PLUGINS")) {
        folder[length] = '\0';
        strcpy(strrchr(folder, '/'), "/cuda_on_cpu");
        setenv("LS_PLUGINS", folder, 1);
    }
    best = (struct backend){ls_cpu_kernels()->name, ON_BEST, ls_cpu_kernels(), 0, NULL};
    if (!gpu_is_real() && !getenv("CUDA_ON_CPU_ROUNDING")) add_builds();
    for (size_t i = 0; i < sizeof gpu_backends / sizeof *gpu_backends; i++)
        if (!gpu_is_real() || gpu_backends[i].kind != ON_FAST_OTHERWISE) add_backend(gpu_backends[i]);
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static const struct backend *current;
static ls_device *host, *gpu;
static struct ls_backend rerouted; /* as for CPU devices, except for operations */
static kernel_alignment chosen_alignment;
static unsigned calls;
static bool uses_best;
static void (*around_launches)(bool begin);

/* Restarts the CPU's CUDA if its settings change. A rounding from the environment of this process is kept. */
static void set_manner(const char *manner) {
    static const char *present;
    static char own_rounding[80];
    const char *rounding = getenv("CUDA_ON_CPU_ROUNDING");
    char text[200], *rest = text;
    if (present == manner) return;
    if (!present && rounding) snprintf(own_rounding, sizeof own_rounding, "%s", rounding);
    present = manner;
    setenv("CUDA_ON_CPU_DEVICES", "1", 1); /* a real GPU ignores it */
    unsetenv("CUDA_ON_CPU_THREADS");
    unsetenv("CUDA_ON_CPU_STREAMS");
    unsetenv("CUDA_ON_CPU_ROUNDING");
    assert_true(snprintf(text, sizeof text, "%s", manner) < (int)sizeof text);
    for (char *setting = strtok_r(text, " ", &rest); setting; setting = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(setting, '=');
        *value = '\0';
        setenv(setting, value + 1, 1);
    }
    if (own_rounding[0]) setenv("CUDA_ON_CPU_ROUNDING", own_rounding, 1);
    void (*restart)(void) = NULL;
    *(void **)&restart = fake_function("cuda_on_cpu_restart");
    if (restart) restart();
}

static ls_status enqueue_there(ls_stream *stream, const struct ls_op *op) {
    (void)stream;
    kernel_alignment here =
        chosen_alignment == KERNEL_IN_TURN ? (kernel_alignment)(calls++ % KERNEL_IN_TURN) : chosen_alignment;
    return transplant(uses_best ? &best : current, &best, op, here);
}

static int setup(void **state) {
    if (scratch_setup(state) != 0) return -1;
    current = *state;
    chosen_alignment = KERNEL_IN_TURN;
    calls = 0;
    uses_best = false;
    around_launches = NULL;
    ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = 1};
    if (ls_device_open(&host, &options) != LS_OK) return -1;
    rerouted = *host->backend;
    rerouted.enqueue_op = enqueue_there;
    host->backend = &rerouted;
    if (current->build) return 0;
    set_manner(current->manner);
    options.kind = LS_DEVICE_CUDA;
    if (ls_device_open(&gpu, &options) == LS_OK) return 0;
    (void)scratch_teardown(state); /* prints the reason */
    return -1;
}

static int teardown(void **state) {
    ls_device_close(gpu);
    ls_device_close(host);
    gpu = host = NULL;
    kernel_forget();
    return scratch_teardown(state);
}

ls_stream *kernel_stream(void) { return ls_device_stream(host, LS_STREAM_COMPUTE); }
ls_stream *kernel_gpu_stream(void) { return gpu ? ls_device_stream(gpu, LS_STREAM_COMPUTE) : NULL; }
void kernel_done(void) { assert_int_equal(ls_device_synchronize(host), LS_OK); }
void kernel_around_launches(void (*around)(bool begin)) { around_launches = around; }
void kernel_use_best(bool use) { uses_best = use; }
void kernel_align(kernel_alignment alignment) { chosen_alignment = alignment; }
bool kernel_is_on(unsigned kinds) { return (current->kind & kinds) != 0; }
ls_device_kind kernel_device_kind(void) { return current->build ? LS_DEVICE_CPU : LS_DEVICE_CUDA; }

double kernel_unless_in_order(double tolerance) { return kernel_is_on(ON_FAST | ON_FAST_OTHERWISE) ? tolerance : 0; }

void kernel_expect_elements(const char *what, ls_dtype dtype, const void *got, const void *want, size_t count) {
    size_t each = ls_dtype_nbytes(dtype);
    if (memcmp(got, want, count * each) == 0) return;
    const float *x = kernel_widened(dtype, got, count), *y = kernel_widened(dtype, want, count);
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)got + i * each, (const char *)want + i * each, each) == 0) continue;
        if (kernel_is_on(ON_GPUS) && isnan(x[i]) && isnan(y[i])) continue;
        fail_msg("%s[%zu] of %s is %a, not %a", what, i, ls_dtype_name(dtype), (double)x[i], (double)y[i]);
    }
}

/* --- operations --------------------------------------------------------------------------------------------------- */

unsigned kernel_own_way(ls_op_id id) {
    static const struct {
        unsigned naive, fast;
    } own_way[LS_OP_COUNT] = {
        [LS_OP_gemm] = {1, 1},
        [LS_OP_bias_gradient] = {0, 1},
        [LS_OP_relu_bias_gradient] = {0, 1},
        [LS_OP_avgpool_forward] = {0, 1},
        [LS_OP_gelu_bias_gradient] = {0, 1},
        [LS_OP_layernorm_forward] = {7, 7},
        [LS_OP_layernorm_backward] = {1, 7},
        [LS_OP_conv2d_forward] = {0, 1},
        [LS_OP_conv2d_backward_data] = {0, 1},
        [LS_OP_conv2d_backward_weights] = {0, 3},
        [LS_OP_batchnorm_train] = {~0u, ~0u},
        [LS_OP_batchnorm_backward] = {~0u, ~0u},
        [LS_OP_batchnorm_statistics] = {1, 1},
        [LS_OP_batchnorm_sums] = {7, 7},
        [LS_OP_attention_forward] = {3, 3},
        [LS_OP_attention_backward] = {1, 1},
        [LS_OP_cross_entropy] = {3, 3},
        [LS_OP_class_sums] = {1, 1},
        [LS_OP_class_loss] = {3, 3},
        [LS_OP_squared_error] = {1, 1},
        [LS_OP_square_sum_list] = {1, 1},
    };
    return current->build ? 0 : current->rung == NAIVE ? own_way[id].naive : own_way[id].fast;
}

static ls_status run_build(const struct ls_kernels *build, const struct ls_op *op) {
    switch (op->id) {
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    case LS_OP_##name:                                                                                                 \
        return build->name(&op->arguments.name);
#include "kernels/ops.def"
#undef LS_OP
    case LS_OP_COUNT: break;
    }
    return LS_ERR_INVALID;
}

ls_stream *backend_stream(const struct backend *backend) {
    return backend->build ? kernel_stream() : kernel_gpu_stream();
}

ls_status backend_run(const struct backend *backend, const struct ls_op *op) {
    if (backend->build) return run_build(backend->build, op);
    static const struct ls_cuda_rungs *rungs; /* opened once: that takes longer than a small operation */
    char why[400];
    if (!rungs) rungs = ls_plugin_open("ls_cuda.so", "ls_cuda_rungs", why, sizeof why);
    if (!rungs) fail_msg("%s", why);
    if (around_launches) around_launches(true);
    ls_status status = rungs->rungs[backend->rung].enqueue(kernel_gpu_stream(), op);
    if (around_launches) around_launches(false);
    ls_status waited = ls_stream_synchronize(kernel_gpu_stream()); /* clears a failure, too */
    return status == LS_OK ? waited : status;
}

/* --- the runner --------------------------------------------------------------------------------------------------- */

int kernel_run(const char *group, const struct kernel_test *tests, size_t count) {
    static struct CMUnitTest all[MAX_TESTS]; /* cmocka neither runs nor counts zeroed entries */
    static char names[MAX_TESTS][100];
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30); /* freed pages are reused, not zeroed again */
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    find_backends();
    for (size_t i = 0, n = 0; i < (size_t)backend_count * count; i++) {
        struct backend *backend = &backends[i / count];
        const struct kernel_test *test = &tests[i % count];
        if (!(test->where & backend->kind)) continue;
        snprintf(names[n], sizeof names[n], "%s@%s", test->name, backend->name);
        all[n] = (struct CMUnitTest){names[n], test->run, setup, teardown, backend};
        n++;
    }
    return cmocka_run_group_tests_name(group, all, NULL, NULL);
}
