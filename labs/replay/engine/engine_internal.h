/* Internals of the engine, which its two files share. engine_start.c checks a trace and creates these; engine.c
 * simulates. */
#ifndef LABS_REPLAY_ENGINE_ENGINE_INTERNAL_H
#define LABS_REPLAY_ENGINE_ENGINE_INTERNAL_H

#include "labs/replay/engine/agenda.h"
#include "labs/replay/engine/engine.h"
#include "labs/replay/engine/links.h"

/* The event that a lane waits for. */
enum ls_engine_phase { LS_ENGINE_ASKS, LS_ENGINE_LATENCY_PASSES, LS_ENGINE_TASK_ENDS };

struct ls_engine_lane {
    int done; /* number of its tasks that have ended */
    enum ls_engine_phase phase;
    int device; /* index in devices */
    int behind; /* the next lane in a turn's queue; LS_NONE */
    double idle_since_us;
};

/* A resource that one lane holds at a time, and its queue. */
struct ls_engine_turn {
    int holder, first, last; /* lanes; LS_NONE */
};

struct ls_engine_device {
    int number;
    struct ls_engine_turn compute;
    int collectives; /* in progress */
    /* of the kernel that runs: work left at since_us, at full speed */
    double left_us, since_us;
};

struct ls_engine_lock {
    int rank, number;
    struct ls_engine_turn turn;
};

struct ls_engine {
    const ls_trace *trace;
    const ls_node *node;
    ls_timeline *timeline;
    double now_us, slow_down;
    int ended; /* tasks */
    int lane_count, device_count, lock_count;
    struct ls_engine_lane *lanes;
    struct ls_engine_device *devices; /* by number */
    struct ls_engine_lock *locks;     /* by rank and number */
    int *missing;                     /* of each task: unfinished tasks on which it depends */
    int *absent;                      /* of each meeting: tasks that have not arrived */
    ls_agenda *agenda;
    ls_links *links;
};

/* For a sealed trace. LS_ERR_INVALID (see ls_engine_run), LS_ERR_NO_MEMORY; call ls_engine_end afterwards in any
 * case. */
ls_status ls_engine_start(struct ls_engine *engine, const ls_trace *trace, const ls_node *node);

/* The turn of a lock that a task of that rank holds. */
struct ls_engine_turn *ls_engine_lock_turn(const struct ls_engine *engine, int rank, int number);

/* Reports why a task is refused; returns LS_ERR_INVALID. */
ls_status ls_engine_refuse(const ls_trace *trace, int task, const char *why);

/* Frees all but the timeline. */
void ls_engine_end(struct ls_engine *engine);

#endif
