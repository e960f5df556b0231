/* pictures: a replayed timeline, as a trace and as a Gantt chart. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/trace/chrome.h"
#include "labs/replay/replay/replay.h"

enum { PLACES = 4000 }; /* along the axis of a Gantt chart that can be distinguished */

ls_status replay_write_timeline(replay_run *run, const char *path) {
    for (int i = 0; i < run->timeline->task_count; i++)
        ls_trace_set_times(run->trace, i, run->timeline->ready_us[i], run->timeline->start_us[i],
                           run->timeline->end_us[i]);
    return ls_trace_write_file(run->trace, path);
}

/* --- Gantt ------------------------------------------------------------------------------------------------------- */

ls_status replay_gantt_open(bench_text *gantt) {
    if (!bench_text_open(gantt)) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the Gantt chart");
    fputs("mode,n,device,lane,phase,step,shown_step,tasks,start_ms,end_ms,on\n", gantt->file);
    return LS_OK;
}

struct window {
    int step;
    double begin_us, end_us;
};

/* The end of the last task of a step and of all earlier ones; 0 for step -1. */
static double end_of(const replay_run *run, int step) {
    double end_us = 0;
    for (int i = 0; i < run->timeline->task_count; i++) {
        int of = ls_trace_task(run->trace, i)->step;
        if (of >= 0 && of <= step) end_us = fmax(end_us, run->timeline->end_us[i]);
    }
    return end_us;
}

/* A step as step times count it, from the end of the previous one to its own; one in the middle, since the picture is
 * to include work for the next steps. */
static struct window shown_step(const replay_run *run) {
    int last = 0;
    for (int i = 0; i < run->timeline->task_count; i++) {
        int step = ls_trace_task(run->trace, i)->step;
        if (step > last) last = step;
    }
    int shown = last >= 2 ? last / 2 : last;
    return (struct window){shown, end_of(run, shown - 1), end_of(run, shown)};
}

/* Tasks of a lane, a step and a phase that follow one another without a visible gap. */
struct bar {
    const char *phase;
    int step;
    int tasks; /* 0: no bar yet */
    double start_us, end_us;
};

static void put_bar(FILE *file, const struct bar *bar, int shown_step, const struct ls_lane *lane,
                    const replay_row *row, const char *on) {
    if (bar->tasks == 0) return;
    fprintf(file, "%s,%d,%d,%s,%s,%d,%d,%d", replay_mode_name(row->mode), row->n, lane->device,
            ls_lane_kind_name(lane->kind), bar->phase, bar->step, shown_step, bar->tasks);
    bench_put_number(file, bar->start_us / 1e3);
    bench_put_number(file, bar->end_us / 1e3);
    fputc(',', file);
    bench_put_text(file, on);
    fputc('\n', file);
}

static void put_lane(FILE *file, int index, struct window w, const replay_run *run, const replay_row *row,
                     const char *on) {
    int count;
    const int *tasks = ls_trace_lane_tasks(run->trace, index, &count);
    const struct ls_lane *lane = ls_trace_lane(run->trace, index);
    double least_gap_us = (w.end_us - w.begin_us) / PLACES;
    struct bar bar = {.tasks = 0};
    for (int i = 0; i < count; i++) {
        const struct ls_task *task = ls_trace_task(run->trace, tasks[i]);
        const char *phase = *task->phase ? task->phase : "other";
        double start_us = fmax(run->timeline->start_us[tasks[i]], w.begin_us) - w.begin_us;
        double end_us = fmin(run->timeline->end_us[tasks[i]], w.end_us) - w.begin_us;
        if (!(end_us > start_us)) continue;
        bool goes_on = bar.tasks > 0 && strcmp(phase, bar.phase) == 0 && task->step == bar.step &&
                       start_us - bar.end_us < least_gap_us;
        if (!goes_on) {
            put_bar(file, &bar, w.step, lane, row, on);
            bar = (struct bar){.phase = phase, .step = task->step, .start_us = start_us};
        }
        bar.end_us = end_us;
        bar.tasks++;
    }
    put_bar(file, &bar, w.step, lane, row, on);
}

void replay_gantt_add(bench_text *gantt, const replay_run *run, const replay_row *row, const char *on) {
    struct window w = shown_step(run);
    for (int lane = 0; lane < ls_trace_lane_count(run->trace); lane++) put_lane(gantt->file, lane, w, run, row, on);
}

ls_status replay_gantt_close(bench_text *gantt, const char *path) {
    char *text = gantt->file ? bench_text_close(gantt) : NULL;
    ls_status status = LS_OK;
    if (path)
        status =
            text ? ls_file_write_text(path, text) : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %s", path);
    free(text);
    return status;
}
