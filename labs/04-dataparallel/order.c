/* order — a race detector for work on streams (common/device/device.h).
 *   idea  : the probe is linked with --wrap, so that copies, passes, records and waits are recorded here as tasks of
 *           their streams, with the memory that they read and write. Each task has a vector clock: a stream's clock
 *           counts its own tasks, a record stores the clock of its stream in the event, and a wait merges the event's
 *           clock. Two tasks of different streams that access the same memory, one of them writing, are ordered if one
 *           of them was in the clock of the other's stream when the other was enqueued
 *   why   : with inline streams a missing wait gives the right bits, and in a random order it sometimes does. Here it
 *           shows in every run: the check is not which task came first but which one had to
 *   host  : a wait refers to the latest record that the host has enqueued. Whether a record of another thread in the
 *           same part of the step came before is undetermined: it counts from the next part on
 *   owner : a stream takes work from one thread at a time; two threads in the same part are reported, too
 *   cost  : pairs of tasks of different streams: some ten thousand comparisons
 *   fails : work enqueued by calls that are not wrapped is not recorded; order_copied and order_added show that the
 *           expected work was */
#include "labs/04-dataparallel/order.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/seam/parallel.h"
#include "dp_threads/dp.h"
#include "kernels/kernels.h"

enum { DEVICES = 4, STREAMS = DEVICES * LS_STREAM_COUNT, TASKS = 256, ACCESSES = 8, EVENTS = 64, NAMES = 32 };

struct vector {
    int of[STREAMS];
};

struct range {
    const char *begin;
    size_t nbytes;
    bool is_written;
};

struct task {
    const char *what;
    struct vector clock;
    struct range ranges[ACCESSES];
    int range_count;
};

struct event {
    const ls_event *event;
    struct vector now, before; /* the clock of the latest record; of the latest in an earlier part of the step */
    pthread_t recorder;
    int part;
};

