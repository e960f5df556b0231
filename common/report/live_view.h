/* The live view of a run with --metrics on a terminal: figures as in nvidia-smi, one line per device. Used by rank
 * 0. */
#ifndef LS_REPORT_LIVE_VIEW_H
#define LS_REPORT_LIVE_VIEW_H

#include "common/base/screen.h"
#include "common/report/device_table.h"
#include "common/seam/options.h"

/* Twice a second. */
#define LS_LIVE_PERIOD_US 5e5

typedef struct ls_live_view {
    ls_screen screen;
    double next_us;                /* when the next frame is due */
    int count;                     /* devices */
    struct ls_device_row *earlier; /* at the last frame; `count` rows */
    char *frame;                   /* the last one, or NULL */
} ls_live_view;

/* The content of a frame's first line. */
struct ls_live_step {
    int64_t step, total_steps; /* total_steps 0: not known */
    int64_t epoch;
    double loss, step_ms, samples_per_s;
};

/* Whether these options, on this process's stderr, ask for a view. */
bool ls_live_view_wanted(const ls_train_options *options);

/* Without memory for the rows there is no view. */
void ls_live_view_begin(ls_live_view *view, bool wanted, int device_count);

/* Shows a frame if one is due; the shares are those since the last frame. */
void ls_live_view_show(ls_live_view *view, const struct ls_live_step *step, const struct ls_device_row *rows);

/* Call around output on stdout, which may be the same terminal: remove the frame and restore it. */
void ls_live_view_hide(ls_live_view *view);
void ls_live_view_resume(ls_live_view *view);

/* Wipes the frame if all went well. After a failure it stays: errors, also of other processes, are below it. */
void ls_live_view_end(ls_live_view *view, bool wipe);

#endif
