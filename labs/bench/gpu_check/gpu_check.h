/* gpu_check: checks and measurements that need a GPU, in stages; the most informative per second come first (stages.c).
 * Every result is appended to DIR/gpu_check.jsonl at once, as a line of JSON (log.c):
 *
 *     {"stage":"peaks","name":"copy","verdict":"held","seconds":0.6,"detail":"...","figures":{"copy_GBps":3006.3}}
 *
 * so that a run which is killed leaves all its results. summary.c prints a screen from such a file, and reference.c
 * writes the files of plots/reference. All figures are measured, on the GPU that the file names, with their units in
 * their names.
 *
 * The main process does not call CUDA. A GPU or a driver that hangs therefore only hangs a child, which its deadline
 * ends. */
#ifndef LABS_BENCH_GPU_CHECK_GPU_CHECK_H
#define LABS_BENCH_GPU_CHECK_GPU_CHECK_H

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdbool.h>

#include "common/base/dtype.h"
#include "common/base/log.h"
#include "common/device/device.h"
#include "common/device/plugin.h"
#include "kernels/kernels.h"
#include "labs/bench/shared/child.h"

/* X(name, seconds of the 540 that a whole check takes by default, description) */
#define GPU_CHECK_STAGE_MAP(X)                                                                                         \
    X(look, 50, "GPU, libraries, page-locking, start of a process, five steps")                                        \
    X(kernels, 80, "a process for each test program of kernels")                                                       \
    X(training, 50, "test programs that train")                                                                        \
    X(peaks, 20, "matrix multiplies, copies and launches: what this GPU reaches at best")                              \
    X(rates, 40, "each operation beside those peaks")                                                                  \
    X(steps, 130, "training steps that README and docs/gpus.md name, beside PyTorch's")                                \
    X(agree, 60, "the same weights whatever the mode, the graph, the back-end")                                        \
    X(memcheck, 60, "kernel tests under compute-sanitizer")                                                            \
    X(racecheck, 30, "the same for races in shared memory")                                                            \
    X(matrix, 20, "training steps of every model, batch and precision")

#define GPU_CHECK_ENUM(name, seconds, what) GPU_CHECK_##name,
typedef enum gpu_check_stage { GPU_CHECK_STAGE_MAP(GPU_CHECK_ENUM) GPU_CHECK_STAGES } gpu_check_stage;
#undef GPU_CHECK_ENUM

/* X(name, text). Only BROKEN fails; an item that was not checked is never HELD. */
#define GPU_CHECK_VERDICT_MAP(X)                                                                                       \
    X(HELD, "held")                                                                                                    \
    X(BROKEN, "broken")                                                                                                \
    X(NEEDS_GPUS, "needs more GPUs")                                                                                   \
    X(NO_TOOL, "tool not usable here")                                                                                 \
    X(NOT_RUN, "not run")

#define GPU_CHECK_ENUM(name, text) GPU_CHECK_##name,
typedef enum gpu_check_verdict { GPU_CHECK_VERDICT_MAP(GPU_CHECK_ENUM) GPU_CHECK_VERDICTS } gpu_check_verdict;
#undef GPU_CHECK_ENUM

enum { GPU_CHECK_TEXT = 1000, GPU_CHECK_GROUPS = 5 /* of repetitions; times are medians over them */ };

typedef struct gpu_check {
    /* from the command line */
    bool quick;          /* small arrays and few steps: shows whether it works, not how fast */
    bool go_on;          /* items that are in the file, and neither broken nor skipped, are not run again */
    int gpu;             /* CUDA's number */
    const char *out;     /* the folder */
    const char *only;    /* stages, separated by commas; NULL: all */
    const char *pytorch; /* bench_pytorch_gpu.py, or NULL */
    double budget_s;
    char *const *tests; /* paths of test programs */
    int test_count;
    /* while it runs */
    char path[PATH_MAX]; /* of the log */
    gpu_check_stage stage;
    double stage_end_us; /* by ls_now_us: no part of the stage runs after that */
    int gpu_count;
    cJSON *before;     /* go_on: the lines of the file at the start */
    long shown_nbytes; /* of the log, on stdout */
    bool log_failed;   /* a line could not be written, which has been reported */
} gpu_check;

/* --- stages.c ----------------------------------------------------------------------------------------------------- */

/* Runs the stages in order, and writes the summary and DIR/gpu_check.json. LS_OK if nothing is broken and something
 * held. */
ls_status gpu_check_conduct(gpu_check *check);

const char *gpu_check_stage_name(gpu_check_stage stage); /* GPU_CHECK_STAGES gives "run", for lines about the whole */
double gpu_check_left_s(const gpu_check *check);         /* of this stage */

/* Whether to run an item now: not if the file has it already (go_on), nor if no time is left, which is logged. */
bool gpu_check_due(gpu_check *check, const char *name);

/* How a child ended. OUT_OF_TIME: the stage's time ended before the child's own limit. */
typedef enum gpu_check_end { GPU_CHECK_WELL, GPU_CHECK_FAILED, GPU_CHECK_OUT_OF_TIME } gpu_check_end;

/* Runs a child for at most limit_s and the stage's time; why: its error message, in one line. */
gpu_check_end gpu_check_run(gpu_check *check, char *const *argv, double limit_s, bench_output *output,
                            char why[GPU_CHECK_TEXT], double *seconds);

/* NOT_RUN if the stage's time had ended, otherwise BROKEN. */
gpu_check_verdict gpu_check_verdict_of(gpu_check_end end);

