/* gpu_check: what only a GPU can show. Every kernel's speed beside what the GPU itself reaches in a plain copy and in its fastest matrix
 * product, step times of the programs, and whether DataParallel and DistributedDataParallel agree on real devices. All
 * numbers are measured, on the GPU that the first line names. */
#ifndef LABS_GPU_CHECK_H
#define LABS_GPU_CHECK_H

#include <stdbool.h>

#include "common/base/dtype.h"
#include "common/base/log.h"
#include "common/device/device.h"
#include "common/device/plugin.h"
#include "kernels/kernels.h"
#include "labs/bench_shared/machine.h"

typedef struct gpu_check_settings {
    bool quick;        /* small arrays and few steps: whether it works, not how fast it is */
    int gpu;           /* CUDA's number */
    const char *out;   /* folder for gpu_check.json */
    const char *tests; /* lines "name<TAB>passed|failed|not run<TAB>detail" of checks made before, or NULL */
    double timeout_s;  /* of one training run */
    double budget_s;   /* of everything: runs that have not begun by then are left out, and do not count as passed */
    double end_us;     /* when that is, by ls_now_us */
} gpu_check_settings;

enum {
    GPU_CHECK_TEXT = 160,
    GPU_CHECK_RATES_MAX = 64,
    GPU_CHECK_STEPS_MAX = 80,
    GPU_CHECK_VERDICTS_MAX = 96,
    GPU_CHECK_GROUPS = 5 /* groups of repetitions; times are medians over them */
};

/* NAN: not measured. */
typedef struct gpu_check_peaks {
    double copy_GBps; /* bytes read and written by a device-to-device copy */
    double fp32_TFLOPs, tf32_TFLOPs, fp16_TFLOPs, bf16_TFLOPs;
} gpu_check_peaks;

typedef struct gpu_check_rate {
    char name[GPU_CHECK_TEXT]; /* the operation, with a shape where it has several */
    double us, bytes, flops;   /* of one call; bytes and flops by ops.def */
    bool arithmetic;           /* measured against the matrix product's peak; otherwise against the copy's */
    double share;              /* of that peak */
} gpu_check_rate;

typedef struct gpu_check_step {
    const char *mode, *model, *precision;
    int devices;
    long batch;
    bool graph;
    double step_ms, samples_per_s, TFLOPs, loader_share, peak_bytes; /* peak_bytes: of the device that needs most */
    char note[GPU_CHECK_TEXT];                                       /* why there is no number */
    bool left_out;                                                   /* it did not run */
} gpu_check_step;

typedef struct gpu_check_verdict {
    char name[GPU_CHECK_TEXT];
    bool passed, ran;
    char detail[GPU_CHECK_TEXT];
} gpu_check_verdict;

typedef struct gpu_check_result {
    bench_machine machine;
    ls_gpu_facts gpu;
    int gpu_count;
    gpu_check_peaks peaks;
    gpu_check_rate rates[GPU_CHECK_RATES_MAX];
    gpu_check_step steps[GPU_CHECK_STEPS_MAX];
    gpu_check_verdict verdicts[GPU_CHECK_VERDICTS_MAX];
    int rate_count, step_count, verdict_count;
} gpu_check_result;

/* peaks.c: the plug-in's table; NULL (reported) without one. */
const struct ls_cuda_plugin *gpu_check_plugin(void);

/* The copy's bandwidth and the matrix products' rates. */
ls_status gpu_check_measure_peaks(gpu_check_result *result, const gpu_check_settings *settings);

/* rates.c: every operation of ops.def on large arrays. */
ls_status gpu_check_measure_rates(gpu_check_result *result, const gpu_check_settings *settings);

/* operations.c: fills ops[] with operations on memory of `device` of about `count` floats each; returns how many (at most
 * GPU_CHECK_RATES_MAX), 0 after an error. names[i] is what to call them. The memory is `arena`'s, freed by
 * gpu_check_free_operations. */
typedef struct gpu_check_arena {
    ls_device *device;
    void *blocks[64];
    int count;
    bool failed;
} gpu_check_arena;
int gpu_check_make_operations(gpu_check_arena *arena, ls_device *device, size_t count, struct ls_op *ops,
                              char (*names)[GPU_CHECK_TEXT]);
void gpu_check_free_operations(gpu_check_arena *arena);

/* values.c: fills memory of a device with numbers between 0.5 and 1 in size, of either sign: zeros would draw less power, and run faster, than
 * anything that is trained. dtype: fp32, fp16 or bf16. */
ls_status gpu_check_fill(ls_device *device, void *memory, size_t count, ls_dtype dtype);

/* timing.c: the median over GPU_CHECK_GROUPS groups of the time of one call, in microseconds; a group lasts at least 50 ms, with `quick` one call. */
typedef ls_status (*gpu_check_call)(ls_stream *stream, const void *argument);
ls_status gpu_check_time(ls_stream *stream, gpu_check_call call, const void *argument, bool quick, double *us);

/* steps.c: step times by the programs themselves. A run that fails leaves a note, not a number. */
void gpu_check_measure_steps(gpu_check_result *result, const gpu_check_settings *settings);

/* "0,1,2" (gpu < 0) or "2,2,2": the numbers of so many devices. */
void gpu_check_list_ids(char *text, size_t capacity, int devices, int gpu);

/* invariants.c: N devices against one, DP against DDP, the same command twice; on logical devices of one GPU, and on all GPUs. */
void gpu_check_invariants(gpu_check_result *result, const gpu_check_settings *settings);

/* runs.c: one run of a training program; `arguments` ends with NULL. The summary's numbers, or a reason in `note`. */
typedef struct gpu_check_run {
    double step_ms, samples_per_s, final_loss, loader_share, peak_bytes;
    char weights[20];
    char note[GPU_CHECK_TEXT];
    bool left_out; /* no time was left (budget_s) */
} gpu_check_run;
bool gpu_check_train(gpu_check_run *run, const char *program, const char *const *arguments,
                     const gpu_check_settings *settings);

/* files.c */
void gpu_check_print(const gpu_check_result *result);
ls_status gpu_check_write(const gpu_check_result *result, const char *folder);

/* Adds a verdict; the detail is a printf format. */
void gpu_check_judge(gpu_check_result *result, bool passed, const char *name, const char *format, ...) LS_PRINTF(4, 5);

#endif
