/* Flight records: for each kind of hang, the table names the rank and the operation; the ring keeps what it should,
 * without blocking or allocating; files are read back as written, and damaged ones are refused. */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/comm/comm_internal.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/comm/ranks.h"

#define SHORT_S 1.0
#define LONG_S 60.0
#define RANKS 4
#define ODD 2      /* the rank that differs */
#define ODD_STEP 3 /* the step in which it differs */
#define BUCKETS 3

/* --- hangs -------------------------------------------------------------------------------------------------------- */

enum way { SKIPS, SKIPS_ALIKE, EXTRA, ORDER, COUNT, STOPS, DIES, BRANCHES };

struct hang {
    const char *name;
    enum way way;
    bool processes_only;
    double timeout_s;
    const char *cause;   /* the table's first line */
    const char *odd_row; /* a part of the row of rank ODD */
    const char *others;  /* a part of the others' rows */
};

static const struct hang hangs[] = {
    {"a rank skips a collective", SKIPS, false, LONG_S,
     "rank 2 is at #15 all_reduce of bucket 2, the others at #15 all_reduce of bucket 1\n",
     "rank 2          in         #15 all_reduce of bucket 2 (300 fp32, sum)",
     "ranks 0, 1, 3   in         #15 all_reduce of bucket 1 (200 fp32, sum)"},
    {"a rank skips one of several that are alike", SKIPS_ALIKE, false, LONG_S,
     "rank 2 is at #11 all_reduce of bucket 2, the others at #11 all_reduce of bucket 1\n",
     "rank 2          left after #14 all_reduce of bucket 2", "in         #15 all_reduce of bucket 2"},
    {"a rank has one more", EXTRA, false, LONG_S,
     "rank 2 is at #15 barrier, the others at #15 all_reduce of bucket 1\n", "rank 2          in         #15 barrier",
     "ranks 0, 1, 3   in         #15 all_reduce of bucket 1"},
    {"a rank has another order of buckets", ORDER, false, LONG_S,
     "rank 2 is at #15 all_reduce of bucket 2, the others at #15 all_reduce of bucket 1\n",
     "rank 2          in         #15 all_reduce of bucket 2", "ranks 0, 1, 3   in         #15 all_reduce of bucket 1"},
    {"a rank has another count", COUNT, false, LONG_S,
     "rank 2 is at #15 all_reduce of bucket 1 (201 fp32, sum), the others at #15 all_reduce of bucket 1 (200 fp32, "
     "sum)\n",
     "rank 2          in         #15 all_reduce of bucket 1 (201 fp32, sum)", "(200 fp32, sum)"},
    {"a rank is stopped", STOPS, true, SHORT_S, "rank 2 is missing at #15 all_reduce of bucket 1 (200 fp32, sum)\n",
     "rank 2          after      #14 all_reduce of bucket 0", "ranks 0, 1, 3   in         #15 all_reduce of bucket 1"},
    {"a rank dies", DIES, true, LONG_S, "rank 2 is missing at #15 all_reduce of bucket 1 (200 fp32, sum)\n",
     "rank 2          died after #14 all_reduce of bucket 0", "in         #15 all_reduce of bucket 1"},
    {"ranks take different branches", BRANCHES, false, SHORT_S,
     "rank 2 is without a match for #1 send of activations to rank 2 (50 fp32)\n",
     "ranks 0, 2, 3   in         #15 all_reduce of bucket 1", "#1 send of activations to rank 2 (50 fp32)"},
};

static ls_status reduce_bucket(struct rank *rank, const struct hang *hang, int bucket, size_t more) {
    static _Thread_local float values[BUCKETS * 100 + 1];
    size_t count = hang->way == SKIPS_ALIKE ? 100 : 100 * ((size_t)bucket + 1);
    ls_comm_label(rank->comm, "bucket", bucket);
    return ls_comm_all_reduce(rank->comm, rank->stream, values, count + more, LS_FP32, LS_REDUCE_SUM);
}