static struct {
    pthread_mutex_t lock;
    ls_device *devices[DEVICES];
    int device_count; /* 0: nothing is recorded */
    bool is_full;
    int part; /* of the step: incremented before and after each part that the replicas' threads run */
    struct vector clocks[STREAMS];
    struct task tasks[STREAMS][TASKS];
    int task_counts[STREAMS];
    struct {
        pthread_t thread;
        int part;
    } users[STREAMS]; /* the thread that enqueued there last, and the part */
    int shared;       /* a stream on which two threads enqueue concurrently; -1: none */
    struct event events[EVENTS];
    int event_count;
    struct {
        struct range x;
        size_t batch;
    } passes[DEVICES]; /* the arguments of each device's last forward */
    struct {
        char text[48];
        struct range range;
        size_t copied, added;
    } names[NAMES];
    int name_count;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- recording; the lock is held --------------------------------------------------------------------------------- */

/* -1: a stream of none of the devices. */
static int number_of(const ls_stream *stream) {
    for (int s = 0; s < seen.device_count * LS_STREAM_COUNT; s++)
        if (ls_device_stream(seen.devices[s / LS_STREAM_COUNT], (ls_stream_kind)(s % LS_STREAM_COUNT)) == stream)
            return s;
    return -1;
}

/* number_of, for a caller that enqueues. */
static int use(const ls_stream *stream) {
    int s = number_of(stream);
    if (s < 0) return s;
    if (seen.users[s].part == seen.part && !pthread_equal(seen.users[s].thread, pthread_self())) seen.shared = s;
    seen.users[s].part = seen.part;
    seen.users[s].thread = pthread_self();
    return s;
}

static struct task *add_task(const ls_stream *stream, const char *what) {
    static struct task elsewhere;
    int s = use(stream);
    if (s < 0) return elsewhere.range_count = 0, &elsewhere;
    if (seen.task_counts[s] == TASKS) return seen.is_full = true, elsewhere.range_count = 0, &elsewhere;
    struct task *task = &seen.tasks[s][seen.task_counts[s]++];
    seen.clocks[s].of[s] = seen.task_counts[s];
    *task = (struct task){.what = what, .clock = seen.clocks[s]};
    return task;
}

static void touch(struct task *task, const void *begin, size_t nbytes, bool is_written) {
    if (nbytes == 0) return;
    if (task->range_count == ACCESSES)
        seen.is_full = true;
    else
        task->ranges[task->range_count++] = (struct range){begin, nbytes, is_written};
}

static void take_over(struct vector *mine, const struct vector *other) {
    for (int s = 0; s < STREAMS; s++)
        if (other->of[s] > mine->of[s]) mine->of[s] = other->of[s];
}

static struct event *find_event(const ls_event *event) {
    for (int e = 0; e < seen.event_count; e++)
        if (seen.events[e].event == event) return &seen.events[e];
    if (seen.event_count == EVENTS) return seen.is_full = true, &seen.events[0];
    seen.events[seen.event_count] = (struct event){.event = event};
    return &seen.events[seen.event_count++];
}

static bool overlap(const struct range *a, const struct range *b) {
    return a->begin < b->begin + b->nbytes && b->begin < a->begin + a->nbytes;
}

static int name_of(const char *address) {
    struct range range = {.begin = address, .nbytes = 1};
    for (int n = 0; n < seen.name_count; n++)
        if (overlap(&seen.names[n].range, &range)) return n;
    return -1;
}

/* --- in place of the product's functions (--wrap) ------------------------------------------------------------------ */

static bool enter(void) {
    pthread_mutex_lock(&seen.lock);
    return seen.device_count > 0;
}

static void leave(void) { pthread_mutex_unlock(&seen.lock); }

void __real_ls_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes);
void __wrap_ls_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes);
void __wrap_ls_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    if (enter()) {
        struct task *task = add_task(stream, "a copy");
        touch(task, source, nbytes, false);
        touch(task, destination, nbytes, true);
        int name = name_of(destination);
        if (name >= 0) seen.names[name].copied += nbytes;
    }
    leave();
    __real_ls_copy(stream, destination, source, nbytes);
}

void __real_ls_reduce_add(ls_stream *stream, float *y, const float *const *sources, int source_count, size_t count);
void __wrap_ls_reduce_add(ls_stream *stream, float *y, const float *const *sources, int source_count, size_t count);
void __wrap_ls_reduce_add(ls_stream *stream, float *y, const float *const *sources, int source_count, size_t count) {
    if (enter()) {
        struct task *task = add_task(stream, "the sum");
        touch(task, y, count * sizeof(float), true);
        for (int i = 0; i < source_count; i++) {
            touch(task, sources[i], count * sizeof(float), false);
            int name = name_of((const char *)sources[i]);
            if (name >= 0) seen.names[name].added += count;
        }
    }
    leave();
    __real_ls_reduce_add(stream, y, sources, source_count, count);
}

void __real_ls_event_record(ls_event *event, ls_stream *stream);
void __wrap_ls_event_record(ls_event *event, ls_stream *stream);
void __wrap_ls_event_record(ls_event *event, ls_stream *stream) {
    int s = enter() ? use(stream) : -1;
    if (s >= 0) {
        struct event *e = find_event(event);
        if (e->part < seen.part) e->before = e->now;
        e->now = seen.clocks[s];
        e->recorder = pthread_self();
        e->part = seen.part;
    }
    leave();
    __real_ls_event_record(event, stream);
}

void __real_ls_stream_wait_event(ls_stream *stream, ls_event *event);
void __wrap_ls_stream_wait_event(ls_stream *stream, ls_event *event);
void __wrap_ls_stream_wait_event(ls_stream *stream, ls_event *event) {
    int s = enter() ? use(stream) : -1;
    if (s >= 0) {
        struct event *e = find_event(event);
        bool is_past = e->part < seen.part || pthread_equal(e->recorder, pthread_self());
        take_over(&seen.clocks[s], is_past ? &e->now : &e->before);
    }
    leave();
    __real_ls_stream_wait_event(stream, event);
}