/* Runs `gpu_check --part NAME` as a child, which opens the GPU and writes its own lines. */
gpu_check_end gpu_check_run_part(gpu_check *check, const char *part, double limit_s, char why[GPU_CHECK_TEXT]);

/* --- log.c -------------------------------------------------------------------------------------------------------- */

/* Appends a line to the log; takes ownership of `figures`, NULL: none; seconds < 0: left out. The detail is a printf
 * format. */
void gpu_check_say(gpu_check *check, const char *name, gpu_check_verdict verdict, double seconds, cJSON *figures,
                   const char *format, ...) LS_PRINTF(6, 7);
void gpu_check_show(gpu_check *check); /* prints all lines appended since the last call, by children too */

/* The lines of a file, as an array. Of several lines with the same stage and name, the last that is not "not run" is
 * kept, if there is one. Incomplete lines are skipped. */
ls_status gpu_check_read(const char *path, cJSON **lines);

/* A line's text, "" if it has none; its verdict, GPU_CHECK_VERDICTS if it has no valid one. */
const char *gpu_check_text(const cJSON *object, const char *name);
gpu_check_verdict gpu_check_verdict_in(const cJSON *line);
/* NULL if there is no such line; NAN if there is no such figure. */
const cJSON *gpu_check_find_line(const cJSON *lines, const char *stage, const char *name);
double gpu_check_figure(const cJSON *line, const char *name);
/* The figures of all lines of a stage that have any, in one object. */
cJSON *gpu_check_merge(const cJSON *lines, const char *stage);

/* --- the stages --------------------------------------------------------------------------------------------------- */

ls_status gpu_check_meet(gpu_check *check); /* look.c: always first; without a GPU it fails, with a line on stderr */
void gpu_check_look(gpu_check *check);
void gpu_check_tests(gpu_check *check); /* tests.c: those of the present stage, under its tool */
void gpu_check_steps(gpu_check *check); /* steps.c: those of the present stage */
void gpu_check_agree(gpu_check *check); /* agree.c */

/* context.c: starts a process that holds a context open, so that later processes start faster; it ends with this
 * one. */
void gpu_check_hold(gpu_check *check);
void gpu_check_let_go(void);

/* --- parts: each in its own process, which opens the GPU ------------------------------------------------------------ */

ls_status gpu_check_part_gpu(gpu_check *check);   /* look.c */
ls_status gpu_check_part_start(gpu_check *check); /* look.c */
ls_status gpu_check_part_hold(gpu_check *check);  /* context.c */
ls_status gpu_check_part_peaks(gpu_check *check); /* peaks.c */
ls_status gpu_check_part_rates(gpu_check *check); /* rates.c: every operation of ops.def on large arrays */

/* look.c: opens the GPU. */
ls_status gpu_check_open(const gpu_check *check, bool tf32, ls_device **device);
/* peaks.c: the plug-in's table; NULL (reported) without one. */
const struct ls_cuda_plugin *gpu_check_plugin(void);

/* operations.c: fills ops[] with operations on memory of `device` of about `count` floats each; returns how many (at
 * most GPU_CHECK_RATES_MAX), 0 after an error. names[i] are their names. The memory is `arena`'s, freed by
 * gpu_check_free_operations. */
enum { GPU_CHECK_RATES_MAX = 64 };
typedef struct gpu_check_arena {
    ls_device *device;
    void *blocks[64];
    int count;
    bool failed;
} gpu_check_arena;
int gpu_check_make_operations(gpu_check_arena *arena, ls_device *device, size_t count, struct ls_op *ops,
                              char (*names)[GPU_CHECK_TEXT]);
void gpu_check_free_operations(gpu_check_arena *arena);

/* values.c: fills memory of a device with numbers of magnitude 0.5 to 1 and random sign: zeros would draw less power,
 * and run faster, than training data. dtype: fp32, fp16 or bf16. */
ls_status gpu_check_fill(ls_device *device, void *memory, size_t count, ls_dtype dtype);

/* timing.c: the median over GPU_CHECK_GROUPS groups of the time of one call, in microseconds; a group lasts at least 50
 * ms, with `quick` one call. */
typedef ls_status (*gpu_check_call)(ls_stream *stream, const void *argument);
ls_status gpu_check_time(ls_stream *stream, gpu_check_call call, const void *argument, bool quick, double *us);

/* --- runs.c ------------------------------------------------------------------------------------------------------- */

/* One run of a training program; `arguments` ends with NULL. The results are the summary's numbers, or `why` if it
 * failed. */
typedef struct gpu_check_training {
    double step_ms, samples_per_s, final_loss, loader_share, peak_bytes; /* peak_bytes: the greatest of all devices */
    char weights[20];
    gpu_check_end end;
    double seconds;
    char why[GPU_CHECK_TEXT];
} gpu_check_training;
void gpu_check_train(gpu_check *check, gpu_check_training *run, const char *program, const char *const *arguments);

/* A list of `devices` GPUs: "0,1,2" if gpu < 0, or, for gpu = 2, "2,2,2". */
void gpu_check_list_ids(char *text, size_t capacity, int devices, int gpu);

/* --- summary.c, reference.c ------------------------------------------------------------------------------------------ */

/* One screen, answers first. Returns how many lines are broken and, in *held, how many held. */
int gpu_check_print_summary(const cJSON *lines, int *held);
ls_status gpu_check_write_reference(const cJSON *lines, const char *path);

#endif
