/* A group of which only one rank exists: nothing is sent, everything is counted, and host calls return what they would
 * if all ranks had contributed the same. */
#include <stdlib.h>

#include "common/base/probe.h"
#include "common/comm/allreduce.h"
#include "common/comm/mesh.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

enum { W = 8 };

static ls_device *device;
static ls_stream *stream;
static ls_comm *comm;

static void open_group(int rank, int world_size, const char *allreduce) {
    ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1};
    ls_comm_options group = {.rank = rank, .world_size = world_size, .timeout_s = 1, .allreduce = allreduce};
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    assert_int_equal(ls_comm_create_meta(&comm, &group, device), LS_OK);
    stream = ls_device_stream(device, LS_STREAM_COMM);
}

static void close_group(void) {
    ls_comm_destroy(comm);
    ls_device_close(device);
}

/* --- the host's memory -------------------------------------------------------------------------------------------- */

TEST(all_ranks_have_said_the_same) {
    open_group(2, W, NULL);
    int64_t mine[2] = {5, -6}, all[2 * W] = {0};
    assert_int_equal(ls_comm_all_gather(comm, stream, mine, all, 2, LS_INT64), LS_OK);
    for (int r = 0; r < W; r++) assert_true(all[2 * r] == 5 && all[2 * r + 1] == -6);
    int32_t votes[3] = {1, 0, 7};
    assert_int_equal(ls_comm_all_reduce(comm, stream, votes, 3, LS_INT32, LS_REDUCE_SUM), LS_OK);
    assert_true(votes[0] == W && votes[1] == 0 && votes[2] == 7 * W);
    assert_int_equal(ls_comm_all_reduce(comm, stream, votes, 3, LS_INT32, LS_REDUCE_MAX), LS_OK);
    assert_true(votes[0] == W && votes[1] == 0 && votes[2] == 7 * W);
    float value = 1.5f;
    assert_int_equal(ls_comm_broadcast(comm, stream, &value, 1, LS_FP32, 0), LS_OK);
    assert_true(value == 1.5f);
    assert_int_equal(ls_comm_all_reduce(comm, stream, &value, 1, LS_FP32, LS_REDUCE_SUM), LS_OK);
    assert_true(value == 1.5f * W);
    assert_int_equal(ls_comm_barrier(comm, stream), LS_OK);
    close_group();
}

TEST(a_root_has_the_sum_and_each_rank_its_part) {
    for (int rank = 0; rank < 2; rank++) {
        int32_t value = 3, parts[W], part = 0;
        for (int r = 0; r < W; r++) parts[r] = 10 + r;
        open_group(rank, W, NULL);
        assert_int_equal(ls_comm_reduce(comm, stream, &value, 1, LS_INT32, LS_REDUCE_SUM, 1), LS_OK);
        assert_int_equal(value, rank == 1 ? 3 * W : 3);
        assert_int_equal(ls_comm_reduce_scatter(comm, stream, parts, &part, 1, LS_INT32, LS_REDUCE_SUM), LS_OK);
        assert_int_equal(part, W * (10 + rank));
        ls_comm_traffic traffic;
        ls_comm_traffic_read(comm, &traffic);
        assert_int_equal(traffic.sent_messages, (rank == 1 ? 0 : 1) + W - 1);
        assert_int_equal(traffic.received_bytes, 4 * ((rank == 1 ? W - 1 : 0) + W - 1));
        close_group();
    }
}

/* --- the device's ------------------------------------------------------------------------------------------------- */

TEST(traffic_is_what_the_algorithms_cost) {
    const size_t count = 1 << 20;
    for (const ls_allreduce_algorithm *a = ls_allreduce_algorithms; a->name; a++) {
        open_group(1, W, a->name);
        void *buckets;
        struct ls_allreduce_cost cost = {0};
        ls_comm_traffic traffic;
        assert_int_equal(ls_comm_alloc_shared(comm, device, 4 * count, &buckets), LS_OK);
        assert_int_equal(ls_comm_all_reduce(comm, stream, buckets, count, LS_FP32, LS_REDUCE_SUM), LS_OK);
        ls_comm_traffic_read(comm, &traffic);
        a->cost(&cost, W, 1, count, 4);
        assert_int_equal(traffic.operations, 1);
        assert_int_equal(traffic.sent_bytes, cost.sent_bytes);
        assert_int_equal(traffic.sent_messages, cost.sent_messages);
        assert_int_equal(traffic.received_bytes, cost.received_bytes);
        assert_int_equal(ls_comm_broadcast(comm, stream, buckets, 10, LS_FP32, 1), LS_OK);
        assert_int_equal(ls_comm_broadcast(comm, stream, buckets, 100, LS_FP32, 0), LS_OK);
        ls_comm_traffic_read(comm, &traffic);
        assert_int_equal(traffic.sent_bytes, cost.sent_bytes + 40 * (W - 1));
        assert_int_equal(traffic.received_bytes, cost.received_bytes + 400);
        close_group();
    }
}