static ls_stream *compute_of(const ls_model *model) {
    return ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
}

static void touch_parameters(struct task *task, const ls_model *model, bool is_written) {
    float *parameters;
    size_t count;
    ls_model_parameters(model, &parameters, &count);
    touch(task, parameters, count * sizeof(float), is_written);
}

static void touch_gradients(struct task *task, const ls_model *model, bool is_written) {
    float *gradients;
    size_t count;
    ls_model_gradients(model, &gradients, &count);
    touch(task, gradients, count * sizeof(float), is_written);
}

const float *__real_ls_model_forward(ls_model *model, const void *x, size_t batch, bool training);
const float *__wrap_ls_model_forward(ls_model *model, const void *x, size_t batch, bool training);
const float *__wrap_ls_model_forward(ls_model *model, const void *x, size_t batch, bool training) {
    const float *y = __real_ls_model_forward(model, x, batch, training);
    int place = ls_device_place(ls_model_device(model));
    if (enter() && place < seen.device_count) {
        struct task *task = add_task(compute_of(model), "forward");
        if (batch > 0) touch_parameters(task, model, false);
        touch(task, x, batch * ls_model_input_nbytes(model), false);
        touch(task, y, batch * ls_model_outputs(model) * sizeof(float), true);
        seen.passes[place].x = (struct range){x, batch * ls_model_input_nbytes(model), false};
        seen.passes[place].batch = batch;
    }
    leave();
    return y;
}

void __real_ls_model_backward(ls_model *model, float *dy, bool accumulate);
void __wrap_ls_model_backward(ls_model *model, float *dy, bool accumulate);
void __wrap_ls_model_backward(ls_model *model, float *dy, bool accumulate) {
    int place = ls_device_place(ls_model_device(model));
    if (enter() && place < seen.device_count) {
        struct task *task = add_task(compute_of(model), "backward");
        size_t batch = seen.passes[place].batch;
        if (batch > 0) touch_parameters(task, model, false);
        touch(task, seen.passes[place].x.begin, seen.passes[place].x.nbytes, false);
        touch(task, dy, batch * ls_model_outputs(model) * sizeof(float), true);
        touch_gradients(task, model, true);
    }
    leave();
    __real_ls_model_backward(model, dy, accumulate);
}

void __real_ls_parallel_take_loss(ls_parallel *p, ls_stream *compute, float *dy, const float *y, int weight);
void __wrap_ls_parallel_take_loss(ls_parallel *p, ls_stream *compute, float *dy, const float *y, int weight);
void __wrap_ls_parallel_take_loss(ls_parallel *p, ls_stream *compute, float *dy, const float *y, int weight) {
    if (enter()) {
        struct task *task = add_task(compute, "the loss");
        size_t nbytes = p->batch->count * ls_model_outputs(p->model) * sizeof(float);
        touch(task, y, nbytes, false);
        touch(task, dy, nbytes, true);
        touch(task, p->batch->labels, p->batch->count * sizeof *p->batch->labels, false);
    }
    leave();
    __real_ls_parallel_take_loss(p, compute, dy, y, weight);
}

ls_status __real_ls_parallel_update(ls_parallel *p, const bool *skip);
ls_status __wrap_ls_parallel_update(ls_parallel *p, const bool *skip);
ls_status __wrap_ls_parallel_update(ls_parallel *p, const bool *skip) {
    if (enter()) {
        struct task *task = add_task(compute_of(p->model), "the update");
        touch_gradients(task, p->model, false);
        touch_parameters(task, p->model, true);
    }
    leave();
    return __real_ls_parallel_update(p, skip);
}

static void next_part(void) {
    (void)enter();
    seen.part++;
    leave();
}

