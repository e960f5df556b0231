/* cpu_shuffle — the race detector: nothing runs when it is enqueued; a thread that synchronises runs items, picked at
 * random among the runnable heads of all streams of the process, until the awaited item has run.
 *   terms : a stream is ready when its head is a task, a record, or a wait whose record has been reached
 *   order : any that the declared events allow, so after a forgotten wait, data are sooner or later read before they
 *           are written. The order depends on the seed (and, where several threads synchronise at once, on their
 *           timing); results must not
 *   apart : a task that waits for others (a collective) runs in a thread of its own, while shuffling continues:
 *           the peers may be streams of this process (DataParallel's devices, ranks that are threads), or ranks that
 *           wait for a task that this one has still to run (DDP's buckets). If the process has one device, a collective
 *           on its comm stream runs in the thread that picked it: its peers need no later item of this process
 *   fails : if no stream is ready and no other thread makes one ready before the deadline, LS_ERR_TIMEOUT
 * Speed does not matter here: one lock guards everything except the running of an item. */
#define _GNU_SOURCE
#include "common/device/cpu_streams.h"

#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an item was enqueued or has run */
    ls_stream *streams;     /* every shuffled stream of the process */
    uint64_t random;
    int apart; /* items that run in threads of their own */
} scheduler = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void ls_shuffle_seed(uint64_t seed) {
    pthread_mutex_lock(&scheduler.lock);
    scheduler.random = seed;
    pthread_mutex_unlock(&scheduler.lock);
}

/* splitmix64: any 64-bit seed is a good one */
static uint64_t next_random(void) {
    uint64_t z = scheduler.random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static struct ls_item *head_of(ls_stream *stream) {
    uint32_t next = ls_flag_value(&ls_cpu_stream_of(stream)->queue.consumed);
    if (next == ls_flag_value(&ls_cpu_stream_of(stream)->queue.produced)) return NULL;
    return &ls_cpu_stream_of(stream)->queue.items[next % LS_QUEUE_CAPACITY];
}

static bool is_ready(ls_stream *stream) {
    const struct ls_item *head = ls_cpu_stream_of(stream)->busy ? NULL : head_of(stream);
    if (!head) return false;
    return head->kind != LS_ITEM_WAIT || ls_flag_reached(&head->event->completed, head->ticket);
}

static ls_stream *pick_ready(void) {
    ls_stream *chosen = NULL;
    uint64_t seen = 0;
    for (ls_stream *stream = scheduler.streams; stream; stream = ls_cpu_stream_of(stream)->next) {
        if (is_ready(stream) && next_random() % ++seen == 0) chosen = stream;
    }
    return chosen;
}

/* Called and returns with the lock held; the item itself runs without it. */
static void run_here(ls_stream *stream) {
    struct ls_item *item = head_of(stream);
    pthread_mutex_unlock(&scheduler.lock);
    (void)ls_stream_run_item(stream, item);
    pthread_mutex_lock(&scheduler.lock);
    ls_cpu_stream_of(stream)->busy = false;
    ls_flag_raise(&ls_cpu_stream_of(stream)->queue.consumed);
    pthread_cond_broadcast(&scheduler.changed);
}

static void *run_apart(void *argument) {
    pthread_mutex_lock(&scheduler.lock);
    run_here(argument);
    scheduler.apart--;
    pthread_mutex_unlock(&scheduler.lock);
    return NULL;
}

/* False if no thread can be created. */
static bool start_apart(ls_stream *stream) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_apart, stream) != 0) return false;
    pthread_detach(thread);
    scheduler.apart++; /* the thread waits for the lock, which is held here */
    return true;
}

static bool has_other_devices(const ls_stream *stream) {
    ls_stream *other = scheduler.streams;
    while (other && other->device == stream->device) other = ls_cpu_stream_of(other)->next;
    return other != NULL;
}

