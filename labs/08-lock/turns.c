/* turns — a scheduler for threads that share one lock.
 *   idea  : only one thread runs at a time, the one with the baton. The probe is linked with --wrap, so that waiting
 *           for a flag, raising one, reading the thread's clock and writing a record call this file first, which passes
 *           the baton to a random runnable thread: a thread that waits for a flag is runnable when the flag is reached.
 *           If no thread is runnable, the deadlines of all waiting threads have passed
 *   clock : the lock is held in CPU time, and a thread's CPU time advances only by a third of the turn at each reading.
 *           So a turn is four readings, whatever the machine does, and other threads run between them. The time of day
 *           advances only by a jump at each ask
 *   before: a single thread first takes `turns_before` turns, so that the numbers do not begin at 0. Its CPU time
 *           advances by a whole turn at each reading
 *   crowd : a non-atomic counter sometimes issues one number twice; the scheduler cannot interleave inside it. So real
 *           threads draw numbers concurrently, until they have interleaved often enough for it to show
 *   seen  : which threads asked, which held the lock, how many at once: counts and orders that hold for every draw
 *   fails : a thread that loops without any of these calls keeps the baton, until the grader kills it. From its third
 *           reading of the time of day on a thread passes the baton, since its loop may watch the deadline itself */
#define _GNU_SOURCE
#include "labs/08-lock/turns.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/flag.h"
#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/base/random.h"
#include "common/device/host_lock.h"

#define NAME "host lock"

struct actor {
    pthread_t thread;
    int number;
    ls_device *device;
    enum { READY, WAITING, GIVEN_UP, ENDED } state;
    ls_flag *flag; /* WAITING */
    uint32_t value;
    int ask; /* the current one; -1: none */
    int clock_readings;
    double cpu_us, busy_until_us;
    bool is_busy;
    char message[256];
};

static struct {
    struct turns *turns;
    pthread_mutex_t lock;
    pthread_cond_t handed;
    struct actor actors[TURNS_THREADS];
    int current, holders;
    ls_generator draw;
    double now_us; /* the time of day, for these threads */
    int last_lock; /* the thread of the last record, if that is a LOCK; -1 */
    uintptr_t object;
} stage = {.lock = PTHREAD_MUTEX_INITIALIZER, .handed = PTHREAD_COND_INITIALIZER};

/* Concurrent draws; an entry of `seen` is 1 + the last number waited for that maps to it. */
enum { CROWD_THREADS = 4, CROWD_PLACES = 1 << 14, CROWD_MEETINGS = 5000, CROWD_MOST_ASKS = 4000000 };
static struct {
    ls_device *device;
    _Atomic uint32_t seen[CROWD_PLACES];
    _Atomic int doubles, meetings;
    pthread_barrier_t together;
} crowd;
static _Thread_local bool is_crowded;
static _Thread_local uint32_t number_before;
static _Thread_local bool has_waited; /* a thread that never waits for a number draws none */

static _Thread_local struct actor *me; /* NULL: not one of the scheduled threads */

/* The CPU time of the thread that takes its turns before the others begin; 0: not that thread. */
static _Thread_local double leaping_us;

/* --- the baton; its lock is held ------------------------------------------------------------------------------------ */

static bool can_go_on(struct actor *a) {
    return a->state == READY || a->state == GIVEN_UP || (a->state == WAITING && ls_flag_reached(a->flag, a->value));
}

/* -1: all have ended. */
static int draw_next(void) {
    int able[TURNS_THREADS], count = 0;
    for (int i = 0; i < stage.turns->threads; i++)
        if (can_go_on(&stage.actors[i])) able[count++] = i;
    for (int i = 0; count == 0 && i < stage.turns->threads; i++)
        if (stage.actors[i].state == WAITING) stage.actors[i].state = GIVEN_UP, able[count++] = i;
    return count == 0 ? -1 : able[ls_random32(&stage.draw) % (uint32_t)count];
}

static void hand_over(void) {
    stage.current = draw_next();
    pthread_cond_broadcast(&stage.handed);
}

static void await_baton(const struct actor *a) {
    while (stage.current != a->number) pthread_cond_wait(&stage.handed, &stage.lock);
}