ls_status __real_dp_parallel_apply(dp_workers *workers, int replicas, dp_replica_fn task, void *context);
ls_status __wrap_dp_parallel_apply(dp_workers *workers, int replicas, dp_replica_fn task, void *context);
ls_status __wrap_dp_parallel_apply(dp_workers *workers, int replicas, dp_replica_fn task, void *context) {
    next_part();
    ls_status status = __real_dp_parallel_apply(workers, replicas, task, context);
    next_part();
    return status;
}

/* --- the check ----------------------------------------------------------------------------------------------------- */

void order_begin(ls_device *const *devices, int count) {
    (void)enter();
    memset(seen.clocks, 0, sizeof seen.clocks);
    memset(seen.task_counts, 0, sizeof seen.task_counts);
    memset(seen.users, 0, sizeof seen.users);
    seen.event_count = seen.name_count = 0;
    seen.part = 1;
    seen.is_full = false;
    seen.shared = -1;
    seen.device_count = count;
    for (int d = 0; d < count; d++) seen.devices[d] = devices[d];
    leave();
}

int order_name(const void *begin, size_t nbytes, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)enter();
    int n = seen.name_count < NAMES ? seen.name_count++ : NAMES - 1;
    memset(&seen.names[n], 0, sizeof seen.names[n]);
    seen.names[n].range = (struct range){.begin = begin, .nbytes = nbytes};
    vsnprintf(seen.names[n].text, sizeof seen.names[n].text, format, arguments);
    leave();
    va_end(arguments);
    return n;
}

size_t order_copied(int name) { return seen.names[name].copied; }
size_t order_added(int name) { return seen.names[name].added; }

/* The name of memory that both access and one of them writes; NULL: none. */
static const char *conflict(const struct task *a, const struct task *b) {
    for (int i = 0; i < a->range_count; i++)
        for (int j = 0; j < b->range_count; j++) {
            const struct range *x = &a->ranges[i], *y = &b->ranges[j];
            if ((x->is_written || y->is_written) && overlap(x, y)) return x->begin > y->begin ? x->begin : y->begin;
        }
    return NULL;
}

static const char *kind_name(int s) { return ls_stream_kind_name((ls_stream_kind)(s % LS_STREAM_COUNT)); }

static void tell(char *text, size_t capacity, const char *where, const struct task *a, int s, const struct task *b,
                 int t) {
    int name = name_of(where);
    snprintf(text, capacity,
             "%s: %s on the %s stream of device %d and %s on the %s stream of device %d are in no order",
             name < 0 ? "memory" : seen.names[name].text, a->what, kind_name(s), s / LS_STREAM_COUNT, b->what,
             kind_name(t), t / LS_STREAM_COUNT);
}

/* Whether all tasks of stream t are ordered with this one of stream s. */
static bool is_ordered(char *text, size_t capacity, int s, int i, int t) {
    const struct task *a = &seen.tasks[s][i];
    for (int j = 0; j < seen.task_counts[t]; j++) {
        const struct task *b = &seen.tasks[t][j];
        if (b->clock.of[s] > i || a->clock.of[t] > j) continue;
        const char *where = conflict(a, b);
        if (!where) continue;
        tell(text, capacity, where, a, s, b, t);
        return false;
    }
    return true;
}

const char *order_judge(char *text, size_t capacity) {
    int streams = seen.device_count * LS_STREAM_COUNT;
    bool ordered = true;
    snprintf(text, capacity, seen.is_full ? "more was enqueued than there is room for" : "every access is ordered");
    for (int s = 0; s < streams; s++)
        for (int t = s + 1; t < streams; t++)
            for (int i = 0; ordered && i < seen.task_counts[s]; i++) ordered = is_ordered(text, capacity, s, i, t);
    if (seen.shared >= 0)
        snprintf(text, capacity, "several threads enqueue on the %s stream of device %d at the same time",
                 kind_name(seen.shared), seen.shared / LS_STREAM_COUNT);
    seen.device_count = 0;
    return text;
}
