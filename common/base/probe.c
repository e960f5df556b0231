/* probe — the threads' records.
 *   idea  : every thread that writes has a log of its own: a list of chunks, and it alone appends to the last one. A
 *           thread puts its log into one common list at its first record, so that logs outlive their threads. A number,
 *           the generation, says which start a log belongs to: a thread whose log has an older generation knows that
 *           the log was dropped, and begins another
 *   cost  : off, a predicted branch. On, two readings of the clock (with cpu_time two system calls more, some 0.3 us
 *           each) and 128 bytes written; memory for more records is allocated at every 64th record of a thread, then
 *           less and less often, up to every 4096th
 *   order : no lock and no atomic operation orders a record. The reader knows that the writers are done (between steps)
 *           by the flags and events with which the threads hand off work. A RAISE is therefore written before the flag
 *           is raised, and a RUN before its stream continues
 *   fails : without memory, records are lost and counted; earlier ones stay readable */
#define _GNU_SOURCE
#include "common/base/probe.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

enum { FIRST_CHUNK = 64, LARGEST_CHUNK = 4096, NAME_NBYTES = 48 };

struct chunk {
    struct chunk *next;
    size_t count, capacity;
    struct ls_probe_record records[];
};

/* One thread's records since the start. */
struct thread_log {
    struct thread_log *next;
    struct chunk *first, *last;
    char name[NAME_NBYTES];
};

_Atomic bool ls_probe_is_on;

/* Written by start before the probes are on. A thread that has just begun to wait (AWAIT) may read them meanwhile; one
 * that has seen the probes on sees the values that start wrote. */
static _Atomic bool with_cpu_time;
static _Atomic double started_us;
static _Atomic double record_us;

static struct ls_probe_thread *read_threads; /* of the thread that starts, stops and reads */

static _Atomic uint32_t generation = 1;
static _Atomic int32_t step_in_progress = -1;
static _Atomic uint64_t lost;
static struct thread_log *_Atomic logs; /* the latest first */

