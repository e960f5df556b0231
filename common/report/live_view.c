#include "common/report/live_view.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"

bool ls_live_view_wanted(const ls_train_options *options) {
    return options->metrics && ls_screen_begin(options->quiet).shown;
}

void ls_live_view_begin(ls_live_view *view, bool wanted, int device_count) {
    *view = (ls_live_view){.screen = ls_screen_begin(!wanted), .count = device_count};
    view->earlier = view->screen.shown ? calloc((size_t)device_count, sizeof *view->earlier) : NULL;
    view->screen.shown = view->earlier != NULL;
}

/* The frame's text, malloc'd; NULL: out of memory. */
static char *make_frame(const struct ls_live_step *step, const struct ls_device_row *rows, int count) {
    char *text = NULL;
    size_t nbytes = 0;
    FILE *file = open_memstream(&text, &nbytes);
    if (!file) return NULL;
    fprintf(file, "step %lld", (long long)step->step);
    if (step->total_steps > 0) fprintf(file, "/%lld", (long long)step->total_steps);
    fprintf(file, "  epoch %lld  loss %.4f  %.3g ms a step  %.0f samples/s\n", (long long)step->epoch + 1, step->loss,
            step->step_ms, step->samples_per_s);
    int heads = ls_device_rows_run_behind(rows, count) ? 3 : 2, room = ls_screen_rows() - heads; /* lines below them */
    int shown = count <= room ? count : room > 2 ? room - 1 : 1;
    ls_status status = ls_device_table_print(file, rows, count, shown);
    if (fclose(file) == 0 && status == LS_OK) return text;
    free(text);
    return NULL;
}

void ls_live_view_show(ls_live_view *view, const struct ls_live_step *step, const struct ls_device_row *rows) {
    if (!view->screen.shown || ls_now_us() < view->next_us) return;
    struct ls_device_row *since = calloc((size_t)view->count, sizeof *since);
    if (!since) return;
    for (int i = 0; i < view->count; i++) {
        since[i] = ls_device_row_since(&rows[i], &view->earlier[i]);
        view->earlier[i] = rows[i];
    }
    free(view->frame);
    view->frame = make_frame(step, since, view->count);
    free(since);
    ls_live_view_resume(view);
    view->next_us = ls_now_us() + LS_LIVE_PERIOD_US;
}

/* If stdout is not a terminal, the frame may stay. */
void ls_live_view_hide(ls_live_view *view) {
    if (isatty(STDOUT_FILENO)) ls_screen_wipe(&view->screen);
}

void ls_live_view_resume(ls_live_view *view) {
    if (view->frame) ls_screen_show(&view->screen, view->frame);
}

void ls_live_view_end(ls_live_view *view, bool wipe) {
    if (wipe) ls_screen_wipe(&view->screen);
    free(view->earlier);
    free(view->frame);
    *view = (ls_live_view){0};
}
