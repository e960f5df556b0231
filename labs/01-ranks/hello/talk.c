#include <stdarg.h>
#include <stdio.h>

#include "common/base/log.h"
#include "labs/01-ranks/hello/hello.h"

/* In rank order: each rank prints its line between two barriers. `before`: the traffic until this method began. */
static ls_status print_in_turn(const hello_rank *self, ls_comm_traffic before, const char *format, ...) LS_PRINTF(3, 4);
static ls_status print_in_turn(const hello_rank *self, ls_comm_traffic before, const char *format, ...) {
    ls_comm_traffic now;
    ls_comm_traffic_read(self->comm, &now);
    ls_status status = LS_OK;
    for (int turn = 0; status == LS_OK && turn < ls_comm_world_size(self->comm); turn++) {
        if (turn == ls_comm_rank(self->comm)) {
            va_list arguments;
            va_start(arguments, format);
            vprintf(format, arguments);
            va_end(arguments);
            printf("; %llu sent, %llu received\n", (unsigned long long)(now.sent_messages - before.sent_messages),
                   (unsigned long long)(now.received_messages - before.received_messages));
            fflush(stdout);
        }
        status = ls_comm_settle(self->stream, ls_comm_barrier(self->comm, self->stream));
    }
    return status;
}

static ls_comm_traffic traffic_of(const hello_rank *self) {
    ls_comm_traffic traffic;
    ls_comm_traffic_read(self->comm, &traffic);
    return traffic;
}

static ls_status pass_letter(const hello_rank *self) {
    int rank = ls_comm_rank(self->comm), world_size = ls_comm_world_size(self->comm);
    ls_comm_traffic before = traffic_of(self);
    int64_t letter[HELLO_LETTER] = {rank == 0 ? self->word : -1};
    ls_status status = hello_pass_letter(self->comm, self->stream, letter);
    if (status != LS_OK) return status;
    return print_in_turn(self, before, "letter      rank %d of %d: %lld, signed by %lld, who add up to %lld", rank,
                         world_size, (long long)letter[HELLO_WORD], (long long)letter[HELLO_SIGNED],
                         (long long)letter[HELLO_SUM]);
}

static ls_status broadcast(const hello_rank *self) {
    int rank = ls_comm_rank(self->comm), world_size = ls_comm_world_size(self->comm);
    ls_comm_traffic before = traffic_of(self);
    int64_t word = rank == 0 ? self->word : -1;
    ls_status status = ls_comm_settle(self->stream, ls_comm_broadcast(self->comm, self->stream, &word, 1, LS_INT64, 0));
    if (status != LS_OK) return status;
    return print_in_turn(self, before, "broadcast   rank %d of %d: %lld", rank, world_size, (long long)word);
}

/* The last of several ranks may make a mistake here, on purpose (hello_mismatch). */
static ls_status all_reduce(const hello_rank *self) {
    int rank = ls_comm_rank(self->comm), world_size = ls_comm_world_size(self->comm);
    ls_comm_traffic before = traffic_of(self);
    int64_t sum[2] = {rank};
    bool last = rank > 0 && rank == world_size - 1;
    ls_status status;
    if (last && self->mismatch == HELLO_OTHER_COLLECTIVE)
        status = ls_comm_broadcast(self->comm, self->stream, sum, 1, LS_INT64, 0);
    else
        status = ls_comm_all_reduce(self->comm, self->stream, sum, last && self->mismatch == HELLO_OTHER_COUNT ? 2 : 1,
                                    LS_INT64, LS_REDUCE_SUM);
    status = ls_comm_settle(self->stream, status);
    if (status != LS_OK) return status;
    return print_in_turn(self, before, "all_reduce  rank %d of %d: %lld", rank, world_size, (long long)sum[0]);
}

static ls_status all_gather(const hello_rank *self) {
    int rank = ls_comm_rank(self->comm), world_size = ls_comm_world_size(self->comm);
    ls_comm_traffic before = traffic_of(self);
    int64_t mine = rank, all[LS_COMM_MAX_RANKS];
    ls_status status =
        ls_comm_settle(self->stream, ls_comm_all_gather(self->comm, self->stream, &mine, all, 1, LS_INT64));
    if (status != LS_OK) return status;
    char text[LS_COMM_MAX_RANKS * 4] = "";
    for (int r = 0, length = 0; r < world_size; r++)
        length += snprintf(text + length, sizeof text - (size_t)length, r ? " %d" : "%d", (int)all[r]);
    return print_in_turn(self, before, "all_gather  rank %d of %d: %s", rank, world_size, text);
}

ls_status hello_talk(const hello_rank *self) {
    ls_status status = pass_letter(self);
    if (status == LS_OK) status = broadcast(self);
    if (status == LS_OK) status = all_reduce(self);
    if (status == LS_OK) status = all_gather(self);
    return status;
}
