/* The probes alone: the contents of a record, which records are kept, and to which thread they belong. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/flag.h"
#include "common/base/probe.h"
#include "tests/base/test.h"

static int drop(void **state) {
    (void)state;
    ls_probe_stop();
    ls_probe_drop();
    return 0;
}

static const struct ls_probe_thread *read_threads(size_t expected) {
    const struct ls_probe_thread *threads;
    size_t count;
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    assert_int_equal(count, expected);
    return threads;
}

static void write_one(const char *label, uint32_t number) { ls_probe_instant(LS_PROBE_MARK, label, 0, number); }

TEST_WITH(NULL, drop, test_nothing_is_kept_while_off) {
    assert_false(ls_probing());
    write_one("off", 1);
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_RUN, "off");
    ls_probe_end(&record);
    (void)read_threads(0);
}

TEST_WITH(NULL, drop, test_a_record_has_its_fields) {
    double before_us = ls_now_us();
    ls_probe_start(false);
    ls_probe_step(7);
    ls_probe_phase("forward");
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_LAUNCH, "gemm");
    record.object = 42;
    record.bytes = 1000;
    record.number = 3;
    ls_probe_end(&record);
    ls_probe_phase(NULL);
    ls_probe_step(-1);
    write_one("after", 9);
    ls_probe_stop();
    const struct ls_probe_thread *thread = read_threads(1);
    assert_int_equal(thread->count, 2);
    const struct ls_probe_record *first = &thread->records[0], *second = &thread->records[1];
    assert_int_equal(first->kind, LS_PROBE_LAUNCH);
    assert_string_equal(first->label, "gemm");
    assert_string_equal(first->phase, "forward");
    assert_int_equal(first->step, 7);
    assert_int_equal(first->object, 42);
    assert_int_equal(first->bytes, 1000);
    assert_int_equal(first->number, 3);
    assert_int_equal(first->device, -1);
    assert_int_equal(first->from, -1);
    assert_int_equal(first->to, -1);
    assert_true(first->begin_us >= before_us && first->end_us >= first->begin_us);
    assert_true(second->begin_us >= first->end_us);
    assert_true(second->end_us == second->begin_us);
    assert_null(second->phase);
    assert_int_equal(second->step, -1);
    assert_int_equal(second->number, 9);
    assert_true(first->begin_cpu_us == 0 && first->end_cpu_us == 0);
}

/* --- many threads, many records ----------------------------------------------------------------------------------- */

enum { WRITERS = 4, RECORDS = 20000 };

struct writer {
    int index;
    pthread_t thread;
};

static const char *const writer_names[WRITERS] = {"writer 0", "writer 1", "writer 2", "writer 3"};

static void *write_many(void *argument) {
    const struct writer *writer = argument;
    ls_probe_name_thread("writer %d", writer->index);
    for (uint32_t i = 0; i < RECORDS; i++) ls_probe_instant(LS_PROBE_MARK, "many", (uintptr_t)writer->index, i);
    return NULL;
}

static void run_writers(struct writer *writers) {
    for (int w = 0; w < WRITERS; w++) {
        writers[w].index = w;
        assert_int_equal(pthread_create(&writers[w].thread, NULL, write_many, &writers[w]), 0);
    }
    for (int w = 0; w < WRITERS; w++) pthread_join(writers[w].thread, NULL);
}

/* The threads have ended; the records of each are kept, in order. */
TEST_WITH(NULL, drop, test_every_thread_keeps_its_records_in_order) {
    struct writer writers[WRITERS];
    ls_probe_start(false);
    run_writers(writers);
    const struct ls_probe_thread *threads = read_threads(WRITERS);
    bool seen[WRITERS] = {false};
    for (int t = 0; t < WRITERS; t++) {
        assert_int_equal(threads[t].number, t);
        assert_int_equal(threads[t].count, RECORDS);
        size_t writer = (size_t)threads[t].records[0].object;
        assert_in_range(writer, 0, WRITERS - 1);
        assert_false(seen[writer]);
        seen[writer] = true;
        assert_string_equal(threads[t].name, writer_names[writer]);
        for (size_t i = 0; i < RECORDS; i++) {
            const struct ls_probe_record *record = &threads[t].records[i];
            if (record->object != writer || record->number != i) fail_msg("record %zu of %s", i, threads[t].name);
            if (i > 0 && !(record->begin_us >= record[-1].begin_us)) fail_msg("time runs backwards at %zu", i);
        }
    }
    assert_int_equal(ls_probe_lost(), 0);
}

