/* What lab 03's ring and direct all-reduce do: sums, messages, who wrote to whom. */
#include <stdlib.h>

#include "common/comm/comm.h"
#include "labs/03-allreduce/order.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum { MAX_RANKS = 8 };

enum look { SUMS, COUNTS, ORDER_ONLY };

struct run {
    size_t count;
    float *values[MAX_RANKS];
    ls_comm_traffic traffic[MAX_RANKS];
};

static ls_status reduce(crew_rank *rank) {
    struct run *run = rank->argument;
    float *values = run->values[rank->rank];
    ls_status status = ls_comm_all_reduce(rank->comm, rank->stream, values, run->count, LS_FP32, LS_REDUCE_SUM);
    if (status == LS_OK) status = ls_stream_synchronize(rank->stream);
    ls_comm_traffic_read(rank->comm, &run->traffic[rank->rank]);
    return status;
}

static void see(probe *p, const struct run *run, int ranks, ls_status status, enum look look) {
    probe_must(p, "the all-reduce", status);
    for (int r = 0; r < ranks; r++) {
        if (look == SUMS) probe_see_floats(p, probe_name(p, "rank %d's result", r), run->values[r], run->count);
        if (look != COUNTS) continue;
        probe_see_count(p, probe_name(p, "bytes that rank %d sent", r), run->traffic[r].sent_bytes);
        probe_see_count(p, probe_name(p, "messages that rank %d sent", r), run->traffic[r].sent_messages);
        probe_see_count(p, probe_name(p, "bytes that rank %d received", r), run->traffic[r].received_bytes);
        probe_see_count(p, probe_name(p, "messages that rank %d received", r), run->traffic[r].received_messages);
    }
}

static void all_reduce(probe *p, const char *algorithm, int ranks, size_t count, enum look look) {
    struct run run = {.count = count};
    bool complete = true;
    for (int r = 0; r < ranks; r++) {
        run.values[r] = malloc(count * sizeof(float));
        complete = complete && run.values[r];
        if (run.values[r]) probe_draw_floats(p, run.values[r], count);
    }
    probe_case(p, "%s, N = %d, %zu floats", algorithm, ranks, count);
    ls_status status = complete ? crew_run(ranks, algorithm, "inline", reduce, &run) : LS_ERR_NO_MEMORY;
    see(p, &run, ranks, status, look);
    for (int r = 0; r < ranks; r++) free(run.values[r]);
}

/* N = 2 hides a wrong neighbour, N = 4 a wrong modulus: 3 and 5 come early. Above 2 KiB chunks are more than a line. */
static const int worlds[] = {2, 3, 4, 5, 8};
static const size_t sizes[] = {1024, 5000, 16 * 1024 + 7};

static void every_case(probe *p, const char *algorithm, enum look look) {
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
            all_reduce(p, algorithm, worlds[w], sizes[s], look);
}

static void ring_sum(probe *p) { every_case(p, "ring", SUMS); }
static void ring_count(probe *p) { every_case(p, "ring", COUNTS); }
static void direct_sum(probe *p) { every_case(p, "direct", SUMS); }
static void direct_count(probe *p) { every_case(p, "direct", COUNTS); }

/* In shuffled order of threads a missing wait may go well; on paper it does not (order.c). */
static void ring_order(probe *p) {
    char text[160];
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        size_t reads;
        order_begin();
        all_reduce(p, "ring", worlds[w], 1024, ORDER_ONLY);
        probe_see(p, "order", "%s", order_judge(text, sizeof text, worlds[w], &reads));
        probe_see_count(p, "elements taken from others", reads);
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"ring-sum", ring_sum},         {"ring-count", ring_count},
                                         {"ring-order", ring_order},     {"direct-sum", direct_sum},
                                         {"direct-count", direct_count}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
