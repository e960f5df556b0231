/* lockstep: training with data parallelism, for C and C++ programs.
 *
 * A run is one training: a mode, the options of the program dp_train or ddp_train, samples from memory or from files,
 * and a result.
 *
 *     const char *options[] = {"--model", "mlp:2,32,3", "--devices", "2", "--epochs", "20", NULL};
 *     ls_run *run;
 *     ls_run_result result;
 *     int status = ls_run_create(&run, LS_MODE_DP, options);
 *     if (status == 0) status = ls_run_set_samples(run, &train, &test);
 *     if (status == 0) status = ls_run_train(run, &result);
 *     if (status != 0) fprintf(stderr, "%s\n", ls_run_error(run));
 *     ls_run_destroy(run);
 *
 * Functions return the exit statuses of the programs: 0 done, 1 failed, 2 wrong usage, 3 a peer failed or timed out.
 * After a failure ls_run_error says why in one line. The library neither prints nor exits. (It ignores SIGPIPE and
 * SIGXFSZ: a write that would raise one of them fails instead.)
 *
 * Threads: one run at a time in a process; a run is used by one thread at a time.
 * ABI: within a major version, types are opaque or are structs that only grow at their end. The shared library exports
 * the names below as LOCKSTEP_1. Other exports (LOCKSTEP_PRIVATE) are for its own plug-ins. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that runs: "1.0.0". */
const char *ls_version(void);

typedef struct ls_run ls_run;

/* DP: one process, one thread per device (--devices N). DDP: one process per device. Under ddprun, torchrun, mpirun or
 * srun the calling process is one rank. Otherwise --spawn N lets ls_run_train start N ranks; without --spawn there is
 * one. */
typedef enum ls_mode_kind { LS_MODE_DP, LS_MODE_DDP } ls_mode_kind;

/* Parses the options: strings as on the command line of dp_train or ddp_train, ended by NULL. The array and its strings
 * are copied. On failure *out is a run for ls_run_error and ls_run_destroy only, or NULL if memory ran out. */
int ls_run_create(ls_run **out, ls_mode_kind mode, const char *const *options);

/* NULL is a no-op. */
void ls_run_destroy(ls_run *run);

/* Why the last call failed; "" if it did not. Valid until the next call. */
const char *ls_run_error(const ls_run *run);

/* Samples in memory. `inputs` holds count x channels x height x width floats, already normalized. The answers are
 * either labels, each 0 .. classes - 1, or targets, count x target_count floats. */
typedef struct ls_samples {
    size_t count;
    int channels, height, width; /* of a vector: its length, 1, 1 */
    const float *inputs;
    int classes; /* 0: use `targets` */
    const int64_t *labels;
    size_t target_count; /* 0: use `labels` */
    const float *targets;
} ls_samples;

/* Replaces --data. The arrays are borrowed until the run is destroyed. Every rank passes the same samples. `test` may
 * be NULL: nothing is evaluated. */
int ls_run_set_samples(ls_run *run, const ls_samples *train, const ls_samples *test);

/* Sets the network from a text in the format of `--model FILE.net` (docs/networks.md). Replaces --model. */
int ls_run_set_network(ls_run *run, const char *text);

typedef struct ls_run_step {
    int64_t step, epoch; /* from 0 on */
    double loss;         /* of the whole batch */
    double step_ms;      /* measured */
} ls_run_step;

/* Sets a callback that rank 0 calls for each step, in order. Calls may come many steps late, since losses stay on the
 * devices until they are needed. If ls_run_train starts the ranks, rank 0 is a fork of this process: memory that the
 * callback writes is not visible here. */
void ls_run_on_step(ls_run *run, void (*call)(void *context, const ls_run_step *step), void *context);

/* Sets a callback for each line that the programs would write to stderr: errors, warnings and notes. */
void ls_run_on_message(ls_run *run, void (*call)(void *context, const char *line), void *context);

typedef struct ls_run_result {
    int64_t steps, epochs;
    double final_loss, test_accuracy; /* accuracy: 0 .. 1, NaN if nothing was evaluated */
    double step_ms, samples_per_s;    /* measured: medians that leave out the first steps; 0: too few steps */
    uint64_t weights_hash;            /* of all weights, as the programs print it: equal bits have equal hashes */
} ls_run_result;

/* Trains. `result` may be NULL. Under a launcher all ranks get the result's counts, hash, loss and accuracy. With
 * --spawn, ranks are forks of this process, so no other thread of it may hold a lock and it must not have used a
 * GPU. */
int ls_run_train(ls_run *run, ls_run_result *result);

/* A parameter or buffer of the trained model, after ls_run_train. Rank 0 has all of them, and so has a process that
 * started ranks; on other ranks the count is 0. Names are PyTorch's. */
typedef struct ls_run_tensor {
    const char *name;
    int dims;
    size_t shape[8];
    size_t count;        /* of elements */
    const float *values; /* NULL: the elements are integers, in `integers` */
    const int64_t *integers;
} ls_run_tensor;

size_t ls_run_tensor_count(const ls_run *run);
/* Fills *tensor, whose pointers are valid until the next ls_run_train or ls_run_destroy. Returns 1, or 0 if `index` is
 * out of range. */
int ls_run_get_tensor(const ls_run *run, size_t index, ls_run_tensor *tensor);

#ifdef __cplusplus
}
#endif

#endif