TEST(regions_are_the_devices_memory_of_any_size) {
    const size_t huge = (size_t)1 << 43;
    open_group(0, W, NULL);
    void *memory;
    ls_memory_report report;
    assert_int_equal(ls_comm_alloc_shared(comm, device, huge, &memory), LS_OK);
    assert_true(ls_device_is_gpu_memory(device, memory));
    ls_device_memory(device, &report);
    assert_int_equal(report.current_bytes[LS_MEMORY_BUCKET], huge);
    ls_comm_release_shared(comm, memory);
    ls_device_memory(device, &report);
    assert_int_equal(report.current_bytes[LS_MEMORY_BUCKET], 0);
    close_group();
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

TEST(a_meeting_is_recorded_with_its_number) {
    open_group(0, W, "ring");
    void *buckets;
    assert_int_equal(ls_comm_alloc_shared(comm, device, 4096, &buckets), LS_OK);
    assert_int_equal(ls_comm_barrier(comm, stream), LS_OK);
    ls_probe_start(false);
    assert_int_equal(ls_comm_all_reduce(comm, stream, buckets, 1024, LS_FP32, LS_REDUCE_SUM), LS_OK);
    ls_probe_stop();
    const struct ls_probe_thread *threads;
    size_t count;
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(threads[0].count, 2);
    const struct ls_probe_record *meeting = &threads[0].records[0];
    assert_int_equal(meeting->kind, LS_PROBE_MEETING);
    assert_int_equal(threads[0].records[1].kind, LS_PROBE_LAUNCH);
    assert_string_equal(meeting->label, "all_reduce");
    assert_string_equal(meeting->detail, "ring");
    assert_int_equal(meeting->number, 2);
    assert_int_equal(meeting->bytes, 4096);
    assert_int_equal(meeting->peers, W);
    ls_probe_drop();
    close_group();
}

TEST(messages_between_two_and_from_and_to_a_root_are_counted) {
    for (int rank = 0; rank < 2; rank++) {
        open_group(rank, W, NULL);
        int32_t mine = 7, all[W] = {0}, parts[W], other = 5;
        for (int r = 0; r < W; r++) parts[r] = 10 + r;
        assert_int_equal(ls_comm_gather(comm, stream, &mine, all, 1, LS_INT32, 0), LS_OK);
        for (int r = 0; r < W; r++) assert_int_equal(all[r], rank == 0 ? 7 : 0);
        assert_int_equal(ls_comm_scatter(comm, stream, parts, &mine, 1, LS_INT32, 1), LS_OK);
        assert_int_equal(mine, rank == 1 ? 11 : 7);
        assert_int_equal(ls_comm_send(comm, stream, &mine, 1, LS_INT32, 1 - rank), LS_OK);
        assert_int_equal(ls_comm_recv(comm, stream, &other, 1, LS_INT32, 1 - rank), LS_OK);
        assert_int_equal(other, 5);
        assert_int_equal(ls_comm_send_recv(comm, stream, &mine, &other, 1, LS_INT32, 1 - rank), LS_OK);
        assert_int_equal(other, mine);
        ls_comm_traffic traffic;
        ls_comm_traffic_read(comm, &traffic);
        assert_int_equal(traffic.operations, 5);
        assert_int_equal(traffic.sent_messages, (rank == 0 ? 0 : 1 + W - 1) + 2);
        assert_int_equal(traffic.received_bytes, 4 * ((rank == 0 ? W - 1 + 1 : 0) + 2));
        close_group();
    }
}

TEST(a_mesh_has_one_rank_of_each_axis) {
    const int sizes[LS_MESH_AXES] = {2, 4, 3};
    ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1};
    ls_comm_options job = {.rank = 13, .world_size = 24, .timeout_s = 1};
    ls_mesh mesh;
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    assert_int_equal(ls_mesh_create_meta(&mesh, sizes, &job, device), LS_OK);
    stream = ls_device_stream(device, LS_STREAM_COMM);
    const int places[LS_MESH_AXES] = {1, 2, 1}; /* rank 13 = 1 + 2 * (2 + 4 * 1) */
    for (int a = 0; a < LS_MESH_AXES; a++) {
        double ranks = 1;
        assert_int_equal(ls_comm_rank(mesh.axis[a]), places[a]);
        assert_int_equal(ls_comm_all_reduce(mesh.axis[a], stream, &ranks, 1, LS_FP64, LS_REDUCE_SUM), LS_OK);
        assert_true(ranks == sizes[a]);
    }
    ls_mesh_destroy(&mesh);
    ls_device_close(device);
}

TEST_IN(scratch, a_mesh_has_a_place_for_each_rank_and_no_other) {
    const int sizes[][LS_MESH_AXES] = {{2, 2, 3}, {2, 0, 4}, {-2, -2, 2}, {64, 64, 1}};
    ls_comm_options job = {.world_size = 8, .timeout_s = 1};
    ls_mesh mesh;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_int_equal(ls_mesh_create_shm(&mesh, sizes[i], &job), LS_ERR_INVALID);
        assert_null(mesh.job);
        scratch_expect_error("rank 0 of 8 does not fit a mesh of", "(tensor x data x pipeline)");
    }
}

TEST_IN(scratch, an_aborted_group_runs_nothing_any_more) {
    open_group(0, W, NULL);
    float value = 0;
    assert_true(ls_comm_abort(comm, "the test wants it"));
    assert_int_equal(ls_comm_all_reduce(comm, stream, &value, 1, LS_FP32, LS_REDUCE_SUM), LS_ERR_PEER);
    scratch_expect_error("the group has been aborted", NULL);
    close_group();
}

TEST(a_group_of_one_has_nothing_to_say) {
    open_group(0, 1, NULL);
    int64_t mine = 5, all = 0;
    ls_comm_traffic traffic;
    assert_int_equal(ls_comm_all_gather(comm, stream, &mine, &all, 1, LS_INT64), LS_OK);
    assert_int_equal(all, 5);
    ls_probe_start(false);
    assert_int_equal(ls_comm_all_reduce(comm, stream, &mine, 1, LS_INT64, LS_REDUCE_SUM), LS_OK);
    ls_probe_stop();
    assert_int_equal(mine, 5);
    const struct ls_probe_thread *threads;
    size_t count;
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    assert_int_equal(count, 0); /* a host call is not recorded as a launch */
    ls_probe_drop();
    ls_comm_traffic_read(comm, &traffic);
    assert_int_equal(traffic.operations, 2);
    assert_int_equal(traffic.sent_bytes, 0);
    close_group();
}
