/* Point to point: results, order, and traffic, on every back-end. */
#include <stdlib.h>
#include <string.h>

#include "common/comm/comm_internal.h"
#include "tests/base/test.h"
#include "tests/comm/buffers.h"
#include "tests/comm/values.h"

#define TIMEOUT_S 60.0

/* Counts the bytes that this rank has moved, and the messages; staged messages are sent slice by slice. */
static void count_message(const struct rank *rank, uint64_t *messages, uint64_t *bytes, size_t nbytes, bool staged) {
    size_t piece = staged && !rank->crew ? LS_STAGE_BYTES : nbytes;
    *messages += nbytes > 0 ? (nbytes + piece - 1) / piece : 0;
    *bytes += nbytes;
}

struct message {
    enum place place;
    ls_dtype dtype;
    size_t count, nbytes;
};

static void send_to(struct rank *rank, struct buffers *b, struct message m, int peer, struct ls_comm_traffic *t) {
    char *buffer = guarded(rank, b, m.place, m.nbytes);
    fill_values(buffer, m.dtype, rank->rank, (size_t)peer, m.count);
    CHECK(ls_comm_send(rank->comm, rank->stream, buffer, m.count, m.dtype, peer) == LS_OK);
    CHECK(has_values(buffer, m.dtype, rank->rank, (size_t)peer, m.count));
    count_message(rank, &t->sent_messages, &t->sent_bytes, m.nbytes, !is_shared(m.place, rank->rank));
}

static void receive_from(struct rank *rank, struct buffers *b, struct message m, int peer, struct ls_comm_traffic *t) {
    char *buffer = guarded(rank, b, m.place, m.nbytes);
    memset(buffer, 0, m.nbytes);
    CHECK(ls_comm_recv(rank->comm, rank->stream, buffer, m.count, m.dtype, peer) == LS_OK);
    CHECK(has_values(buffer, m.dtype, peer, (size_t)rank->rank, m.count));
    check_guards(rank, buffer, m.nbytes);
    count_message(rank, &t->received_messages, &t->received_bytes, m.nbytes, !is_shared(m.place, peer));
}

/* Every pair exchanges the message in both directions, the lower rank first; groups of pairs run at the same time. */
static void exchange(struct rank *rank, struct buffers *b, struct message m) {
    struct ls_comm_traffic expected, traffic;
    ls_comm_traffic_read(rank->comm, &expected);
    for (int peer = 0; peer < rank->world_size; peer++) {
        if (peer == rank->rank) continue;
        if (rank->rank < peer) send_to(rank, b, m, peer, &expected);
        receive_from(rank, b, m, peer, &expected);
        if (rank->rank > peer) send_to(rank, b, m, peer, &expected);
        expected.operations += 2;
    }
    ls_comm_traffic_read(rank->comm, &traffic);
    CHECK(memcmp(&traffic, &expected, sizeof traffic) == 0);
}

/* The same as one operation: one rank may stage its message while the other has it in shared memory. */
static void exchange_at_once(struct rank *rank, struct buffers *b, struct message m) {
    int peer = rank->rank ^ 1;
    struct ls_comm_traffic expected, traffic;
    ls_comm_traffic_read(rank->comm, &expected);
    char *send = guarded(rank, b, m.place, m.nbytes), *receive = guarded_second(rank, b, m.nbytes);
    fill_values(send, m.dtype, rank->rank, (size_t)peer, m.count);
    CHECK(ls_comm_send_recv(rank->comm, rank->stream, send, receive, m.count, m.dtype, peer) == LS_OK);
    CHECK(has_values(receive, m.dtype, peer, (size_t)rank->rank, m.count));
    check_guards(rank, send, m.nbytes);
    check_guards(rank, receive, m.nbytes);
    expected.operations++;
    count_message(rank, &expected.sent_messages, &expected.sent_bytes, m.nbytes, !is_shared(m.place, rank->rank));
    count_message(rank, &expected.received_messages, &expected.received_bytes, m.nbytes, !is_shared(m.place, peer));
    ls_comm_traffic_read(rank->comm, &traffic);
    CHECK(memcmp(&traffic, &expected, sizeof traffic) == 0);
}

