/* pictures: a replayed timeline for looking at. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/trace/chrome.h"
#include "labs/bench_shared/output.h"
#include "labs/replay/replay.h"

ls_status replay_write_timeline(replay_run *run, const char *path) {
    for (int i = 0; i < run->timeline->task_count; i++)
        ls_trace_set_times(run->trace, i, run->timeline->ready_us[i], run->timeline->start_us[i],
                           run->timeline->end_us[i]);
    return ls_trace_write_file(run->trace, path);
}

/* --- Gantt
 * --------------------------------------------------------------------------------------------------------- */

ls_status replay_gantt_open(replay_gantt *gantt) {
    *gantt = (replay_gantt){.text = NULL};
    gantt->file = open_memstream(&gantt->text, &gantt->nbytes);
    if (!gantt->file) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the Gantt chart");
    fputs("mode,n,device,lane,kind,phase,name,start_ms,end_ms,on\n", gantt->file);
    return LS_OK;
}

struct window {
    double begin_us, end_us;
};

/* When the last task of a step ends, or of all steps before it; 0 for step -1. */
static double end_of(const replay_run *run, int step) {
    double end_us = 0;
    for (int i = 0; i < run->timeline->task_count; i++) {
        int of = ls_trace_task(run->trace, i)->step;
        if (of >= 0 && of <= step) end_us = fmax(end_us, run->timeline->end_us[i]);
    }
    return end_us;
}

/* A step as step times count it, from the end of the one before to its own; one in the middle, since what goes on in
 * it for the next steps belongs to the picture. */
static struct window shown_step(const replay_run *run) {
    int last = 0;
    for (int i = 0; i < run->timeline->task_count; i++) {
        int step = ls_trace_task(run->trace, i)->step;
        if (step > last) last = step;
    }
    int shown = last >= 2 ? last / 2 : last;
    return (struct window){end_of(run, shown - 1), end_of(run, shown)};
}

void replay_gantt_add(replay_gantt *gantt, const replay_run *run, const replay_row *row, const char *on) {
    struct window w = shown_step(run);
    for (int i = 0; i < run->timeline->task_count; i++) {
        const struct ls_task *task = ls_trace_task(run->trace, i);
        const struct ls_lane *lane = ls_trace_lane(run->trace, task->lane);
        double start_us = fmax(run->timeline->start_us[i], w.begin_us),
               end_us = fmin(run->timeline->end_us[i], w.end_us);
        if (!(end_us > start_us)) continue;
        fprintf(gantt->file, "%s,%d,%d,%s,%s,%s,", replay_mode_name(row->mode), row->n, lane->device,
                ls_lane_kind_name(lane->kind), ls_task_kind_name(task->kind), *task->phase ? task->phase : "other");
        bench_put_text(gantt->file, task->name);
        bench_put_number(gantt->file, (start_us - w.begin_us) / 1e3);
        bench_put_number(gantt->file, (end_us - w.begin_us) / 1e3);
        fputc(',', gantt->file);
        bench_put_text(gantt->file, on);
        fputc('\n', gantt->file);
    }
}

ls_status replay_gantt_close(replay_gantt *gantt, const char *path) {
    bool whole = gantt->file && !ferror(gantt->file);
    if (gantt->file && fclose(gantt->file) != 0) whole = false;
    ls_status status = LS_OK;
    if (path)
        status = whole ? bench_write_path(path, gantt->text) : ls_fail(LS_ERR_NO_MEMORY, "no memory for %s", path);
    free(gantt->text);
    *gantt = (replay_gantt){.text = NULL};
    return status;
}
