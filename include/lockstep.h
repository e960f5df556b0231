/* lockstep: training with data parallelism, for C and C++ programs.
 *
 * A run is one training: a mode, options as the programs dp_train and ddp_train take them, samples from memory or from
 * files, and a result.
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
 * Statuses are those with which the programs exit: 0 done, 1 failed, 2 wrong usage, 3 a peer failed or timed out. After a
 * failure ls_run_error says why in one line. The library neither prints nor exits. (It ignores SIGPIPE and SIGXFSZ, whose
 * writes then fail.)
 *
 * Threads: one run at a time in a process; a run is used by one thread at a time.
 * ABI: opaque types and structs that only grow at their end, within a major version; the shared library exports the names
 * below as LOCKSTEP_1. Others (LOCKSTEP_PRIVATE) are for its own plug-ins. */
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

/* DP: one process, a thread for each device (--devices N). DDP: a process for each device. Under ddprun, torchrun, mpirun or
 * srun the calling process is one rank. Otherwise --spawn N lets ls_run_train start N ranks; without it there is one. */
typedef enum ls_mode_kind { LS_MODE_DP, LS_MODE_DDP } ls_mode_kind;

/* Reads the options: strings as on the command line of dp_train or ddp_train, ended by NULL; both are copied. On failure
 * *out is a run that has only an error, or NULL without memory. */
int ls_run_create(ls_run **out, ls_mode_kind mode, const char *const *options);

/* NULL is a no-op. */
void ls_run_destroy(ls_run *run);

/* Why the last call failed; "" if it did not. Valid until the next call. */
const char *ls_run_error(const ls_run *run);

/* Samples in memory: inputs count x channels x height x width floats, as the network is to see them; and either labels, each
 * 0 .. classes - 1, or targets, count x target_count floats. */
typedef struct ls_samples {
    size_t count;
    int channels, height, width; /* of vectors: their length, 1, 1 */
    const float *inputs;
    int classes; /* 0: there are targets instead */
    const int64_t *labels;
    size_t target_count; /* 0 where there are labels */
    const float *targets;
} ls_samples;

/* Takes the place of --data. The arrays are borrowed until the run is destroyed; every rank passes the same. `test` may be
 * NULL: nothing is evaluated. */
int ls_run_set_samples(ls_run *run, const ls_samples *train, const ls_samples *test);

/* A network as a text, in the format of `--model FILE.net` (docs/networks.md). Takes the place of --model. */
int ls_run_set_network(ls_run *run, const char *text);

typedef struct ls_run_step {
    int64_t step, epoch; /* from 0 on */
    double loss;         /* of the whole batch */
    double step_ms;      /* measured */
} ls_run_step;

/* Called for each step, in order, by rank 0; sometimes many steps late, since losses stay on the devices meanwhile. Of
 * ranks that ls_run_train starts, rank 0 is a fork of this process: what the callback changes in memory is not seen here. */
void ls_run_on_step(ls_run *run, void (*call)(void *context, const ls_run_step *step), void *context);

/* Called with each line that the programs would write to stderr: errors, warnings and notes. */
void ls_run_on_message(ls_run *run, void (*call)(void *context, const char *line), void *context);

typedef struct ls_run_result {
    int64_t steps, epochs;
    double final_loss, test_accuracy; /* accuracy: 0 .. 1; NaN if nothing was evaluated */
    double step_ms, samples_per_s;    /* measured, medians without the first steps; 0: too few steps */
    uint64_t weights_hash;            /* equal bits, equal hash: as the programs print it */
} ls_run_result;

/* Trains. `result` may be NULL. Under a launcher all ranks get the result's counts and hash; loss and accuracy too. With
 * --spawn the process must have no other threads that hold locks, and no GPU in use: ranks are forks of it. */
int ls_run_train(ls_run *run, ls_run_result *result);

/* The trained model's parameters and buffers after ls_run_train, on rank 0 and in a process that has started ranks; elsewhere
 * the count is 0. Names are PyTorch's. */
typedef struct ls_run_tensor {
    const char *name;
    int dims;
    size_t shape[8];
    size_t count;        /* of elements */
    const float *values; /* of parameters and statistics; NULL: integers are in `integers` */
    const int64_t *integers;
} ls_run_tensor;

size_t ls_run_tensor_count(const ls_run *run);
/* Valid until the next ls_run_train or the run's end. False: there is no such tensor. */
int ls_run_get_tensor(const ls_run *run, size_t index, ls_run_tensor *tensor);

#ifdef __cplusplus
}
#endif

#endif
