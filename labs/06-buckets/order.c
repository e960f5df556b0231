/* order — a race detector for the reducer (ddp_procs/reducer_launch.c), by the method of labs 03 and 04.
 *   idea  : the probe is linked with --wrap, so that records, waits and all-reduces are recorded here as tasks of their
 *           streams; the probe itself enqueues gradients and their uses. Each task has a vector clock: a stream's clock
 *           counts its own tasks, a record stores the clock of its stream in the event, and a wait merges the event's
 *           clock. Two tasks of the two streams are ordered if one of them was in the clock of the other's stream when
 *           the other was enqueued
 *   why   : two mistakes that no result shows are detected here in every run. Ordered too little: with inline streams a
 *           missing wait gives the right bits. Ordered too much: if everything waits for everything the bits are right,
 *           too, but nothing overlaps. So the check counts what may run concurrently, not what did
 *   hook  : the probe stores the reducer's hook and calls it itself: gradients can become ready in any order
 *   cost  : pairs of tasks of a rank: a few thousand comparisons
 *   fails : work enqueued by other calls than the wrapped ones is not seen, nor are waits of the host */
#include "labs/06-buckets/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_procs/reducer_internal.h"

enum { COMPUTE, COMM };

static _Thread_local struct order *mine; /* NULL: nothing is recorded */
static _Thread_local struct {
    ls_grad_ready_fn call;
    void *context;
} hook;

/* --- recording ----------------------------------------------------------------------------------------------------- */

static int number_of(const ls_stream *stream) {
    for (int s = COMPUTE; mine && s <= COMM; s++)
        if (mine->streams[s] == stream) return s;
    return -1;
}

static void add_task(int s, struct order_task task) {
    if (!mine) return;
    if (mine->counts[s] == ORDER_TASKS) {
        mine->is_full = true;
        return;
    }
    mine->clocks[s].of[s] = mine->counts[s] + 1;
    task.step = mine->step;
    task.knows = mine->clocks[s];
    mine->tasks[s][mine->counts[s]++] = task;
}

/* NULL: it has not been recorded. */
static struct order_vector *find_event(const ls_event *event) {
    for (int e = 0; e < mine->event_count; e++)
        if (mine->events[e].event == event) return &mine->events[e].clock;
    return NULL;
}

static struct order_vector *add_event(const ls_event *event) {
    static _Thread_local struct order_vector elsewhere;
    struct order_vector *clock = find_event(event);
    if (clock) return clock;
    if (mine->event_count == ORDER_EVENTS) return mine->is_full = true, &elsewhere;
    mine->events[mine->event_count].event = event;
    return &mine->events[mine->event_count++].clock;
}

/* --- in place of the product's functions (--wrap) ------------------------------------------------------------------ */

void __real_ls_event_record(ls_event *event, ls_stream *stream);
void __wrap_ls_event_record(ls_event *event, ls_stream *stream);
void __wrap_ls_event_record(ls_event *event, ls_stream *stream) {
    int s = number_of(stream);
    if (s >= 0) *add_event(event) = mine->clocks[s];
    __real_ls_event_record(event, stream);
}

void __real_ls_stream_wait_event(ls_stream *stream, ls_event *event);
void __wrap_ls_stream_wait_event(ls_stream *stream, ls_event *event);
void __wrap_ls_stream_wait_event(ls_stream *stream, ls_event *event) {
    int s = number_of(stream);
    const struct order_vector *clock = s >= 0 ? find_event(event) : NULL;
    for (int other = COMPUTE; clock && other <= COMM; other++)
        if (clock->of[other] > mine->clocks[s].of[other]) mine->clocks[s].of[other] = clock->of[other];
    __real_ls_stream_wait_event(stream, event);
}

void __real_ddp_reducer_sum(ddp_reducer *r, const struct bucket *bucket);
void __wrap_ddp_reducer_sum(ddp_reducer *r, const struct bucket *bucket);
void __wrap_ddp_reducer_sum(ddp_reducer *r, const struct bucket *bucket) {
    int number = (int)(bucket - r->buckets);
    add_task(COMM, (struct order_task){.kind = ORDER_SUM,
                                       .bucket = number,
                                       .begin = (const char *)bucket->data,
                                       .nbytes = bucket->count * sizeof(float)});
    if (mine && mine->launch_count < ORDER_LAUNCHES) {
        int n = mine->launch_count++;
        mine->launches[n].step = mine->step;
        mine->launches[n].bucket = number;
        mine->launches[n].gradients = mine->gradients;
        if (!mine->phase || r->clock->phase != LS_PHASE_ALL_REDUCE) mine->phase = ls_phase_name(r->clock->phase);
    }
    __real_ddp_reducer_sum(r, bucket);
}

void __real_ls_model_on_grad_ready(ls_model *model, ls_grad_ready_fn call, void *context);
void __wrap_ls_model_on_grad_ready(ls_model *model, ls_grad_ready_fn call, void *context);
void __wrap_ls_model_on_grad_ready(ls_model *model, ls_grad_ready_fn call, void *context) {
    hook.call = call;
    hook.context = context;
    __real_ls_model_on_grad_ready(model, call, context);
}

/* Cuts the order into parts of random sizes instead of fill_buckets' buckets: the use of buckets is tested with any
 * sizes, even if fill_buckets is wrong. Without a size limit all gradients stay in one bucket. */
static ls_status cut_parts(struct ddp_buckets *out, const int64_t *order, size_t count, bool is_whole, bool reverse) {
    struct ddp_buckets b = {.parameter_count = count};
    b.parameters = calloc(count, sizeof *b.parameters);
    b.sizes = calloc(count, sizeof *b.sizes);
    *out = b;
    if (!b.parameters || !b.sizes) return LS_ERR_NO_MEMORY;
    for (size_t i = 0, part = 0; i < count; i++) {
        if (i > 0 && !is_whole && b.sizes[part] >= mine->parts[part]) part++;
        b.parameters[i] = (size_t)order[reverse ? count - 1 - i : i];
        b.sizes[part]++;
        b.bucket_count = part + 1;
    }
    *out = b;
    return LS_OK;
}