/* Lets other threads run first. */
static void yield_baton(void) {
    if (!me) return;
    pthread_mutex_lock(&stage.lock);
    hand_over();
    await_baton(me);
    pthread_mutex_unlock(&stage.lock);
}

/* --- in place of the product's functions (--wrap) ------------------------------------------------------------------ */

double __real_ls_now_us(void);
double __wrap_ls_now_us(void);

static void look_at_wait(double spin_us, double until_us) {
    double left_s = (until_us - stage.now_us) * 1e-6, timeout_s = ls_wait_timeout_s();
    stage.turns->wrong_deadlines += !(left_s > 0.999999 * timeout_s && left_s < 1.000001 * timeout_s);
    stage.turns->wrong_spins += spin_us != ls_device_spin_us(me->device);
    stage.turns->asks[me->ask].waits++;
}

/* Threads of the crowd do not wait: they only draw numbers. A gap between a thread's own consecutive numbers means that
 * another thread has interleaved. */
static bool meet(uint32_t number) {
    if (atomic_exchange(&crowd.seen[number % CROWD_PLACES], number + 1) == number + 1)
        atomic_fetch_add(&crowd.doubles, 1);
    if (number != number_before + 1) atomic_fetch_add(&crowd.meetings, 1);
    number_before = number;
    has_waited = true;
    return true;
}

bool __real_ls_flag_wait(ls_flag *flag, uint32_t value, double spin_us, double until_us);
bool __wrap_ls_flag_wait(ls_flag *flag, uint32_t value, double spin_us, double until_us);
bool __wrap_ls_flag_wait(ls_flag *flag, uint32_t value, double spin_us, double until_us) {
    if (is_crowded) return meet(value);
    if (leaping_us > 0) return ls_flag_reached(flag, value); /* alone: an unreached flag will never be reached */
    if (!me) return __real_ls_flag_wait(flag, value, spin_us, until_us);
    bool is_over = until_us <= stage.now_us;
    look_at_wait(spin_us, until_us);
    yield_baton();
    if (me->ask == stage.turns->lost) {
        stage.turns->asked_before_loss = stage.turns->ask_count;
        return false;
    }
    if (ls_flag_reached(flag, value)) return true;
    if (is_over) return false;
    me->state = WAITING;
    me->flag = flag;
    me->value = value;
    yield_baton();
    bool is_reached = me->state == WAITING;
    me->state = READY;
    return is_reached;
}

uint32_t __real_ls_flag_raise(ls_flag *flag);
uint32_t __wrap_ls_flag_raise(ls_flag *flag);
uint32_t __wrap_ls_flag_raise(ls_flag *flag) {
    yield_baton();
    uint32_t value = __real_ls_flag_raise(flag);
    yield_baton();
    return value;
}

void __real_ls_flag_set(ls_flag *flag, uint32_t value);
void __wrap_ls_flag_set(ls_flag *flag, uint32_t value);
void __wrap_ls_flag_set(ls_flag *flag, uint32_t value) {
    yield_baton();
    __real_ls_flag_set(flag, value);
    yield_baton();
}

double __wrap_ls_now_us(void) {
    if (!me || me->ask < 0) return __real_ls_now_us();
    if (++me->clock_readings > 6) yield_baton();
    return stage.now_us;
}

static void begin_busy(void) {
    me->is_busy = true;
    me->busy_until_us = me->cpu_us + stage.turns->us;
    if (++stage.holders > stage.turns->most_holders) stage.turns->most_holders = stage.holders;
    if (stage.turns->begun_count < TURNS_MOST) stage.turns->begun[stage.turns->begun_count++] = me->ask;
}

static void end_busy(bool is_whole) {
    me->is_busy = false;
    stage.holders--;
    stage.turns->asks[me->ask].busy += is_whole;
}

