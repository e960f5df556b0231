/* The summary of a run as JSON. Private to common/report. */
#ifndef LS_REPORT_SUMMARY_H
#define LS_REPORT_SUMMARY_H

#include "common/report/device_table.h"
#include "common/report/result.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

/* {"summary":{...}} on one line: the configuration of the run, its measurements, and an entry of "device_table" for
 * each of `rows` (device_count of them). NULL: no memory; free() it. */
char *ls_summary_text(const ls_train_options *options, const ls_parallel *parallel, const ls_train_result *result,
                      const struct ls_device_row *rows);

/* Reads the loss scaler's state, host-blocking; false: there is no loss scaling. */
bool ls_summary_scaler(const ls_parallel *parallel, struct ls_scaler_state *state);

/* The largest share of time that any device's thread waited for the loader. */
double ls_summary_loader_share(const struct ls_device_row *rows, int count);

#endif