/* The odd rank's operation in place of bucket 1. */
static ls_status do_otherwise(struct rank *rank, const struct hang *hang) {
    float values[50];
    ls_status status = LS_OK;
    switch (hang->way) {
    case SKIPS:
    case SKIPS_ALIKE: return LS_OK;
    case EXTRA: status = ls_comm_barrier(rank->comm, rank->stream); break;
    case ORDER: status = reduce_bucket(rank, hang, 2, 0); break;
    case COUNT: return reduce_bucket(rank, hang, 1, 1);
    case STOPS: (void)raise(SIGSTOP); break;
    case DIES: (void)raise(SIGKILL); break;
    case BRANCHES:
        if (rank->rank == ODD) return reduce_bucket(rank, hang, 1, 0);
        ls_comm_label(rank->comm, "activations", -1);
        return ls_comm_send(rank->comm, rank->stream, values, 50, LS_FP32, ODD);
    }
    return status == LS_OK ? reduce_bucket(rank, hang, 1, 0) : status;
}

static ls_status run_step(struct rank *rank, const struct hang *hang, int step) {
    float value = 0;
    ls_status status = LS_OK;
    if (hang->way != SKIPS_ALIKE) status = ls_comm_broadcast(rank->comm, rank->stream, &value, 1, LS_FP32, 0);
    for (int b = 0; b < BUCKETS && status == LS_OK; b++) {
        bool odd = rank->rank == ODD || (hang->way == BRANCHES && rank->rank == 1);
        bool otherwise = step == ODD_STEP && b == 1 && odd;
        status = otherwise ? do_otherwise(rank, hang) : reduce_bucket(rank, hang, b, 0);
    }
    return status;
}

