/* Deferred metrics: losses stay on the device, times and memory figures on each rank, until all ranks read them
 * together (a read). Used by the loop. */
#ifndef LS_REPORT_DEFERRED_H
#define LS_REPORT_DEFERRED_H

#include "common/report/device_table.h"
#include "common/report/live_view.h"
#include "common/report/report.h"

typedef struct ls_deferred {
    /* constant after open */
    ls_parallel *parallel;
    ls_report *report;   /* rank 0's; NULL: another rank, or nothing to report to */
    int64_t total_steps; /* 0: not known */
    bool wants_view;     /* this rank's stderr and options ask for the live view */
    double *sent, *received;
    struct ls_device_row *rows; /* of all devices, as of the last read */
    /* changes from read to read, on all ranks alike */
    int64_t read_steps; /* steps whose losses have been read */
    int64_t next;       /* the step after which to read again */
    int64_t interval;   /* steps from one read to the next */
    double last_loss, epoch_loss_sum;
    int64_t epoch_losses;
    /* this rank's own */
    double step_ms[LS_LOSS_RING],
        loader_wait_ms[LS_LOSS_RING];             /* of the steps since the last read, at step mod LS_LOSS_RING */
    struct ls_update_state updates[LS_LOSS_RING]; /* for the report, if `has_updates`: the optimizer's update states */
    bool has_updates;
    double samples_per_step;
    double since_us; /* of the last read, or the epoch's begin */
    ls_live_view view;
} ls_deferred;

/* `report` may be NULL; it is borrowed. `total_steps` 0: not known. On failure there is nothing to close. */
ls_status ls_deferred_open(ls_deferred *deferred, ls_parallel *parallel, const ls_train_options *options,
                           ls_report *report, int64_t total_steps);

/* Resets the sums and times of an epoch. */
void ls_deferred_begin_epoch(ls_deferred *deferred);

/* For checkpoints: the sum and number of the epoch's losses that have been read. ls_deferred_resume_epoch restores
 * them. */
void ls_deferred_epoch_losses(const ls_deferred *deferred, double *sum, int64_t *losses);
void ls_deferred_resume_epoch(ls_deferred *deferred, double sum, int64_t losses);

/* Call after step p->step (not counted yet), with its times. */
void ls_deferred_note(ls_deferred *deferred, double step_ms, double loader_wait_ms);

/* Whether ls_deferred_read is due; the same on all ranks after the same step. After the first step, then about five
 * times a second but no more often than every 64 steps, or about twice a second where rank 0 shows the live view; and
 * always when the ring of losses is full. */
bool ls_deferred_is_due(const ls_deferred *deferred);

/* Reads the losses of all steps since the last read, passes them to the report, and refreshes rows and view. Collective
 * over ranks, host-blocking. LS_ERR_DIVERGED: a loss is not finite (those before it have been reported). */
ls_status ls_deferred_read(ls_deferred *deferred);

/* After a failure, in a run of one process: reports the steps whose losses can still be read. */
void ls_deferred_salvage(ls_deferred *deferred);

/* The mean over the epoch's steps; NaN if there is none. */
double ls_deferred_epoch_loss(const ls_deferred *deferred);

/* May be called on a zero-filled struct. Does not wipe the view (ls_live_view_end). */
void ls_deferred_close(ls_deferred *deferred);

#endif
