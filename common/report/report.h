/* The report of a run: lines on stdout, and the files of --metrics, --summary and --dump-losses. Used by the loop, on
 * rank 0. */
#ifndef LS_REPORT_REPORT_H
#define LS_REPORT_REPORT_H

#include "common/report/device_table.h"
#include "common/report/result.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

typedef struct ls_report ls_report;

/* Checks that the files named by the options can be written and are distinct; changes none of them. LS_ERR_IO or
 * LS_ERR_USAGE, with one line. */
ls_status ls_report_check(const ls_train_options *options);

/* Opens the files that the options name; a file that cannot be written is an error before training begins. A run that
 * resumes after `steps` steps, the last with the loss `last_loss`, keeps their lines of --metrics and --dump-losses.
 * LS_REPORT_SAME_RUN: an elastic run continues with other ranks; all lines are kept, and nothing is printed again. */
#define LS_REPORT_SAME_RUN (-1)
ls_status ls_report_open(ls_report **out, const ls_train_options *options, const ls_parallel *parallel, int64_t steps,
                         double last_loss);

/* One step, as --metrics and --dump-losses have it. */
struct ls_report_line {
    int64_t step, epoch;
    double loss;                    /* global, finite */
    double step_ms, loader_wait_ms; /* its time, and this rank's wait for its loader within it */
    /* the optimizer's record of it: learning rate, norm, loss scale, whether it was skipped; NULL: none */
    const struct ls_update_state *update;
};
void ls_report_step(ls_report *report, const struct ls_report_line *line);

/* Call after the lines of some steps: flushes them to the system, so that a kill loses none of them. The first failure
 * is reported, and becomes the status of ls_report_close. */
void ls_report_flush(ls_report *report);

/* `result`: the evaluation on the test samples. */
void ls_report_epoch(ls_report *report, int64_t epoch, double mean_loss, const ls_train_result *result, double seconds);

/* Writes the summary, prints the result and, if a summary or metrics were requested, the table of the devices; closes
 * everything. `rows`: one for each device of all ranks. LS_ERR_IO if anything could not be written, except standard
 * output (common/base/results.h); `result` NULL: the run failed, only close. NULL is a no-op. */
ls_status ls_report_close(ls_report *report, const ls_parallel *parallel, const ls_train_result *result,
                          const struct ls_device_row *rows);

#endif