static void hang_body(struct rank *rank) {
    const struct hang *hang = rank->argument;
    CHECK(rank_open(rank, "inline", NULL, hang->timeout_s) == LS_OK);
    ls_status status = LS_OK;
    for (int step = 0; step < ODD_STEP + 2 && status == LS_OK; step++) status = run_step(rank, hang, step);
    CHECK(status != LS_OK || (hang->way == SKIPS_ALIKE && rank->rank == ODD));
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

static void end_stopped(const pid_t *pids) {
    siginfo_t ended;
    for (int r = 0; r < RANKS; r++)
        if (r != ODD) assert_int_equal(waitid(P_PID, (id_t)pids[r], &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(kill(pids[ODD], SIGKILL), 0);
}

/* Reads and removes the only record in the folder. */
static ls_flight_record *take_record(void) {
    char path[512] = "";
    DIR *folder = opendir(scratch_folder());
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strstr(entry->d_name, ".jsonl")) snprintf(path, sizeof path, "%s/%s", scratch_folder(), entry->d_name);
    closedir(folder);
    assert_int_equal(scratch_file_count(), 1);
    ls_flight_record *record;
    assert_int_equal(ls_flight_read(&record, path), LS_OK);
    assert_int_equal(unlink(path), 0);
    return record;
}

static void expect_text(const char *name, const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("%s: '%s' is not in\n%s", name, part, text);
}

static void check_hang(const struct rank_backend *backend, const struct hang *hang) {
    char table[LS_FLIGHT_TABLE];
    bool ends = hang->way == STOPS || hang->way == DIES;
    stderr_begin();
    run_ranks_expecting(backend, RANKS, hang_body, hang, hang->way == STOPS ? end_stopped : NULL,
                        ends ? 15 & ~(1u << ODD) : 15, 128 + SIGKILL);
    const char *printed = stderr_end();
    ls_flight_record *record = take_record();
    ls_flight_table(table, record);
    if (strncmp(table, hang->cause, strlen(hang->cause)) != 0)
        fail_msg("%s, %s: the table begins otherwise:\n%s", backend->name, hang->name, table);
    expect_text(hang->name, table, hang->odd_row);
    expect_text(hang->name, table, hang->others);
    /* printed once, not once per rank */
    char line[256];
    snprintf(line, sizeof line, ": %s", hang->cause);
    if (count_text(printed, line) != 1) fail_msg("%s: not printed once:\n%s", hang->name, printed);
    ls_flight_free(record);
}

TEST_IN(scratch, the_table_names_rank_and_place) {
    setenv("LS_FLIGHT", scratch_folder(), 1);
    for (const struct rank_backend *backend = rank_backends; backend->name; backend++)
        for (size_t i = 0; i < COUNT_OF(hangs); i++)
            if (!hangs[i].processes_only || backend == rank_backends) check_hang(backend, &hangs[i]);
    unsetenv("LS_FLIGHT");
}

/* --- the ring ----------------------------------------------------------------------------------------------------- */

/* This program's malloc counts its calls; under a sanitizer the sanitizer's malloc is used. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS false
#elif defined(__has_feature)
#define COUNTS !(__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define COUNTS true
#endif
static _Atomic long allocations;
#if COUNTS
void *__libc_malloc(size_t nbytes);
void *__libc_calloc(size_t count, size_t nbytes);
void *__libc_realloc(void *memory, size_t nbytes);
void *malloc(size_t nbytes) { return atomic_fetch_add(&allocations, 1), __libc_malloc(nbytes); }
void *calloc(size_t count, size_t nbytes) { return atomic_fetch_add(&allocations, 1), __libc_calloc(count, nbytes); }
void *realloc(void *memory, size_t nbytes) { return atomic_fetch_add(&allocations, 1), __libc_realloc(memory, nbytes); }
#endif

static void quiet_body(struct rank *rank) {
    float value = 1;
    CHECK(rank_open(rank, "inline", NULL, LONG_S) == LS_OK);
    for (int i = 0; i < 10; i++) CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    long before = atomic_load(&allocations);
    for (int i = 0; i < 1000; i++) {
        ls_comm_label(rank->comm, "a label that is longer than a record has room for", i);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, &value, 1, LS_FP32, LS_REDUCE_MAX) == LS_OK);
    }
    CHECK(atomic_load(&allocations) == before);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK); /* rank_close frees, while others still count */
    rank_close(rank);
}

TEST(recording_allocates_nothing) {
    long before = atomic_load(&allocations);
    free(malloc(1));
    assert_int_equal(atomic_load(&allocations) - before, COUNTS ? 1 : 0);
    run_good_ranks_on_all(3, quiet_body, NULL);
}

static ls_flight_record *take(const struct rank *rank) {
    const bool late[LS_COMM_MAX_RANKS] = {false};
    return ls_flight_take(rank->comm, LS_ERR_TIMEOUT, "a test", late);
}

/* 100 collectives, a message to the peer and one back: the last 64 operations are kept, in order, and all are done. */
static void kept_body(struct rank *rank) {
    float values[200] = {0};
    int peer = 1 - rank->rank;
    CHECK(rank_open(rank, "inline", NULL, LONG_S) == LS_OK);
    for (int i = 0; i < 100; i++) {
        if (i == 98) ls_comm_label(rank->comm, "a label that is longer than a record has room for", 7);
        CHECK(ls_comm_reduce(rank->comm, rank->stream, values, 200, LS_FP32, LS_REDUCE_MIN, 1) == LS_OK);
    }
    CHECK(ls_comm_send_recv(rank->comm, rank->stream, values, values + 100, 100, LS_FP32, peer) == LS_OK);
    if (rank->rank == 0) CHECK(ls_comm_send(rank->comm, rank->stream, values, 10, LS_INT32, peer) == LS_OK);
    if (rank->rank == 1) CHECK(ls_comm_recv(rank->comm, rank->stream, values, 10, LS_INT32, peer) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    ls_flight_record *record = take(rank);
    CHECK(record && record->world_size == 2 && record->group_count == 1 && record->groups[0].size == 2);
    const ls_flight_rank *mine = &record->ranks[rank->rank];
    CHECK(mine->presence == LS_FLIGHT_PRESENT && mine->count == LS_FLIGHT_KEPT && mine->operations[0].number == 39);
    for (int i = 0; i < mine->count; i++) {
        const ls_flight_operation *o = &mine->operations[i];
        CHECK(o->number == 39 + (uint64_t)i && o->state == LS_FLIGHT_DONE &&
              (o->enqueued_ms > 0) == (o->count > LS_FLIGHT_UNTIMED));
        if (i >= 62) continue;
        CHECK(o->kind == LS_OPERATION_REDUCE && o->sequence == o->number && o->count == 200 && o->op == LS_REDUCE_MIN);
        CHECK(o->root == 1 && o->started_ms >= o->enqueued_ms && o->done_ms >= o->started_ms);
        bool labelled = o->sequence == 99;
        CHECK(strcmp(o->label, labelled ? "a label that is longer than a r" : "") == 0);
        CHECK(o->label_number == (labelled ? 7 : -1));
    }
    const ls_flight_operation *both = &mine->operations[62], *last = &mine->operations[63];
    CHECK(both->kind == LS_OPERATION_SEND_RECV && both->sequence == 1 && both->received == 1 && both->root == peer);
    CHECK(last->dtype == LS_INT32 && last->root == peer && last->done_ms == 0); /* small operations have no time */
    CHECK(rank->rank == 0 ? last->kind == LS_OPERATION_SEND && last->sequence == 2 : last->received == 2);
    CHECK(!ls_flight_pending(record, rank->rank) && ls_flight_last(record, rank->rank) == last);
    ls_flight_free(record);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    rank_close(rank);
}

TEST(the_last_64_operations_are_kept) { run_good_ranks_on_all(2, kept_body, NULL); }

/* A rank may die while it writes an entry, and a mark may arrive after the entry has been reused for another
 * operation. */
static void torn_body(struct rank *rank) {
    float value = 1;
    CHECK(rank_open(rank, "inline", NULL, LONG_S) == LS_OK);
    for (int i = 0; i < 5; i++)
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, &value, 1, LS_FP32, LS_REDUCE_MAX) == LS_OK);
    ls_flight_ring *ring = rank->comm->ring;
    atomic_store(&ring->entries[2].number, 0);
    ls_flight_stamp((ls_flight_mark){&ring->entries[4], ring->entries[4].number - LS_FLIGHT_KEPT}, LS_STAMP_DONE, 1);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    ls_flight_record *record = take(rank);
    const ls_flight_rank *mine = &record->ranks[rank->rank];
    CHECK(mine->count == 5 && mine->operations[1].number == 2 && mine->operations[2].number == 4);
    CHECK(mine->operations[3].number == 5 && mine->operations[3].state == LS_FLIGHT_STARTED);
    ls_flight_free(record);
    rank_close(rank);
}

