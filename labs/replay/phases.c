/* phases — a device's step by phase, by a sweep over the moments at which something of it begins or ends.
 *   idea  : as in account.c, every task that counts makes two points; between neighbouring points nothing changes, and
 *           the time belongs to the first phase in progress of a kernel, of a copy or collective, of the host, or to
 *           waiting. So the phases add up to the step, and tell more than "communication": which one
 *   cost  : O(t log t) for the t tasks of the device, beside a look at every task */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/replay.h"

enum { KERNEL, COMMUNICATION, HOST, RANKS }; /* what goes before what */

struct point {
    double at_us;
    int rank, phase, more; /* + 1 or - 1 of them are in progress from here on */
};

struct window {
    double begin_us, end_us;
    int steps;
};

const char *replay_phase_name(int phase) {
    return phase == REPLAY_WAITING ? "waiting" : ls_phase_name((ls_phase)phase);
}

static int phase_of(const char *name) {
    for (int phase = 0; phase < LS_PHASE_COUNT; phase++)
        if (strcmp(name, ls_phase_name((ls_phase)phase)) == 0) return phase;
    return LS_PHASE_OTHER;
}

/* From the end of the first step to that of the last, or all of the only one. */
static struct window window_of(const replay_run *run) {
    int first = -1, last = -1;
    struct window w = {.begin_us = INFINITY, .end_us = 0};
    double first_end_us = 0;
    for (int i = 0; i < run->timeline->task_count; i++) {
        int step = ls_trace_task(run->trace, i)->step;
        if (step >= 0 && (first < 0 || step < first)) first = step;
        if (step > last) last = step;
    }
    for (int i = 0; i < run->timeline->task_count; i++) {
        int step = ls_trace_task(run->trace, i)->step;
        if (step < 0) continue;
        w.begin_us = fmin(w.begin_us, run->timeline->start_us[i]);
        w.end_us = fmax(w.end_us, run->timeline->end_us[i]);
        if (step == first) first_end_us = fmax(first_end_us, run->timeline->end_us[i]);
    }
    w.steps = last > first ? last - first : 1;
    if (last > first) w.begin_us = first_end_us;
    return w;
}

/* What of a device a task is; RANKS: nothing. */
static int rank_of(const ls_trace *trace, const struct ls_task *task, int device) {
    bool of_lane = ls_trace_lane(trace, task->lane)->device == device;
    if (task->kind == LS_TASK_COPY) {
        bool between_host = task->from < 0 && task->to < 0;
        return task->from == device || task->to == device || (between_host && of_lane) ? COMMUNICATION : RANKS;
    }
    if (!of_lane) return RANKS;
    return task->kind == LS_TASK_KERNEL ? KERNEL : task->kind == LS_TASK_COLLECTIVE ? COMMUNICATION : HOST;
}

static size_t find_points(struct point *points, const replay_run *run, int device, struct window w) {
    size_t count = 0;
    for (int i = 0; i < run->timeline->task_count; i++) {
        const struct ls_task *task = ls_trace_task(run->trace, i);
        int rank = rank_of(run->trace, task, device);
        double begin_us = fmax(run->timeline->start_us[i], w.begin_us),
               end_us = fmin(run->timeline->end_us[i], w.end_us);
        if (rank == RANKS || !(end_us > begin_us)) continue;
        int phase = phase_of(task->phase);
        if (points) {
            points[count] = (struct point){begin_us, rank, phase, +1};
            points[count + 1] = (struct point){end_us, rank, phase, -1};
        }
        count += 2;
    }
    return count;
}

static int compare_points(const void *left, const void *right) {
    const struct point *a = left, *b = right;
    if (a->at_us != b->at_us) return a->at_us < b->at_us ? -1 : 1;
    return a->more - b->more;
}

static int phase_in_progress(int going[RANKS][LS_PHASE_COUNT]) {
    for (int rank = 0; rank < RANKS; rank++)
        for (int phase = 0; phase < LS_PHASE_COUNT; phase++)
            if (going[rank][phase] > 0) return phase;
    return REPLAY_WAITING;
}

ls_status replay_phases(double phase_ms[REPLAY_PHASES], const replay_run *run, int device) {
    struct window w = window_of(run);
    int going[RANKS][LS_PHASE_COUNT] = {{0}};
    size_t count = find_points(NULL, run, device, w);
    struct point *points = calloc(count + 1, sizeof *points);
    if (!points) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the phases of device %d", device);
    find_points(points, run, device, w);
    qsort(points, count, sizeof *points, compare_points);
    points[count].at_us = w.end_us;
    double now_us = w.begin_us;
    for (int phase = 0; phase < REPLAY_PHASES; phase++) phase_ms[phase] = 0;
    for (size_t i = 0; i <= count; i++) {
        phase_ms[phase_in_progress(going)] += (points[i].at_us - now_us) / 1e3 / w.steps;
        now_us = points[i].at_us;
        if (i < count) going[points[i].rank][points[i].phase] += points[i].more;
    }
    free(points);
    return LS_OK;
}
