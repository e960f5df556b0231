/* What the parts of bench_gpt share: how fast a small GPT trains, compared with its matrix multiplies alone, PyTorch,
 * two devices, and attention with its scores in memory.
 *
 *     settings.c     command line -> gpt_settings         rows.c     the rows, and their figures from runs
 *     training.c     programs as child processes -> runs  answers.c  rows -> the first lines
 *     operations.c   operations of this process -> runs   files.c    rows -> tables, text, CSV and JSON
 *
 * Every row is measured once per round, one after the other, so that all run under the same load, and a row's speed is
 * compared with that of its base row (gpt_base) within each round. */
#ifndef LABS_BENCH_GPT_BENCH_GPT_H
#define LABS_BENCH_GPT_BENCH_GPT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/options.h"
#include "common/base/status.h"
#include "common/device/device.h"
#include "common/nn/gpt.h"
#include "labs/bench/shared/columns.h"
#include "labs/bench/shared/machine.h"
#include "labs/bench/shared/output.h"

enum {
    GPT_CONTEXTS_MAX = 8,
    GPT_ROUNDS_MAX = 99,
    GPT_STEP_ROWS = 6,
    GPT_ROWS_MAX = GPT_STEP_ROWS + 2 * GPT_CONTEXTS_MAX,
    GPT_HASH_CAPACITY = 20,
    GPT_VERSION_CAPACITY = 32,
    GPT_DEVICES = 2,            /* of DP and DDP */
    GPT_ATTENTION_SEQUENCES = 4 /* of the rows of attention, for every context */
};

/* --- settings ----------------------------------------------------------------------------------------------------- */

typedef struct gpt_settings {
    const char *model; /* as given */
    struct ls_gpt_sizes sizes;
    int batch, steps, rounds, cores;
    ls_int_list contexts; /* ascending, each once */
    const char *python;   /* NULL: no comparison with PyTorch */
    double timeout_s;     /* of a run */
    const char *folder;
    bool quiet;
} gpt_settings;

/* *help: the usage page was printed, and nothing else is to be done. LS_ERR_USAGE after one line. */
ls_status gpt_parse(gpt_settings *settings, int argc, char **argv, bool *help);

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* The first six are the rows of a step, each once; a context has two rows of attention. */
typedef enum gpt_kind {
    GPT_SINGLE,   /* a training step on one core */
    GPT_PRODUCTS, /* the step's matrix multiplies alone, at the rate of a large one */
    GPT_EAGER,
    GPT_COMPILED, /* PyTorch's step */
    GPT_DP,
    GPT_DDP,    /* on GPT_DEVICES */
    GPT_SCORES, /* attention forward and backward, with the scores in memory */
    GPT_TILES
} gpt_kind;

typedef struct gpt_row {
    gpt_kind kind;
    int n, context, batch; /* devices; tokens of a sequence; sequences of a step over all devices */
    bool oversubscribed;   /* with more devices than cores */
    bool failed, missing;  /* missing: this machine has no PyTorch, or PyTorch cannot compile here */
    int run_count;
    double run_ms[GPT_ROUNDS_MAX];
    char weights[GPT_HASH_CAPACITY]; /* hash of the trained weights; "": none */
    bool repeats;                    /* all runs ended with the same weights */
    double activation_bytes;         /* peak, of the whole network in a step */
    double kept_bytes;               /* attention: kept for backward in addition to its input and output; else NAN */
    /* derived by gpt_assemble: median, least and greatest; NAN: no run */
    double ms, ms_min, ms_max;
    double speed, speed_min, speed_max; /* relative to the row it is compared with, within a round */
} gpt_row;

typedef struct gpt_results {
    const bench_machine *machine;
    const gpt_settings *settings;
    ls_device *device;                        /* that operations run on */
    char pytorch[GPT_VERSION_CAPACITY];       /* its version; "": none */
    double rates[GPT_ROUNDS_MAX], rate;       /* of a large matrix multiply, flops per second; their median */
    double shapes_ms[GPT_ROUNDS_MAX], own_ms; /* the step's matrix multiplies in their own shapes; the median */
    int row_count;
    gpt_row rows[GPT_ROWS_MAX]; /* by kind, then context */
} gpt_results;

void gpt_plan_rows(gpt_results *results);
const gpt_row *gpt_find(const gpt_results *results, gpt_kind kind, int context); /* context 0: any; NULL: none */
const char *gpt_name(gpt_kind kind);

/* The row that this one is compared with: one core's step, or attention with its scores in memory. */
const gpt_row *gpt_base(const gpt_results *results, const gpt_row *row);

/* Computes the derived figures. */
void gpt_assemble(gpt_results *results);

/* Whether DP and DDP both ran, and whether they ended with the same weights in every run. */
bool gpt_have_weights(const gpt_results *results);
bool gpt_same_weights(const gpt_results *results);

/* The floating-point operations of a step's matrix multiplies, forward and both gradients, without attention's. */
double gpt_product_flops(const gpt_settings *settings);

/* --- runs: each adds one to the row -------------------------------------------------------------------------------- */

/* dp_train or ddp_train. Fails as bench_child_run does, or with LS_ERR_FORMAT. */
ls_status gpt_train(gpt_row *row, gpt_results *results);

/* Reads the summary that they write. LS_ERR_FORMAT if it is another run's, or not a summary. */
ls_status gpt_read_summary(gpt_row *row, const char *json);

/* PyTorch's step, by labs/bench/peers/bench_pytorch_gpt.py; sets `missing` if there is no PyTorch. Fails as gpt_train
 * does. */
ls_status gpt_run_pytorch(gpt_row *row, gpt_results *results);
ls_status gpt_read_pytorch(gpt_row *row, gpt_results *results, const char *json);

/* Opens a device for the two functions below: no thread, no pinning. */
ls_status gpt_open_device(gpt_results *results);

ls_status gpt_multiply(gpt_row *row, gpt_results *results);
ls_status gpt_attend(gpt_row *row, gpt_results *results);

/* --- output ------------------------------------------------------------------------------------------------------- */

#define GPT_REPORT_FILE "gpt.txt"

void gpt_put_answers(FILE *file, const gpt_results *results);
ls_status gpt_report(const gpt_results *results);
ls_status gpt_prepare_files(const char *folder);
ls_status gpt_write_files(const gpt_results *results, const char *folder);

#endif