TEST(an_entry_that_is_being_written_is_left_out) { run_good_ranks_on_all(2, torn_body, NULL); }

/* Rank 0 records at full speed while the others read: every entry that they read is consistent. */
static void busy_body(struct rank *rank) {
    enum { MANY = 200000 };
    CHECK(rank_open(rank, "inline", NULL, LONG_S) == LS_OK);
    const ls_flight_log *log = &rank->comm->flight[0];
    for (uint64_t i = 1; rank->rank == 0 && i <= MANY; i++) {
        const ls_announcement what = {.sequence = i, .count = 3 * i, .kind = LS_OPERATION_REDUCE, .root = (int)(i % 3)};
        ls_comm_label(rank->comm, i % 2 ? "odd" : "even", (int)i);
        CHECK(ls_flight_enqueue(rank->comm, &what).number == i);
    }
    while (rank->rank > 0 && atomic_load(&log->enqueued) < MANY) {
        for (int place = 0; place < LS_FLIGHT_KEPT; place++) {
            ls_flight_operation o;
            if (!ls_flight_read_entry(&log->rings[0], place, &o) || o.number > MANY) continue; /* > MANY: the barrier */
            CHECK(o.sequence == o.number && o.count == 3 * o.number && o.label_number == (int)o.number);
            CHECK(o.root == (int)(o.number % 3) && strcmp(o.label, o.number % 2 ? "odd" : "even") == 0);
        }
    }
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    rank_close(rank);
}

