/* The training options, the same for dp_train and ddp_train. */
#ifndef LS_SEAM_OPTIONS_H
#define LS_SEAM_OPTIONS_H

#include "common/base/named_files.h"
#include "common/base/options.h"
#include "common/data/batches.h"
#include "common/data/dataset.h"
#include "common/nn/gpt.h"
#include "common/nn/model.h"
#include "common/nn/tensor_parallel.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"

typedef enum ls_train_offload { LS_TRAIN_OFFLOAD_NONE, LS_TRAIN_OFFLOAD_OPTIMIZER } ls_train_offload;

struct ls_report_line; /* common/report/report.h */

/* Replacements of files and output lines, for programs that use the library. */
struct ls_embedding {
    struct ls_memory_samples train, test;                              /* for --data memory:; a count of 0: none */
    void (*on_step)(void *context, const struct ls_report_line *line); /* on rank 0; NULL: no callback */
    void *context;
    int weights_fd; /* an empty file for the trained weights, as of --save-weights; -1: none */
};

#define LS_TRAIN_MODEL_NBYTES 1024 /* a path, and sizes */

typedef struct ls_train_options {
    const struct ls_embedding *embedding; /* NULL: none */
    /* model, devices and data */
    int device_kind; /* ls_train_device_kind (devices.h) */
    /* Not options; for recording steps on meta devices. meta_behind: the host runs ahead of them, as with GPUs; unread:
     * samples are never read, so random ones are not drawn */
    bool meta_behind, unread;
    const char *model, *data;
    /* `model` points here once the data has completed it (ls_train_open_first) */
    char completed_model[LS_TRAIN_MODEL_NBYTES];
    /* of --data, once ls_train_open_first has opened it; channels 0: determined by the model */
    ls_sample_spec sample;
    int normalize;                 /* ls_normalize; < 0: the data's default, set by ls_train_open_first */
    char normalization[200];       /* of the opened data, with its numbers; "": none */
    ls_tensor_options tensor;      /* of a rank with a part of the model; filled in by ddp_train */
    bool show_model, show_pytorch; /* only print the model (ls_train_show_model) */
    const char *init, *save, *save_weights;
    const char *resume, *resume_if_present; /* at most one: the file must exist, or need not exist yet */
    bool save_module_prefix;                /* names in save_weights begin with "module." */
    int64_t save_every;                     /* steps; 0: at the end only */
    /* length and order */
    int64_t epochs, steps; /* steps 0: those of the epochs */
    /* samples of an optimizer step over all devices; --batch-size, 0: not given (after the check: the resulting size);
     * and samples of a micro-batch on each device, 0: not given */
    int64_t batch_size, asked_batch_size, per_device_batch;
    int accumulate;       /* micro-batches of a step */
    int resident_batches; /* batches kept on the devices and used in turn; 0: each step loads its own */
    bool shuffle, set_epoch, drop_last;
    int64_t seed;
    int workers, prefetch;
    bool sync_bn;
    const char *checkpoint_activations; /* "sqrt", or blocks of a segment; NULL: activations are kept */
    /* the optimizer */
    int optimizer;                                /* ls_optimizer_kind */
    double learning_rate, momentum, weight_decay; /* weight_decay < 0: the optimizer's default */
    bool nesterov;
    double clip_norm;          /* 0: none */
    int offload;               /* ls_train_offload */
    int lr_scale, lr_schedule; /* ls_rate_scaling, ls_schedule_kind */
    int64_t warmup_steps, decay_epochs;
    double min_rate, decay_factor;
    /* precision */
    int precision; /* ls_dtype: LS_FP32, LS_FP16 or LS_BF16 */
    double init_scale;
    int growth_interval;
    /* GPUs */
    bool tf32, cuda_graph, pin_memory, debug_launches;
    /* the host */
    double host_lock_us; /* device/host_lock.h; 0: none */
    /* limits */
    double timeout_s;
    size_t device_memory_bytes;
    /* output files */
    const char *metrics, *summary, *dump_losses;
    const char *trace;   /* a folder; NULL: nothing is recorded */
    int64_t trace_steps; /* the largest number of recorded steps */
    bool virtual_time;   /* virtual_time.h */
    bool evaluate, quiet, verbose;
    int64_t generate;   /* tokens; 0: none */
    double temperature; /* 0: always the likeliest token */
} ls_train_options;

/* The defaults that --help shows. */
ls_train_options ls_train_defaults(void);

#define LS_TRAIN_OPTION_ROWS 77