/* The records of GPUs. */
static struct {
    pthread_mutex_t lock;
    uint32_t generation; /* of log */
    struct thread_log *log;
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The calling thread. */
static _Thread_local struct {
    uint32_t generation; /* of log and phase */
    struct thread_log *log;
    const char *phase;
    char name[NAME_NBYTES];
    bool muted;
} self;

/* --- switching ---------------------------------------------------------------------------------------------------- */

static void free_chunks(struct chunk *chunk) {
    while (chunk) {
        struct chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
}

void ls_probe_drop(void) {
    struct thread_log *log = atomic_exchange(&logs, NULL);
    while (log) {
        struct thread_log *next = log->next;
        free_chunks(log->first);
        free(log);
        log = next;
    }
    free(read_threads);
    read_threads = NULL;
    atomic_store(&lost, 0);
    atomic_fetch_add(&generation, 1);
}

void ls_probe_stop(void) { atomic_store(&ls_probe_is_on, false); }

void ls_probe_step(int32_t step) { atomic_store_explicit(&step_in_progress, step, memory_order_relaxed); }

/* --- writing ------------------------------------------------------------------------------------------------------ */

static bool has_cpu_time(void) { return atomic_load_explicit(&with_cpu_time, memory_order_relaxed); }

/* Drops the records of an earlier start. */
static void forget_earlier_start(void) {
    uint32_t present = atomic_load_explicit(&generation, memory_order_relaxed);
    if (self.generation == present) return;
    self.generation = present;
    self.log = NULL;
    self.phase = NULL;
}

/* Makes a log and adds it to the list; NULL without memory. */
static struct thread_log *make_log(const char *name) {
    struct thread_log *log = calloc(1, sizeof *log);
    if (!log) return NULL;
    snprintf(log->name, sizeof log->name, "%s", name);
    log->next = atomic_load(&logs);
    while (!atomic_compare_exchange_weak(&logs, &log->next, log)) continue;
    return log;
}

/* The calling thread's log, made at its first record. */
static struct thread_log *own_log(void) {
    if (!self.log) self.log = make_log(self.name[0] ? self.name : "thread");
    return self.log;
}

/* Space for one more record; NULL without memory. */
static struct ls_probe_record *place_in(struct thread_log *log) {
    struct chunk *last = log->last;
    if (last && last->count < last->capacity) return &last->records[last->count++];
    size_t capacity = !last ? FIRST_CHUNK : 2 * last->capacity < LARGEST_CHUNK ? 2 * last->capacity : LARGEST_CHUNK;
    struct chunk *chunk = malloc(sizeof *chunk + capacity * sizeof *chunk->records);
    if (!chunk) return NULL;
    chunk->next = NULL;
    chunk->count = 1;
    chunk->capacity = capacity;
    *(last ? &last->next : &log->first) = chunk;
    log->last = chunk;
    return &chunk->records[0];
}

struct ls_probe_record ls_probe_begin(ls_probe_kind kind, const char *label) {
    (void)atomic_load_explicit(&ls_probe_is_on, memory_order_acquire);
    forget_earlier_start();
    struct ls_probe_record record = {.label = label,
                                     .phase = self.phase,
                                     .step = atomic_load_explicit(&step_in_progress, memory_order_relaxed),
                                     .device = -1,
                                     .root = -1,
                                     .from = -1,
                                     .to = -1,
                                     .kind = (uint8_t)kind};
    record.begin_us = ls_now_us();
    if (has_cpu_time()) record.begin_cpu_us = ls_thread_cpu_us(); /* inside the wall-clock interval, so never longer */
    return record;
}

/* A record that began before the start counts from the start on; its CPU time until then is unknown. */
static void clamp(struct ls_probe_record *record) {
    double from_us = atomic_load_explicit(&started_us, memory_order_relaxed);
    if (record->begin_us >= from_us) return;
    record->begin_us = from_us;
    record->begin_cpu_us = record->end_cpu_us;
}

static void keep_in(struct thread_log *log, const struct ls_probe_record *record) {
    struct ls_probe_record *place = log ? place_in(log) : NULL;
    if (place) *place = *record;
    if (!place) atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
}

static void append_record(const struct ls_probe_record *record) {
    if (self.muted) return;
    forget_earlier_start();
    keep_in(own_log(), record);
}

void ls_probe_tell(const struct ls_probe_record *record) {
    pthread_mutex_lock(&told.lock);
    uint32_t present = atomic_load_explicit(&generation, memory_order_relaxed);
    if (told.generation != present) told.log = NULL;
    told.generation = present;
    if (!told.log) told.log = make_log("GPUs");
    keep_in(told.log, record);
    pthread_mutex_unlock(&told.lock);
}

/* Ends the record now. */
static void finish(struct ls_probe_record *record) {
    if (has_cpu_time()) record->end_cpu_us = ls_thread_cpu_us();
    record->end_us = ls_now_us();
    clamp(record);
}

void ls_probe_end(struct ls_probe_record *record) {
    if (!ls_probing()) return;
    finish(record);
    append_record(record);
}

void ls_probe_instant(ls_probe_kind kind, const char *label, uintptr_t object, uint32_t number) {
    if (!ls_probing()) return;
    struct ls_probe_record record = ls_probe_begin(kind, label);
    record.object = object;
    record.number = number;
    record.end_us = record.begin_us;
    record.end_cpu_us = record.begin_cpu_us;
    append_record(&record);
}

void ls_probe_phase(const char *phase) {
    forget_earlier_start();
    self.phase = phase;
}

void ls_probe_mute(bool muted) { self.muted = muted; }

void ls_probe_name_thread(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(self.name, sizeof self.name, format, arguments);
    va_end(arguments);
    forget_earlier_start();
    if (self.log) memcpy(self.log->name, self.name, sizeof self.log->name);
}

/* --- starting --------------------------------------------------------------------------------------------------- */

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The median of some rounds of records, which are then dropped. In a step a record costs more if it evicts the step's
 * own data from a cache; that is not measured. */
static double measure_record_us(void) {
    enum { ROUNDS = 15, RECORDS = 64 };
    double us[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double begin_us = ls_now_us();
        for (int i = 0; i < RECORDS; i++) {
            struct ls_probe_record record = ls_probe_begin(LS_PROBE_MARK, "cost");
            finish(&record);
            append_record(&record);
        }
        us[round] = (ls_now_us() - begin_us) / RECORDS;
    }
    ls_probe_drop();
    qsort(us, ROUNDS, sizeof *us, ascending);
    return us[ROUNDS / 2];
}

void ls_probe_start(bool cpu_time) {
    ls_probe_drop();
    atomic_store(&with_cpu_time, cpu_time);
    atomic_store(&record_us, measure_record_us());
    atomic_store(&started_us, ls_now_us());
    atomic_store(&step_in_progress, -1);
    atomic_store(&ls_probe_is_on, true);
}

double ls_probe_record_us(void) { return atomic_load(&record_us); }

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Replaces the log's chunks by one that has all of its records. */
static bool join_chunks(struct thread_log *log) {
    if (!log->first || !log->first->next) return true;
    size_t count = 0;
    for (const struct chunk *c = log->first; c; c = c->next) count += c->count;
    struct chunk *whole = malloc(sizeof *whole + count * sizeof *whole->records);
    if (!whole) return false;
    *whole = (struct chunk){.capacity = count};
    for (const struct chunk *c = log->first; c; c = c->next) {
        memcpy(whole->records + whole->count, c->records, c->count * sizeof *c->records);
        whole->count += c->count;
    }
    free_chunks(log->first);
    log->first = log->last = whole;
    return true;
}

ls_status ls_probe_read(const struct ls_probe_thread **threads, size_t *count) {
    *threads = NULL;
    *count = 0;
    size_t there = 0;
    for (const struct thread_log *log = atomic_load(&logs); log; log = log->next) there++;
    free(read_threads);
    read_threads = calloc(there + 1, sizeof *read_threads);
    bool whole = read_threads != NULL;
    size_t number = there; /* the list begins with the latest */
    for (struct thread_log *log = atomic_load(&logs); whole && log; log = log->next) {
        whole = join_chunks(log);
        number--;
        read_threads[number] = (struct ls_probe_thread){.name = log->name, .number = (int)number};
        if (!whole || !log->first) continue;
        read_threads[number].records = log->first->records;
        read_threads[number].count = log->first->count;
    }
    if (!whole) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the records of %zu threads", there);
    *threads = read_threads;
    *count = there;
    return LS_OK;
}

uint64_t ls_probe_lost(void) { return atomic_load(&lost); }
