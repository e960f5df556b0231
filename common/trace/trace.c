/* skeleton */
#include "common/trace/trace.h"

ls_status ls_trace_create(ls_trace **out) {
    (void)out;
    return LS_ERR_UNSUPPORTED;
}
void ls_trace_destroy(ls_trace *trace) { (void)trace; }
const char *ls_trace_text(ls_trace *trace, const char *text) {
    (void)trace;
    (void)text;
    return NULL;
}
int ls_trace_add_lane(ls_trace *trace, const struct ls_lane *lane) {
    (void)trace;
    (void)lane;
    return 0;
}
int ls_trace_add_task(ls_trace *trace, const struct ls_task *task) {
    (void)trace;
    (void)task;
    return 0;
}
int ls_trace_add_mark(ls_trace *trace, const struct ls_mark *mark) {
    (void)trace;
    (void)mark;
    return 0;
}
int ls_trace_add_parameter(ls_trace *trace, const struct ls_trace_parameter *parameter) {
    (void)trace;
    (void)parameter;
    return 0;
}
int ls_trace_join_meeting(ls_trace *trace, const struct ls_meeting *meeting) {
    (void)trace;
    (void)meeting;
    return 0;
}
void ls_trace_add_edge(ls_trace *trace, int before, int task) {
    (void)trace;
    (void)before;
    (void)task;
}
struct ls_trace_about *ls_trace_about(ls_trace *trace) {
    (void)trace;
    return NULL;
}
ls_status ls_trace_seal(ls_trace *trace) {
    (void)trace;
    return LS_ERR_UNSUPPORTED;
}
struct ls_task ls_task_default(ls_task_kind kind, const char *name, int lane) {
    (void)kind;
    (void)name;
    (void)lane;
    return (struct ls_task){0};
}
int ls_trace_lane_count(const ls_trace *trace) {
    (void)trace;
    return 0;
}
int ls_trace_task_count(const ls_trace *trace) {
    (void)trace;
    return 0;
}
int ls_trace_mark_count(const ls_trace *trace) {
    (void)trace;
    return 0;
}
int ls_trace_meeting_count(const ls_trace *trace) {
    (void)trace;
    return 0;
}
int ls_trace_parameter_count(const ls_trace *trace) {
    (void)trace;
    return 0;
}
const struct ls_lane *ls_trace_lane(const ls_trace *trace, int lane) {
    (void)trace;
    (void)lane;
    return NULL;
}
const struct ls_task *ls_trace_task(const ls_trace *trace, int task) {
    (void)trace;
    (void)task;
    return NULL;
}
const struct ls_mark *ls_trace_mark(const ls_trace *trace, int mark) {
    (void)trace;
    (void)mark;
    return NULL;
}
const struct ls_meeting *ls_trace_meeting(const ls_trace *trace, int meeting) {
    (void)trace;
    (void)meeting;
    return NULL;
}
const struct ls_trace_parameter *ls_trace_parameter(const ls_trace *trace, int parameter) {
    (void)trace;
    (void)parameter;
    return NULL;
}
const struct ls_trace_about *ls_trace_what(const ls_trace *trace) {
    (void)trace;
    return NULL;
}
const int *ls_trace_before(const ls_trace *trace, int task, int *count) {
    (void)trace;
    (void)task;
    (void)count;
    return NULL;
}
const int *ls_trace_after(const ls_trace *trace, int task, int *count) {
    (void)trace;
    (void)task;
    (void)count;
    return NULL;
}
const int *ls_trace_lane_tasks(const ls_trace *trace, int lane, int *count) {
    (void)trace;
    (void)lane;
    (void)count;
    return NULL;
}
const int *ls_trace_meeting_tasks(const ls_trace *trace, int meeting, int *count) {
    (void)trace;
    (void)meeting;
    (void)count;
    return NULL;
}
bool ls_trace_happens_before(const ls_trace *trace, int a, int b) {
    (void)trace;
    (void)a;
    (void)b;
    return 0;
}
const char *ls_lane_kind_name(ls_lane_kind kind) {
    (void)kind;
    return NULL;
}
const char *ls_task_kind_name(ls_task_kind kind) {
    (void)kind;
    return NULL;
}