/* Writes the option table's rows, pointing into `options`, to rows[0 ..]; returns their number (at most
 * LS_TRAIN_OPTION_ROWS). A program appends its own. */
size_t ls_train_option_rows(ls_train_options *options, ls_option *rows);

/* Checks that concern several rows, once the number of devices is known: sets batch_size from asked_batch_size or
 * per_device_batch, and weight_decay to the optimizer's default. Call once for each struct, whose defaults it fills
 * in. LS_ERR_USAGE with one line. */
ls_status ls_train_options_check(ls_train_options *options, int device_count);

/* For the main rank, after the check: prints a note for each option that is given but has no effect. */
void ls_train_note_idle(const ls_train_options *options, int device_count);

/* For the main rank: one line of warning if the loaders' workers of this node's `local_ranks` ranks outnumber its
 * cores. There is no warning for a single worker per rank: ranks that outnumber the cores are the user's choice, and
 * the worker sleeps while they train. */
void ls_train_warn_workers(const ls_train_options *options, int local_ranks);

/* Whether batch norm is to be synchronised: --sync-bn, and a model that has batch norm; without batch norm prints a
 * note if `tell`. */
bool ls_train_sync_bn(const ls_train_options *options, const ls_model *model, bool tell);

/* Creates the model to train on `device`, for batches of up to `max_batch` samples, with zero weights. Flags:
 * without memory for parameters, and also forward-only (model.h); with a note if --checkpoint-activations has no
 * effect. */
enum { LS_OPEN_PLACED = 1, LS_OPEN_FORWARD_ONLY = 2, LS_OPEN_TELL = 4 };
ls_status ls_train_open_model(ls_model **out, const ls_train_options *options, ls_device *device, size_t max_batch,
                              int flags);

/* Converts --checkpoint-activations (NULL: not given) to the argument of ls_model_create_segments. LS_ERR_USAGE with
 * one line. */
ls_status ls_parse_every(const char *text, int *every);

/* The checkpoint that --resume or --resume-if-present names; NULL: neither is given. */
const char *ls_train_resume(const ls_train_options *options);

/* Whether that checkpoint is to be read: not if --resume-if-present names a file that does not exist yet. */
bool ls_train_resumes(const ls_train_options *options);

/* The folder that --data names; NULL if it names none. */
const char *ls_train_data_folder(const ls_train_options *options);

/* The files of "--data text:", for ls_text_next_file; NULL if it names none. */
const char *ls_train_text_files(const ls_train_options *options);

/* Whether --data is generated sums, whose answers are marked. */
bool ls_train_is_sums(const ls_train_options *options);

/* Whether --data names a stream, whose length is not known. */
bool ls_train_is_stream(const ls_train_options *options);

ls_optimizer_options ls_train_optimizer(const ls_train_options *options);

/* As on the command line; SGD with momentum is "sgd-momentum". */
const char *ls_train_optimizer_name(const ls_train_options *options);

/* The learning rate's schedule for that many devices; total_steps 0: not known. */
ls_schedule ls_train_schedule(const ls_train_options *options, int device_count, int64_t total_steps);

/* The shape of samples for the model: its input, and labels or target vectors as its loss requires. */
ls_sample_spec ls_train_sample_spec(const ls_model *model);

/* Tokens per sample; 0: not a text. */
size_t ls_train_sample_tokens(const ls_model *model);

/* Call before the model is opened: opens --data if it is in files, stores the samples' shape in options->sample, and
 * completes the options->model of a gpt by the text's vocabulary. Random data depends on the model: both are NULL, and
 * options->sample has no channels; a gpt's vocabulary is then 65 unless the model says another. LS_ERR_USAGE, with one
 * line: a gpt and images, or a vocabulary that is smaller than the data's. On failure both are NULL. */
ls_status ls_train_open_first(ls_train_options *options, ls_dataset **train, ls_dataset **test);

/* Prints the model for --show-model and --show-pytorch. If its sizes come from the data, opens --data. */
ls_status ls_train_show_model(ls_train_options *options);

/* After opening the model: opens --data unless ls_train_open_first has set *train, and checks that the samples fit the
 * model, naming both shapes, and that it has an output for each label. "random:SEED" has 60,000 training and 10,000
 * test samples; "stream:" and a folder are a stream of its training samples. Fails for a text and a model of images.
 * With `unread` no sample is drawn, and both stay NULL.
 * With --no-evaluate a folder's test samples need not be there: *test is then NULL. On failure both are closed, and
 * NULL. */
ls_status ls_train_open_data(const ls_train_options *options, const ls_model *model, ls_dataset **train,
                             ls_dataset **test);

#endif