static void pairs_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, (size_t)1 << 20);
    for (enum place place = PRIVATE; place < PLACE_COUNT; place++)
        for (int c = 0; c < 9; c++) {
            ls_dtype dtype = (ls_dtype)((c + (int)place) % LS_DTYPE_COUNT);
            size_t slice = LS_STAGE_BYTES / ls_dtype_nbytes(dtype);
            const size_t counts[9] = {0, 1, 1000, slice, slice + 1, 2 * slice, 3 * slice + 7, 3, 5};
            struct message m = {place, dtype, counts[c], counts[c] * ls_dtype_nbytes(dtype)};
            exchange(rank, &b, m);
            if ((rank->rank ^ 1) < rank->world_size) exchange_at_once(rank, &b, m);
        }
    buffers_close(rank, &b);
    rank_close(rank);
}

TEST(test_pairs) {
    for (int n = 2; n <= 8; n++) run_good_ranks_on_all(n, pairs_body, NULL);
}

/* Many small messages in a row, in one direction: the receiver may run ahead of the sender's checks. With worker
 * streams, sends accumulate. */
static void stream_of_messages_body(struct rank *rank) {
    CHECK(rank_open(rank, rank->argument, NULL, TIMEOUT_S) == LS_OK);
    enum { MESSAGES = 2000 };
    static int32_t sent[MESSAGES], received[MESSAGES]; /* of rank 0 and of rank 1 */
    for (int32_t i = 0; i < MESSAGES; i++) {
        if (rank->rank == 0) sent[i] = i + 1;
        if (rank->rank == 0) CHECK(ls_comm_send(rank->comm, rank->stream, &sent[i], 1, LS_INT32, 1) == LS_OK);
        if (rank->rank == 1) CHECK(ls_comm_recv(rank->comm, rank->stream, &received[i], 1, LS_INT32, 0) == LS_OK);
    }
    CHECK(ls_device_synchronize(rank->device) == LS_OK);
    for (int32_t i = 0; i < MESSAGES && rank->rank == 1; i++) CHECK(received[i] == i + 1);
    rank_close(rank);
}

TEST(test_stream_of_messages) {
    run_good_ranks_on_all(2, stream_of_messages_body, "inline");
    run_good_ranks_on_all(2, stream_of_messages_body, "threads");
}

/* --- a pipeline --------------------------------------------------------------------------------------------------- */

#define ACTIVATION_COUNT (3 * LS_STAGE_BYTES / sizeof(float)) /* more than two staging buffers can take */

/* Sends the result of the last pass and receives the input of the next; a peer of -1 is none. */
static void pass_on(struct rank *rank, const float *result, int to, float *input, int from) {
    ls_comm *comm = rank->comm;
    if (to >= 0 && to == from) {
        CHECK(ls_comm_send_recv(comm, rank->stream, result, input, ACTIVATION_COUNT, LS_FP32, to) == LS_OK);
        return;
    }
    if (to >= 0) CHECK(ls_comm_send(comm, rank->stream, result, ACTIVATION_COUNT, LS_FP32, to) == LS_OK);
    if (from >= 0) CHECK(ls_comm_recv(comm, rank->stream, input, ACTIVATION_COUNT, LS_FP32, from) == LS_OK);
}

static int stage_at(const struct rank *rank, int stage) { return stage < rank->world_size ? stage : -1; }

/* 1F1B: stage s runs p - 1 - s forward passes ahead of its backward passes. */
static void pipeline_body(struct rank *rank) {
    enum { MICRO_BATCHES = 8 };
    int ahead = rank->world_size - 1 - rank->rank, forward = 0, backward = 0, to = -1;
    float *result = malloc(ACTIVATION_COUNT * sizeof *result), *input = malloc(ACTIVATION_COUNT * sizeof *input);
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK && result && input);
    while (backward < MICRO_BATCHES) {
        bool is_forward = forward < MICRO_BATCHES && forward <= backward + ahead;
        int from = stage_at(rank, is_forward ? rank->rank - 1 : rank->rank + 1);
        pass_on(rank, result, to, input, from);
        float number = (float)(is_forward ? 1 + forward++ : -1 - backward++);
        CHECK(from < 0 || (input[0] == number && input[ACTIVATION_COUNT - 1] == number));
        result[0] = number;
        repeat_elements(result, LS_FP32, 1, ACTIVATION_COUNT);
        to = stage_at(rank, is_forward ? rank->rank + 1 : rank->rank - 1);
    }
    pass_on(rank, result, to, input, -1);
    free(result);
    free(input);
    rank_close(rank);
}

TEST(test_pipeline) {
    for (int n = 2; n <= 5; n++) run_good_ranks_on_all(n, pipeline_body, NULL);
}