static void run_head(ls_stream *stream) {
    ls_cpu_stream_of(stream)->busy = true;
    bool goes_apart = stream->kind == LS_STREAM_COMPUTE || has_other_devices(stream);
    if (head_of(stream)->meets && goes_apart && start_apart(stream)) return;
    run_here(stream);
}

/* Runs items until `goal` reaches `value`; the lock is held on entry and exit. */
static ls_status run_until(ls_flag *goal, uint32_t value, const char *what) {
    double until_us = ls_wait_until_us();
    while (!ls_flag_reached(goal, value)) {
        ls_stream *ready = pick_ready();
        if (ready) {
            run_head(ready);
            until_us = ls_wait_until_us();
            continue;
        }
        if (scheduler.apart > 0) until_us = ls_wait_until_us(); /* items in other threads have deadlines of their own */
        if (ls_now_us() > until_us) {
            return ls_fail(LS_ERR_TIMEOUT, "nothing can run, %s: a stream waits for an event that is never recorded",
                           what);
        }
        struct timespec slice; /* the monotonic clock, so that a change of the date does not prolong it */
        clock_gettime(CLOCK_MONOTONIC, &slice);
        slice.tv_nsec += 50000000;
        if (slice.tv_nsec >= 1000000000) slice.tv_sec++, slice.tv_nsec -= 1000000000;
        pthread_cond_clockwait(&scheduler.changed, &scheduler.lock, CLOCK_MONOTONIC, &slice);
    }
    return LS_OK;
}

static ls_status shuffle_start(ls_stream *stream) {
    ls_status status = ls_queue_create(&ls_cpu_stream_of(stream)->queue);
    if (status != LS_OK) return status;
    pthread_mutex_lock(&scheduler.lock);
    ls_cpu_stream_of(stream)->next = scheduler.streams;
    scheduler.streams = stream;
    pthread_mutex_unlock(&scheduler.lock);
    return LS_OK;
}

static ls_status shuffle_enqueue(ls_stream *stream, const struct ls_item *item) {
    pthread_mutex_lock(&scheduler.lock);
    struct ls_queue *queue = &ls_cpu_stream_of(stream)->queue;
    uint32_t next = ls_flag_value(&queue->produced);
    ls_status status = run_until(&queue->consumed, next - LS_QUEUE_CAPACITY + 1, "a stream's queue is full");
    if (status == LS_OK) {
        queue->items[next % LS_QUEUE_CAPACITY] = *item;
        ls_flag_set(&queue->produced, next + 1);
        pthread_cond_broadcast(&scheduler.changed);
    }
    pthread_mutex_unlock(&scheduler.lock);
    return status;
}

static ls_status shuffle_drain(ls_stream *stream) {
    pthread_mutex_lock(&scheduler.lock);
    ls_status status = run_until(&ls_cpu_stream_of(stream)->queue.consumed,
                                 ls_flag_value(&ls_cpu_stream_of(stream)->queue.produced), "but a stream is not empty");
    pthread_mutex_unlock(&scheduler.lock);
    return status;
}

static ls_status shuffle_reach(ls_event *event, uint32_t ticket) {
    pthread_mutex_lock(&scheduler.lock);
    ls_status status = run_until(&event->completed, ticket, event->name);
    pthread_mutex_unlock(&scheduler.lock);
    return status;
}

static void shuffle_stop(ls_stream *stream) {
    (void)shuffle_drain(stream);
    pthread_mutex_lock(&scheduler.lock);
    ls_stream **link = &scheduler.streams;
    while (*link != stream) link = &ls_cpu_stream_of(*link)->next;
    *link = ls_cpu_stream_of(stream)->next;
    pthread_mutex_unlock(&scheduler.lock);
    ls_queue_destroy(&ls_cpu_stream_of(stream)->queue);
}

const struct ls_stream_policy ls_policy_shuffle = {
    .name = "shuffle",
    .start = shuffle_start,
    .stop = shuffle_stop,
    .enqueue = shuffle_enqueue,
    .drain = shuffle_drain,
    .reach = shuffle_reach,
};