double __real_ls_thread_cpu_us(void);
double __wrap_ls_thread_cpu_us(void);
double __wrap_ls_thread_cpu_us(void) {
    if (leaping_us > 0) return leaping_us += 2 * LS_HOST_LOCK_MOST_US;
    if (!me || me->ask < 0) return __real_ls_thread_cpu_us();
    if (!me->is_busy)
        begin_busy();
    else if ((me->cpu_us += stage.turns->us / 3) >= me->busy_until_us)
        end_busy(true);
    double us = me->cpu_us;
    yield_baton();
    return us;
}

static bool is_turn_over(void) { return !me->is_busy && stage.turns->asks[me->ask].busy > 0; }

struct ls_probe_record __real_ls_probe_begin(ls_probe_kind kind, const char *label);
struct ls_probe_record __wrap_ls_probe_begin(ls_probe_kind kind, const char *label);
struct ls_probe_record __wrap_ls_probe_begin(ls_probe_kind kind, const char *label) {
    if (me && kind == LS_PROBE_LOCK) stage.turns->late += stage.turns->asks[me->ask].waits > 0;
    if (me && kind == LS_PROBE_UNLOCK) stage.turns->hasty += !is_turn_over();
    return __real_ls_probe_begin(kind, label);
}

/* Handles a LOCK or an UNLOCK record, whichever call writes it. */
static void look_at_record(ls_probe_kind kind, uintptr_t object, const char *label) {
    bool is_lock = kind == LS_PROBE_LOCK;
    if (!is_lock) yield_baton();
    if (object != stage.object) stage.turns->objects++;
    stage.object = object;
    stage.turns->other_labels += strcmp(label, NAME) != 0;
    if (is_lock) {
        stage.turns->locks++;
        stage.turns->slow += me->is_busy || is_turn_over();
        stage.turns->torn += stage.last_lock >= 0;
    } else {
        stage.turns->unlocks++;
        stage.turns->hasty += !is_turn_over();
        stage.turns->torn += stage.last_lock != me->number;
    }
    stage.last_lock = is_lock ? me->number : -1;
    if (is_lock) yield_baton();
}

static bool is_looked_at(ls_probe_kind kind) { return me && (kind == LS_PROBE_LOCK || kind == LS_PROBE_UNLOCK); }

void __real_ls_probe_end(struct ls_probe_record *record);
void __wrap_ls_probe_end(struct ls_probe_record *record);
void __wrap_ls_probe_end(struct ls_probe_record *record) {
    if (is_looked_at(record->kind)) look_at_record(record->kind, record->object, record->label);
    __real_ls_probe_end(record);
}

void __real_ls_probe_instant(ls_probe_kind kind, const char *label, uintptr_t object, uint32_t number);
void __wrap_ls_probe_instant(ls_probe_kind kind, const char *label, uintptr_t object, uint32_t number);
void __wrap_ls_probe_instant(ls_probe_kind kind, const char *label, uintptr_t object, uint32_t number) {
    if (is_looked_at(kind)) look_at_record(kind, object, label);
    if (me && kind == LS_PROBE_LOCK) stage.turns->late++; /* it does not show the wait */
    __real_ls_probe_instant(kind, label, object, number);
}

/* --- a thread ------------------------------------------------------------------------------------------------------ */

static void ask(struct turns *t, struct actor *a) {
    a->ask = t->ask_count++;
    a->clock_readings = 0;
    stage.now_us += 1e3 * ls_wait_timeout_s();
    t->asks[a->ask].thread = a->number;
    t->asks[a->ask].status = ls_host_lock_pass(ls_device_stream(a->device, LS_STREAM_COMPUTE));
    if (a->is_busy) end_busy(false);
    a->ask = -1;
}

static void *thread_main(void *argument) {
    struct actor *a = argument;
    ls_log_sink before = ls_log_capture(a->message, sizeof a->message);
    pthread_mutex_lock(&stage.lock);
    await_baton(a);
    pthread_mutex_unlock(&stage.lock);
    me = a;
    for (int i = 0; i < stage.turns->asks_of_each; i++) {
        ask(stage.turns, a);
        yield_baton();
    }
    me = NULL;
    pthread_mutex_lock(&stage.lock);
    a->state = ENDED;
    hand_over();
    pthread_mutex_unlock(&stage.lock);
    ls_log_restore(before);
    return NULL;
}

