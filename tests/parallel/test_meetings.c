/* The probe records of process groups: a collective operation is the same meeting for all of its ranks, whether they
 * are threads or processes. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/probe.h"
#include "common/trace/resolve.h"
#include "tests/base/test.h"
#include "tests/parallel/plan.h"

enum { PAIR = 2, LARGE = 100000, SMALL = 3 };

struct member {
    pthread_t thread;
    ls_comm *comm;
    ls_device *device;
    ls_status status;
    float *values;
};

static ls_status operate(struct member *m) {
    ls_stream *stream = ls_device_stream(m->device, LS_STREAM_COMM);
    int rank = ls_comm_rank(m->comm);
    ls_status status = ls_comm_all_reduce(m->comm, stream, m->values, LARGE, LS_FP32, LS_REDUCE_SUM);
    if (status == LS_OK) status = ls_comm_all_reduce(m->comm, stream, m->values, SMALL, LS_FP32, LS_REDUCE_SUM);
    if (status == LS_OK) status = ls_comm_broadcast(m->comm, stream, m->values, LARGE, LS_FP32, 1);
    if (status == LS_OK) status = ls_comm_barrier(m->comm, stream);
    if (status == LS_OK && rank == 0) status = ls_comm_send(m->comm, stream, m->values, LARGE, LS_FP32, 1);
    if (status == LS_OK && rank == 1) status = ls_comm_recv(m->comm, stream, m->values, LARGE, LS_FP32, 0);
    ls_status done = ls_stream_synchronize(stream);
    return status != LS_OK ? status : done;
}

static void *member_main(void *argument) {
    struct member *m = argument;
    m->status = operate(m);
    return NULL;
}

static const struct {
    const char *operation, *algorithm;
    uint32_t number;
    uint64_t bytes;
} expected_meetings[] = {
    {"all_reduce", "ring", 1, LARGE * sizeof(float)}, {"all_reduce", "ring", 2, SMALL * sizeof(float)},
    {"broadcast", "", 3, LARGE * sizeof(float)},      {"barrier", "", 4, 0},
    {"send", "", 1, LARGE * sizeof(float)},
};
enum { MEETINGS = sizeof expected_meetings / sizeof *expected_meetings };

/* The moment at which all have arrived lies within each rank's run of the operation. */
static void expect_moments(const struct ls_probe_thread *threads, size_t count) {
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < threads[t].count; i++) {
            const struct ls_probe_record *meeting = &threads[t].records[i];
            if (meeting->kind != LS_PROBE_MEETING) continue;
            const struct ls_probe_record *run = meeting + 1;
            assert_true(i + 1 < threads[t].count && run->kind == LS_PROBE_RUN);
            assert_true(run->begin_us <= meeting->begin_us && meeting->begin_us <= run->end_us);
        }
    }
}

static void expect_meetings(const struct ls_probe_thread *threads, size_t count) {
    ls_trace *trace;
    assert_int_equal(ls_trace_create(&trace), LS_OK);
    assert_int_equal(ls_trace_resolve(trace, threads, count, 0, 0, false), LS_OK);
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    assert_int_equal(ls_trace_meeting_count(trace), MEETINGS);
    for (int e = 0; e < MEETINGS; e++) {
        int found = 0;
        for (int m = 0; m < MEETINGS; m++) {
            const struct ls_meeting *meeting = ls_trace_meeting(trace, m);
            if (strcmp(meeting->operation, expected_meetings[e].operation) != 0) continue;
            if (meeting->number != expected_meetings[e].number) continue;
            found++;
            assert_string_equal(meeting->algorithm, expected_meetings[e].algorithm);
            assert_int_equal(meeting->bytes, expected_meetings[e].bytes);
            assert_int_equal(meeting->ranks, PAIR);
            assert_int_equal(meeting->tasks, PAIR);
        }
        assert_int_equal(found, 1);
    }
    ls_trace_destroy(trace);
}

/* Two ranks that are threads, so that the records of both are in one process. */
TEST(test_ranks_agree_about_their_meetings) {
    ls_comm *ends[PAIR];
    struct member members[PAIR] = {0};
    ls_comm_options group = {.world_size = PAIR, .timeout_s = PLAN_TIMEOUT_S, .allreduce = "ring"};
    static float values[PAIR][LARGE];
    setenv("LS_CPU_STREAMS", "inline", 1);
    assert_int_equal(ls_comm_create_threads(ends, &group), LS_OK);
    for (int r = 0; r < PAIR; r++) {
        ls_device_options options = {.kind = LS_DEVICE_CPU, .index = r, .devices_on_node = PAIR, .place = r};
        assert_int_equal(ls_device_open(&members[r].device, &options), LS_OK);
        members[r].comm = ends[r];
        members[r].values = values[r];
    }
    ls_probe_start(false);
    for (int r = 0; r < PAIR; r++)
        assert_int_equal(pthread_create(&members[r].thread, NULL, member_main, &members[r]), 0);
    for (int r = 0; r < PAIR; r++) pthread_join(members[r].thread, NULL);
    ls_probe_stop();
    const struct ls_probe_thread *threads;
    size_t count;
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    assert_int_equal(count, PAIR);
    expect_moments(threads, count);
    expect_meetings(threads, count);
    ls_probe_drop();
    for (int r = 0; r < PAIR; r++) {
        assert_int_equal(members[r].status, LS_OK);
        ls_comm_destroy(ends[r]);
        ls_device_close(members[r].device);
    }
}

/* The name of the group in this rank's probe records, from its last MEETING. */
static int64_t name_in_records(const struct rank *rank) {
    const struct ls_probe_thread *threads;
    size_t count;
    int64_t name = 0;
    CHECK(ls_probe_read(&threads, &count) == LS_OK);
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < threads[t].count; i++) {
            const struct ls_probe_record *record = &threads[t].records[i];
            if (record->kind == LS_PROBE_MEETING) name = (int64_t)record->object;
        }
    }
    CHECK(name != 0);
    return name;
}

/* Ranks that are processes find the same name; two groups have different names. */
static void compare_names(struct rank *rank) {
    struct plan plan = {.mode = MODE_DDP, .sync_bn = true};
    int64_t names[2], all[2][LS_COMM_MAX_RANKS];
    CHECK(plan_groups_open(&plan, rank, NULL) == LS_OK);
    ls_comm *groups[] = {plan.groups.job, plan.groups.second};
    ls_device_options options = {.kind = LS_DEVICE_CPU, .index = rank->rank, .devices_on_node = rank->world_size};
    ls_device *device;
    CHECK(ls_device_open(&device, &options) == LS_OK);
    ls_stream *stream = ls_device_stream(device, LS_STREAM_COMM);
    for (int g = 0; g < 2; g++) {
        ls_probe_start(false);
        CHECK(ls_comm_barrier(groups[g], stream) == LS_OK);
        CHECK(ls_stream_synchronize(stream) == LS_OK);
        ls_probe_stop();
        names[g] = name_in_records(rank);
        CHECK(ls_comm_all_gather(groups[g], stream, &names[g], all[g], 1, LS_INT64) == LS_OK);
        CHECK(ls_stream_synchronize(stream) == LS_OK);
        for (int r = 0; r < rank->world_size; r++) CHECK(all[g][r] == names[g]);
    }
    CHECK(names[0] != names[1]);
    ls_probe_drop();
    plan_groups_close(&plan.groups);
    ls_device_close(device);
}

TEST(test_groups_have_one_name_in_all_processes) { run_training_ranks(3, compare_names, NULL); }