TEST(records_taken_meanwhile_are_whole) { run_good_ranks_on_all(3, busy_body, NULL); }

TEST(a_group_may_be_without_record) {
    ls_comm *comms[2];
    const bool late[2] = {false};
    const ls_comm_options options = {.world_size = 2, .timeout_s = 1, .unrecorded = true};
    assert_int_equal(ls_comm_create_threads(comms, &options), LS_OK);
    assert_true(!comms[0]->ring && !comms[1]->ring);
    assert_null(ls_flight_take(comms[0], LS_ERR_TIMEOUT, "a test", late));
    for (int r = 0; r < 2; r++) ls_comm_destroy(comms[r]);
}

/* A group of ranks 1 and 3: its rank 0 is rank 1 of the job, and its root 1 is rank 3. */
TEST(a_part_of_a_job_is_recorded_with_the_job) {
    ls_comm *job[4], *part[2];
    const bool late[LS_COMM_MAX_RANKS] = {false, true};
    ls_comm_options options = {.world_size = 4, .timeout_s = 1};
    assert_int_equal(ls_comm_create_threads(job, &options), LS_OK);
    options = (ls_comm_options){
        .world_size = 2, .timeout_s = 1, .group = "run7/group0/odd", .job = job[1], .first = 1, .stride = 2};
    assert_int_equal(ls_comm_create_threads(part, &options), LS_OK);
    const ls_announcement what = {.kind = LS_OPERATION_BROADCAST, .sequence = 1, .count = 100, .root = 1};
    (void)ls_flight_enqueue(part[0], &what);
    ls_flight_record *record = ls_flight_take(part[0], LS_ERR_TIMEOUT, "a test", late);
    assert_non_null(record);
    assert_int_equal(record->world_size, 4);
    assert_int_equal(record->taken_by, 1);
    assert_int_equal(record->ranks[1].count, 1);
    assert_int_equal(record->ranks[1].operations[0].root, 3);
    assert_true(record->ranks[3].late && !record->ranks[1].late);
    const ls_flight_group *group = &record->groups[record->group];
    assert_string_equal(group->name, "group0/odd");
    assert_true(group->first == 1 && group->stride == 2 && group->size == 2);
    ls_flight_free(record);
    for (int r = 0; r < 2; r++) ls_comm_destroy(part[r]);
    for (int r = 0; r < 4; r++) ls_comm_destroy(job[r]);
}

/* A record also shows which operation a host call waits for. */
static void host_call_body(struct rank *rank) {
    void *memory;
    CHECK(rank_open(rank, "inline", NULL, SHORT_S) == LS_OK);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    ls_status status = rank->rank == 0 ? ls_comm_alloc_shared(rank->comm, NULL, 4096, &memory)
                                       : ls_comm_barrier(rank->comm, rank->stream);
    CHECK(status == LS_ERR_TIMEOUT);
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

TEST_IN(scratch, a_host_call_shows) {
    char table[LS_FLIGHT_TABLE];
    setenv("LS_FLIGHT", scratch_folder(), 1);
    stderr_begin();
    run_good_ranks_on(&rank_backends[0], 2, host_call_body, NULL);
    (void)stderr_end();
    unsetenv("LS_FLIGHT");
    ls_flight_record *record = take_record();
    expect_text("host call", ls_flight_table(table, record),
                "rank 0          in         alloc_shared (4096 bytes), 1.");
    expect_text("host call", table, "rank 1          in         #2 barrier\n");
    ls_flight_free(record);
}

int main(void) { return run_added_tests(); }
