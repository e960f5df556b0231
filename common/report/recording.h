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
    int64_t first, most; /* the first recorded step; the largest number of recorded steps */
    bool virtual_time;   /* records have CPU time */
    uint64_t run;        /* ls_trace_about.run */
    /* so far */
    bool runs;
    int64_t steps;
    double *step_ms; /* room for `most`; NULL: steps are not timed separately */
    double tasks;    /* of all ranks, in the written trace; 0: no trace was written */
} ls_recording;

/* Checks that the folder of --trace exists or can be created, and has no foreign file with the name of a trace's file;
 * changes nothing. LS_ERR_IO, LS_ERR_INVALID, with one line. All ranks write to it, so ranks on several machines must
 * share it. */
ls_status ls_recording_check(const ls_train_options *options);

/* For a run of `total_steps` steps (a huge number: unknown), of which `done` are already done. Rank 0 creates the
 * folder. `times` is borrowed until close. */
ls_status ls_recording_open(ls_recording *recording, const ls_train_options *options, ls_parallel *parallel,
                            ls_step_times *times, int64_t done, int64_t total_steps);

/* Call before a step and before its time starts, with p->step that of the step. The first recorded step waits for the
 * devices. `has_batch`: the step is known to have a batch, and ls_recording_has_batch need not be called. */
ls_status ls_recording_begin_step(ls_recording *recording, bool has_batch);

/* Call after a step of this time, with p->step not incremented yet. The last recorded step waits for the devices. */
ls_status ls_recording_end_step(ls_recording *recording, double step_ms);

/* Marks the beginning of the step itself, once it is known to have a batch. (Without --join: at
 * ls_recording_begin_step.) */
void ls_recording_has_batch(const ls_recording *recording);

/* Cancels the step that was about to begin, as there was no batch. */
void ls_recording_no_step(const ls_recording *recording);

/* Call after the run, with the devices idle: writes the trace, replacing an earlier one in the folder. `run_median_ms`:
 * the median of the run's timed steps, 0 if there are none. */
ls_status ls_recording_finish(ls_recording *recording, double run_median_ms);

/* Prints rank 0's line on stdout about the written trace, unless the run is quiet. */
void ls_recording_tell(const ls_recording *recording);

/* Drops all records. The recording may be zero-filled. */
void ls_recording_close(ls_recording *recording);

#endif
