/* happens_before — a search from `a` through all tasks that must begin after it. */
#include "tests/trace/happens_before.h"

#include <stdlib.h>

#include "common/trace/trace_internal.h"
#include "tests/base/test.h"

struct search {
    const ls_trace *trace;
    bool *seen; /* of each task */
    int *found, count;
};

/* A task, and the other tasks of its meeting. */
static void add(struct search *s, int task) {
    if (task == LS_NONE || s->seen[task]) return;
    int count = 1, meeting = ls_trace_task(s->trace, task)->meeting;
    const int *tasks = meeting == LS_NONE ? &task : ls_trace_meeting_tasks(s->trace, meeting, &count);
    for (int i = 0; i < count; i++) {
        s->seen[tasks[i]] = true;
        s->found[s->count++] = tasks[i];
    }
}

bool happens_before(const ls_trace *trace, int a, int b) {
    size_t count = (size_t)ls_trace_task_count(trace);
    struct search s = {trace, calloc(count, sizeof *s.seen), calloc(count, sizeof *s.found), 0};
    assert_true(s.seen && s.found);
    add(&s, a);
    bool found = !s.seen[b];
    for (int i = 0; found && !s.seen[b] && i < s.count; i++) {
        int after_count;
        const int *after = ls_trace_after(trace, s.found[i], &after_count);
        for (int k = 0; k < after_count; k++) add(&s, after[k]);
        add(&s, trace->next_on_lane[s.found[i]]);
    }
    found = found && s.seen[b];
    free(s.seen);
    free(s.found);
    return found;
}