static ls_status run_threads(struct turns *t) {
    int started = 0;
    stage.current = -2; /* none, until all have started */
    while (started < t->threads &&
           pthread_create(&stage.actors[started].thread, NULL, thread_main, &stage.actors[started]) == 0)
        started++;
    if (started < t->threads) return ls_fail(LS_ERR_SYSTEM, "no thread %d", started);
    pthread_mutex_lock(&stage.lock);
    hand_over();
    pthread_mutex_unlock(&stage.lock);
    for (int i = 0; i < started; i++) pthread_join(stage.actors[i].thread, NULL);
    for (int i = 0; i < started; i++) t->reports += stage.actors[i].message[0] != '\0';
    return LS_OK;
}

/* Code that loses a turn also loses one among several threads, where it is reported: here the count restarts. */
static ls_status take_turns_before(const struct turns *t, const ls_stream *stream) {
    char said[256];
    ls_log_sink before = ls_log_capture(said, sizeof said);
    ls_status status = LS_OK;
    leaping_us = 1;
    for (int i = 0; status == LS_OK && i < t->turns_before; i++) status = ls_host_lock_pass(stream);
    leaping_us = 0;
    ls_log_restore(before);
    return status == LS_OK ? LS_OK : ls_host_lock_set(t->us, true);
}

ls_status turns_run(struct turns *t) {
    ls_status status = ls_host_lock_set(t->us, true);
    stage.turns = t;
    stage.now_us = 30 * 86400e6; /* as on a machine that has run for a month */
    stage.holders = 0;
    stage.last_lock = -1;
    stage.object = 0;
    ls_generator_seed(&stage.draw, t->seed);
    for (int i = 0; i < t->threads; i++) {
        stage.actors[i] = (struct actor){.number = i, .ask = -1};
        ls_device_options options = {.kind = LS_DEVICE_CPU, .index = i, .devices_on_node = t->threads, .place = i};
        if (status == LS_OK) status = ls_device_open(&stage.actors[i].device, &options);
    }
    if (status == LS_OK) status = take_turns_before(t, ls_device_stream(stage.actors[0].device, LS_STREAM_COMPUTE));
    if (status == LS_OK) status = run_threads(t);
    if (t->asked_before_loss == 0) t->asked_before_loss = t->ask_count;
    for (int i = 0; i < t->threads; i++)
        if (stage.actors[i].device) ls_device_close(stage.actors[i].device);
    return status;
}

/* --- concurrent draws ----------------------------------------------------------------------------------------------- */

static void *crowd_main(void *argument) {
    (void)argument;
    char message[256];
    ls_log_sink before = ls_log_capture(message, sizeof message);
    ls_stream *stream = ls_device_stream(crowd.device, LS_STREAM_COMPUTE);
    pthread_barrier_wait(&crowd.together);
    is_crowded = true;
    for (int i = 0; i < CROWD_MOST_ASKS && atomic_load(&crowd.meetings) < CROWD_MEETINGS; i++) {
        (void)ls_host_lock_pass(stream);
        if (i >= 100 && !has_waited) break;
    }
    is_crowded = false;
    ls_log_restore(before);
    return NULL;
}

ls_status turns_crowd(int *doubles) {
    pthread_t threads[CROWD_THREADS];
    int started = 0;
    ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = 1000};
    ls_status status = ls_device_open(&crowd.device, &options);
    if (status == LS_OK) status = ls_host_lock_set(1e-3, false);
    if (status != LS_OK) return status;
    for (int i = 0; i < CROWD_PLACES; i++) atomic_store(&crowd.seen[i], 0);
    atomic_store(&crowd.doubles, 0);
    atomic_store(&crowd.meetings, 0);
    pthread_barrier_init(&crowd.together, NULL, CROWD_THREADS);
    while (started < CROWD_THREADS && pthread_create(&threads[started], NULL, crowd_main, NULL) == 0) started++;
    if (started < CROWD_THREADS) return ls_fail(LS_ERR_SYSTEM, "no thread %d", started);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crowd.together);
    ls_device_close(crowd.device);
    *doubles = atomic_load(&crowd.doubles);
    return LS_OK;
}