TEST_WITH(NULL, drop, test_reading_does_not_end_the_recording) {
    ls_probe_start(false);
    for (uint32_t i = 0; i < 1000; i++) write_one("first part", i);
    assert_int_equal(read_threads(1)->count, 1000);
    for (uint32_t i = 1000; i < 1500; i++) write_one("second part", i);
    const struct ls_probe_thread *thread = read_threads(1);
    assert_int_equal(thread->count, 1500);
    for (uint32_t i = 0; i < 1500; i++) assert_int_equal(thread->records[i].number, i);
}

/* --- starting again ----------------------------------------------------------------------------------------------- */

/* The measurement itself leaves no records. */
TEST_WITH(NULL, drop, test_a_start_measures_what_a_record_costs) {
    const struct ls_probe_thread *threads;
    size_t count;
    ls_probe_start(false);
    assert_true(ls_probe_record_us() > 0);
    ls_probe_stop();
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_probe_drop();
}

TEST_WITH(NULL, drop, test_a_start_forgets_what_was_before) {
    ls_probe_start(false);
    ls_probe_phase("old");
    write_one("old", 1);
    ls_probe_stop();
    write_one("in between", 2);
    assert_int_equal(read_threads(1)->count, 1);
    ls_probe_start(false);
    write_one("new", 3);
    ls_probe_stop();
    const struct ls_probe_thread *thread = read_threads(1);
    assert_int_equal(thread->count, 1);
    assert_string_equal(thread->records[0].label, "new");
    assert_null(thread->records[0].phase);
}

struct patient {
    ls_flag go, done;
};

/* Writes one record each time the test raises the flag. */
static void *write_when_told(void *argument) {
    struct patient *p = argument;
    for (uint32_t i = 1; i <= 3; i++) {
        while (!ls_flag_wait(&p->go, i, 0, ls_now_us() + 1e6)) continue;
        write_one("told", i);
        ls_flag_set(&p->done, i);
    }
    return NULL;
}

static void tell(struct patient *p, uint32_t number) {
    ls_flag_set(&p->go, number);
    while (!ls_flag_wait(&p->done, number, 0, ls_now_us() + 1e6)) continue;
}

/* A thread that runs across drop and start writes only into the new recording. */
TEST_WITH(NULL, drop, test_a_thread_outlives_recordings) {
    struct patient p = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_when_told, &p), 0);
    ls_probe_start(false);
    tell(&p, 1);
    ls_probe_stop();
    ls_probe_drop();
    tell(&p, 2);
    ls_probe_start(false);
    tell(&p, 3);
    ls_probe_stop();
    pthread_join(thread, NULL);
    const struct ls_probe_thread *threads = read_threads(1);
    assert_int_equal(threads->count, 1);
    assert_int_equal(threads->records[0].number, 3);
}

/* A replica's thread waits while the probes are switched on, and while they are switched off. */
TEST_WITH(NULL, drop, test_a_wait_may_straddle_the_switch) {
    struct ls_probe_record early = ls_probe_begin(LS_PROBE_AWAIT, "early");
    double before_us = ls_now_us();
    ls_probe_start(false);
    ls_probe_end(&early);
    struct ls_probe_record late = ls_probe_begin(LS_PROBE_AWAIT, "late");
    ls_probe_stop();
    ls_probe_end(&late);
    const struct ls_probe_thread *thread = read_threads(1);
    assert_int_equal(thread->count, 1);
    assert_string_equal(thread->records[0].label, "early");
    assert_true(thread->records[0].begin_us >= before_us);
    assert_true(thread->records[0].end_us >= thread->records[0].begin_us);
}

/* --- virtual time ------------------------------------------------------------------------------------------------- */

/* A sleeping thread uses no CPU time; a computing one uses no more than the time that passed. */
TEST_WITH(NULL, drop, test_cpu_time_stands_still_in_a_sleep) {
    ls_probe_start(true);
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_RUN, "sleep");
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    ls_probe_end(&record);
    record = ls_probe_begin(LS_PROBE_RUN, "work");
    for (double until_us = ls_now_us() + 2000; ls_now_us() < until_us;) continue;
    ls_probe_end(&record);
    ls_probe_stop();
    const struct ls_probe_record *records = read_threads(1)->records;
    double slept_us = records[0].end_us - records[0].begin_us, worked_us = records[1].end_us - records[1].begin_us;
    double slept_cpu_us = records[0].end_cpu_us - records[0].begin_cpu_us;
    double worked_cpu_us = records[1].end_cpu_us - records[1].begin_cpu_us;
    assert_true(records[0].begin_cpu_us > 0);
    assert_true(slept_us >= 30000 && slept_cpu_us >= 0 && slept_cpu_us < slept_us / 2);
    assert_true(worked_cpu_us > 0 && worked_cpu_us <= worked_us + 1);
    assert_true(records[1].begin_cpu_us >= records[0].end_cpu_us);
}
