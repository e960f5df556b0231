/* ls_recording: --trace. Switches the probes on for some steps of a run, and makes a trace of what they wrote down.
 *
 * Recording begins with the first step that the step times count (with the run's first, if it has no more steps than
 * the warm-up) and ends --trace-steps later, or with the run. In between nothing changes but that the probes write;
 * what lies between two steps is recorded as outside of a step. With --virtual-time, and where devices share cores,
 * times are the threads' CPU time (base/probe.h). At the end of the run every rank writes its file, and rank 0 puts
 * them together.
 *
 * All calls are collective where there are ranks: every rank makes them at the same steps. */
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

/* Whether the folder that --trace names is there or can be made, and holds nobody else's files under a trace's names;
 * leaves everything as it was. LS_ERR_IO, LS_ERR_INVALID, with one line. All ranks write to it: where they are on
 * several machines, it must be one folder of all of them. */
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

/* The step that was about to begin has a batch: from here on it is that step. (Without --join it is from its begin.) */
void ls_recording_has_batch(const ls_recording *recording);

/* There was no batch for the step that was about to begin. */
void ls_recording_no_step(const ls_recording *recording);

/* After the run, the devices idle: writes the trace, in place of an earlier one in the folder. `run_median_ms`: of the
 * run's timed steps, 0 if there are none. */
ls_status ls_recording_finish(ls_recording *recording, double run_median_ms);

/* Rank 0's line on stdout about the trace that was written, unless the run is quiet. */
void ls_recording_tell(const ls_recording *recording);

/* Forgets what was recorded. A recording that is all zero is fine. */
void ls_recording_close(ls_recording *recording);

#endif
