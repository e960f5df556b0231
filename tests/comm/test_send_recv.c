/* Point to point: results, order, and traffic, on every back-end. */
#include <string.h>

#include "common/comm/comm_internal.h"
#include "tests/base/test.h"
#include "tests/comm/buffers.h"
#include "tests/comm/values.h"

#define TIMEOUT_S 60.0

/* What this rank has moved, and in how many pieces; staged messages go slice by slice. */
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
    fill_values(b->expected, m.dtype, rank->rank, (size_t)peer, m.count);
    CHECK(memcmp(buffer, b->expected, m.nbytes) == 0);
    count_message(rank, &t->sent_messages, &t->sent_bytes, m.nbytes, !is_shared(m.place, rank->rank));
}

static void receive_from(struct rank *rank, struct buffers *b, struct message m, int peer, struct ls_comm_traffic *t) {
    char *buffer = guarded(rank, b, m.place, m.nbytes);
    memset(buffer, 0, m.nbytes);
    CHECK(ls_comm_recv(rank->comm, rank->stream, buffer, m.count, m.dtype, peer) == LS_OK);
    fill_values(b->expected, m.dtype, peer, (size_t)rank->rank, m.count);
    CHECK(memcmp(buffer, b->expected, m.nbytes) == 0);
    check_guards(rank, buffer, m.nbytes);
    count_message(rank, &t->received_messages, &t->received_bytes, m.nbytes, !is_shared(m.place, peer));
}

/* Every pair exchanges the message both ways, the lower rank first; groups of pairs run at the same time. */
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

static void pairs_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, (size_t)1 << 20);
    for (enum place place = PRIVATE; place < PLACE_COUNT; place++)
        for (int c = 0; c < 9; c++) {
            ls_dtype dtype = (ls_dtype)((c + (int)place) % LS_DTYPE_COUNT);
            size_t slice = LS_STAGE_BYTES / ls_dtype_nbytes(dtype);
            const size_t counts[9] = {0, 1, 1000, slice, slice + 1, 2 * slice, 3 * slice + 7, 3, 5};
            exchange(rank, &b, (struct message){place, dtype, counts[c], counts[c] * ls_dtype_nbytes(dtype)});
        }
    buffers_close(rank, &b);
    rank_close(rank);
}

TEST(test_pairs) {
    for (int n = 2; n <= 8; n++) run_good_ranks_on_all(n, pairs_body, NULL);
}

/* Many small messages in a row, one way: the receiver may run ahead of the sender's checks. Streams with workers let
 * sends pile up. */
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
