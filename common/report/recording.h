/* ls_recording: --trace. Switches the probes on for some steps of a run, and creates a trace from their records.
 *
 * Recording begins with the first step that the step times count (with the run's first, if it has no more steps than
 * the warm-up) and ends --trace-steps later, or with the run. Apart from the probes, the run is not changed; work
 * between two steps is recorded as outside of a step. With --virtual-time, and if devices share cores, times are the
 * threads' CPU time (base/probe.h). At the end of the run every rank writes its file, and rank 0 merges them.
 *
 * All calls are collective over ranks: every rank makes them at the same steps. */
#ifndef LS_REPORT_RECORDING_H
#define LS_REPORT_RECORDING_H

#include "common/report/step_times.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

typedef struct ls_recording {
    /* constant after open; options->trace NULL: nothing is recorded */
    const ls_train_options *options;
    ls_parallel *parallel;
    ls_step_times *times;
    int64_t first, most; /* the step that recording begins with; steps that are recorded at most */
    bool virtual_time;   /* records bear CPU time */
    uint64_t run;        /* ls_trace_about.run */
    /* so far */
    bool runs;
    int64_t steps;
    double *step_ms; /* room for so many; NULL: steps are not timed one by one */
    double tasks;    /* of all ranks, in the trace that was written; 0: none was */
} ls_recording;

/* Checks that the folder of --trace exists or can be created, and has no foreign file with the name of a trace's file;
 * changes nothing. LS_ERR_IO, LS_ERR_INVALID, with one line. All ranks write to it, so ranks on several machines must
 * share it. */
ls_status ls_recording_check(const ls_train_options *options);

/* For a run of `total_steps` steps (any large number: not known), of which `done` have been taken before. Rank 0 makes
 * the folder. `times` is borrowed until close. */
ls_status ls_recording_open(ls_recording *recording, const ls_train_options *options, ls_parallel *parallel,
                            ls_step_times *times, int64_t done, int64_t total_steps);

/* Before a step, and before the clock of its time: p->step is to come. The first recorded one waits for the devices.
 * `has_batch`: a batch will come, and ls_recording_has_batch need not be called. */
ls_status ls_recording_begin_step(ls_recording *recording, bool has_batch);

/* After a step that took so long, p->step not counted yet. The last recorded one waits for the devices. */
ls_status ls_recording_end_step(ls_recording *recording, double step_ms);

/* Marks the begin of the step proper, once it is known that a batch will come. (Without --join: at
 * ls_recording_begin_step.) */
void ls_recording_has_batch(const ls_recording *recording);

/* Cancels the step that was about to begin: there was no batch. */
void ls_recording_no_step(const ls_recording *recording);

/* After the run, the devices idle: writes the trace, in place of an earlier one in the folder. `run_median_ms`: of the
 * run's timed steps, 0 if there are none. */
ls_status ls_recording_finish(ls_recording *recording, double run_median_ms);

/* Rank 0's line on stdout about the trace that was written, unless the run is quiet. */
void ls_recording_tell(const ls_recording *recording);

/* Forgets what was recorded. A recording that is all zero is fine. */
void ls_recording_close(ls_recording *recording);

#endif
