/* The result of a run, and the measured time of its steps. */
#ifndef LS_REPORT_RESULT_H
#define LS_REPORT_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Steps at the start of a run that the step time excludes, while caches, pages and buckets settle. */
#define LS_WARMUP_STEPS 10

/* The result of a run: the loop fills it in, programs and the summary print it. */
typedef struct ls_train_result {
    int64_t steps, epochs;
    /* measured step times, without warm-up, in milliseconds; all 0 if there were too few steps */
    int64_t timed_steps;
    int64_t steps_per_time; /* steps that each time covers: 1, or a block's (step_times.h) */
    int64_t clocked_steps;  /* steps that the phases' times and bytes cover */
    double median_step_ms, p10_step_ms, p90_step_ms;
    double samples_per_s; /* batch_size / median */
    double final_loss;    /* of the last step's global batch */
    double accuracy;      /* on the test samples, of texts on all their tokens; NaN if not evaluated */
    uint64_t parameter_hash;
    bool strided; /* DDP with strided shards, which divide batches differently than DataParallel */
    /* of texts */
    size_t tokens;    /* per sample; 0: the run is on images, and the rest is not set */
    double test_loss; /* mean over the test set's tokens, whose exponential is the perplexity; NaN if not evaluated */
    int64_t answers_right, answers; /* to held-out sums; `answers` 0: there are none, or not evaluated */
    const uint8_t
        *text; /* with --generate: `tokens` bytes of the test set, and those that follow; while ls_train runs */
    /* of meta devices, which compute nothing: NaN, and the counts and the hash 0 */
} ls_train_result;

#endif