ls_status __real_ddp_assign_buckets(struct ddp_buckets *out, const size_t *nbytes, const int64_t *order,
                                    size_t parameter_count, const size_t *limits, size_t limit_count, bool reverse);
ls_status __wrap_ddp_assign_buckets(struct ddp_buckets *out, const size_t *nbytes, const int64_t *order,
                                    size_t parameter_count, const size_t *limits, size_t limit_count, bool reverse);
ls_status __wrap_ddp_assign_buckets(struct ddp_buckets *out, const size_t *nbytes, const int64_t *order,
                                    size_t parameter_count, const size_t *limits, size_t limit_count, bool reverse) {
    if (mine) return cut_parts(out, order, parameter_count, limits[0] == SIZE_MAX, reverse);
    return __real_ddp_assign_buckets(out, nbytes, order, parameter_count, limits, limit_count, reverse);
}

/* --- in the product's place ---------------------------------------------------------------------------------------- */

void order_begin(struct order *o, ls_device *device, const size_t *parts) {
    memset(o, 0, sizeof *o);
    o->parts = parts;
    o->streams[COMPUTE] = ls_device_stream(device, LS_STREAM_COMPUTE);
    o->streams[COMM] = ls_device_stream(device, LS_STREAM_COMM);
    mine = o;
}

void order_end(void) { mine = NULL; }

void order_step(int step) {
    mine->step = step;
    mine->gradients = 0;
}

static struct order_task access_of(const struct ls_tensor *tensor) {
    struct order_task task = {.begin = (const char *)tensor->gradient, .nbytes = tensor->count * sizeof(float)};
    snprintf(task.name, sizeof task.name, "%s", tensor->name);
    return task;
}

ls_status order_report(size_t parameter, const struct ls_tensor *tensor) {
    struct order_task task = access_of(tensor);
    task.kind = ORDER_GRADIENT;
    add_task(COMPUTE, task);
    mine->gradients++;
    return hook.call(hook.context, parameter);
}

void order_use(const struct ls_tensor *tensor) {
    struct order_task task = access_of(tensor);
    task.kind = ORDER_USE;
    add_task(COMPUTE, task);
}

/* --- the check ----------------------------------------------------------------------------------------------------- */

const char *order_launches(char *text, size_t capacity, const struct order *o, int step, int gradients) {
    size_t length = 0;
    int before = -1;
    snprintf(text, capacity, "none");
    for (int n = 0; n <= o->launch_count && length < capacity; n++) {
        bool is_one = n < o->launch_count && o->launches[n].step == step;
        int after = is_one ? o->launches[n].gradients : -1;
        if (before >= 0 && after != before)
            length += (size_t)snprintf(text + length, capacity - length,
                                       before == gradients ? " at the end" : " after gradient %d", before);
        if (is_one && length < capacity)
            length += (size_t)snprintf(text + length, capacity - length, "%s%d",
                                       before < 0 ? "" : (before == after ? " " : "; "), o->launches[n].bucket);
        before = after;
    }
    return text;
}

static bool overlap(const struct order_task *a, const struct order_task *b) {
    return a->begin < b->begin + b->nbytes && b->begin < a->begin + a->nbytes;
}

/* The i-th task of the compute stream, and the j-th of the comm stream. */
static bool are_ordered(const struct order *o, int i, int j) {
    return o->tasks[COMPUTE][i].knows.of[COMM] > j || o->tasks[COMM][j].knows.of[COMPUTE] > i;
}

static void tell(char *text, size_t capacity, const struct order_task *access, const struct order_task *sum) {
    const char *does = access->kind == ORDER_GRADIENT ? "backward writes" : "the optimizer reads";
    if (access->step == sum->step)
        snprintf(text, capacity, "step %d: %s the gradient of %s while bucket %d, which it is in, may be being reduced",
                 sum->step, does, access->name, sum->bucket);
    else
        snprintf(text, capacity,
                 "step %d: %s the gradient of %s while bucket %d of step %d, which it is in, may be being reduced",
                 access->step, does, access->name, sum->bucket, sum->step);
}

/* An all-reduce writes, so each access to the same memory must be ordered with it. */
const char *order_judge(char *text, size_t capacity, const struct order *o) {
    snprintf(text, capacity, o->is_full ? "more was enqueued than there is room for" : "every access is ordered");
    for (int i = 0; i < o->counts[COMPUTE]; i++)
        for (int j = 0; j < o->counts[COMM]; j++) {
            if (!overlap(&o->tasks[COMPUTE][i], &o->tasks[COMM][j]) || are_ordered(o, i, j)) continue;
            tell(text, capacity, &o->tasks[COMPUTE][i], &o->tasks[COMM][j]);
            return text;
        }
    return text;
}

const char *order_overlap(char *text, size_t capacity, const struct order *o, int step) {
    size_t length = 0;
    snprintf(text, capacity, "no bucket");
    for (int j = 0; j < o->counts[COMM] && length < capacity; j++) {
        int count = 0;
        if (o->tasks[COMM][j].step != step) continue;
        for (int i = 0; i < o->counts[COMPUTE]; i++) {
            const struct order_task *task = &o->tasks[COMPUTE][i];
            count += task->kind == ORDER_GRADIENT && task->step == step && !are_ordered(o, i, j);
        }
        length += (size_t)snprintf(text + length, capacity - length, "%s%d", length ? " " : "", count);
    }
    return text;
}
