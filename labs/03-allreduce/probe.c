/* Tests lab 03's ring and direct all-reduce: sums, messages, and which rank sent to which. */
#include <stdlib.h>
#include <string.h>

#include "common/comm/comm.h"
#include "kernels/kernels.h"
#include "labs/03-allreduce/order.h"
#include "labs/03-allreduce/slices.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum { MAX_RANKS = LS_COMM_MAX_RANKS, IN_A_ROW = 2 };

enum look { SUMS, COUNTS, ORDER_ONLY };

/* Two consecutive all-reduces of different buffers: the second starts from the group's state after the first. */
struct run {
    size_t count;
    ls_dtype dtype;
    ls_reduce_op op;
    void *values[IN_A_ROW][MAX_RANKS];
    ls_status status[MAX_RANKS];
    ls_comm_traffic traffic[MAX_RANKS];
};

static ls_status reduce(crew_rank *rank) {
    struct run *run = rank->argument;
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < IN_A_ROW && run->values[i][rank->rank]; i++) {
        void *values = run->values[i][rank->rank];
        status = ls_comm_all_reduce(rank->comm, rank->stream, values, run->count, run->dtype, run->op);
        if (status == LS_OK) status = ls_stream_synchronize(rank->stream);
    }
    ls_comm_traffic_read(rank->comm, &run->traffic[rank->rank]);
    return run->status[rank->rank] = status;
}

static bool is_half(ls_dtype dtype) { return dtype == LS_FP16 || dtype == LS_BF16; }

/* Values of the type: large integers for int64 and int32, and for the others values of -1 .. 1, rounded to the type. */
static void draw(probe *p, ls_dtype dtype, void *values, size_t count) {
    float *drawn = malloc(count * sizeof *drawn);
    if (drawn) probe_draw_floats(p, drawn, count);
    for (size_t i = 0; drawn && dtype == LS_INT64 && i < count; i++)
        ((int64_t *)values)[i] = ((int64_t)1 << 40) + (int64_t)(1000 * (double)drawn[i]);
    if (drawn && dtype == LS_FP32) memcpy(values, drawn, count * sizeof *drawn);
    for (size_t i = 0; drawn && dtype == LS_INT32 && i < count; i++)
        ((int32_t *)values)[i] = (int32_t)(1e9F * drawn[i]);
    if (drawn && is_half(dtype)) ls_cast_now(dtype, values, drawn, count);
    free(drawn);
}

/* The second buffer is followed by memory that must not be written; the first has exactly its size. */
enum { BEHIND_NBYTES = 64, BEHIND = 0x5a };

static char *behind(const struct run *run, int rank) {
    return (char *)run->values[1][rank] + run->count * ls_dtype_nbytes(run->dtype);
}

static bool is_written_behind(const struct run *run, int rank) {
    for (int i = 0; i < BEHIND_NBYTES; i++)
        if (behind(run, rank)[i] != BEHIND) return true;
    return false;
}

/* fp16 and int32 values as the integers of their bits. */
static void see_values(probe *p, const char *what, const struct run *run, const void *values) {
    int64_t *wholes = calloc(run->count, sizeof *wholes);
    for (size_t i = 0; wholes && i < run->count; i++) {
        if (is_half(run->dtype)) wholes[i] = ((const uint16_t *)values)[i];
        if (run->dtype == LS_INT32) wholes[i] = ((const int32_t *)values)[i];
        if (run->dtype == LS_INT64) wholes[i] = ((const int64_t *)values)[i];
    }
    if (run->dtype == LS_FP32)
        probe_see_floats(p, what, values, run->count);
    else if (wholes)
        probe_see_wholes(p, what, wholes, run->count);
    free(wholes);
}

static void see(probe *p, const struct run *run, int ranks, ls_status status, enum look look) {
    probe_must(p, "the all-reduce", status);
    for (int i = 0; look == SUMS && i < IN_A_ROW; i++)
        for (int r = 0; r < ranks; r++)
            see_values(p, probe_name(p, "rank %d's %sresult", r, i == 0 ? "" : "second "), run, run->values[i][r]);
    for (int r = 0; look == SUMS && r < ranks; r++)
        probe_see(p, probe_name(p, "the memory behind rank %d's second buffer", r), "%s",
                  is_written_behind(run, r) ? "written" : "as it was");
    for (int r = 0; look == COUNTS && r < ranks; r++) {
        probe_see_count(p, probe_name(p, "bytes that rank %d sent", r), run->traffic[r].sent_bytes);
        probe_see_count(p, probe_name(p, "messages that rank %d sent", r), run->traffic[r].sent_messages);
        probe_see_count(p, probe_name(p, "bytes that rank %d received", r), run->traffic[r].received_bytes);
        probe_see_count(p, probe_name(p, "messages that rank %d received", r), run->traffic[r].received_messages);
    }
}

/* Allocates and fills the buffers of `in_a_row` consecutive all-reduces; false if there is no memory. */
static bool fill(probe *p, struct run *run, int ranks, int in_a_row) {
    bool complete = true;
    for (int i = 0; i < in_a_row; i++) {
        for (int r = 0; r < ranks; r++) {
            run->values[i][r] = malloc(run->count * ls_dtype_nbytes(run->dtype) + (i == 1 ? BEHIND_NBYTES : 0));
            complete = complete && run->values[i][r];
            if (run->values[i][r] && i == 1) memset(behind(run, r), BEHIND, BEHIND_NBYTES);
            if (run->values[i][r]) draw(p, run->dtype, run->values[i][r], run->count);
        }
    }
    return complete;
}

static void release(struct run *run) {
    for (int i = 0; i < IN_A_ROW; i++)
        for (int r = 0; r < MAX_RANKS; r++) free(run->values[i][r]);
}

static bool in_two_slices;

static void all_reduce(probe *p, const char *algorithm, int ranks, size_t count, enum look look) {
    struct run run = {.count = count, .dtype = LS_FP32};
    probe_case(p, "%s, N = %d, %zu float%s%s", algorithm, ranks, count, count > 1 ? "s" : "",
               in_two_slices ? ", in two slices" : "");
    bool complete = fill(p, &run, ranks, look == SUMS ? IN_A_ROW : 1);
    see(p, &run, ranks, complete ? crew_run(ranks, algorithm, "inline", reduce, &run) : LS_ERR_NO_MEMORY, look);
    release(&run);
}

/* N = 2 hides a wrong neighbour, N = 4 a wrong modulus: 3 and 5 are tested early. Above 2 KiB a chunk is more than a
 * line. */
static const int worlds[] = {2, 3, 4, 5, 8};
static const size_t sizes[] = {1024, 5000, 16 * 1024 + 7};

static void every_case(probe *p, const char *algorithm, enum look look) {
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
            all_reduce(p, algorithm, worlds[w], sizes[s], look);
}

/* Messages whose last chunks are empty (16 floats are a line), and messages that are not whole lines: small ones for
 * the ring, since direct sends those in one round. */
static void every_small_case(probe *p, const char *algorithm, enum look look) {
    static const size_t small[] = {1, 3, 16, 17, 33};
    static const int small_worlds[] = {2, 3, 5};
    for (size_t s = 0; s < sizeof small / sizeof small[0]; s++)
        for (size_t w = 0; w < sizeof small_worlds / sizeof small_worlds[0]; w++)
            all_reduce(p, algorithm, small_worlds[w], small[s], look);
    all_reduce(p, algorithm, 16, 1025, look);
}

/* The maximum number of ranks (fewer for the ring, which needs more than 64 steps); more elements than 16 bits count;
 * slices. */
static void every_large_case(probe *p, const char *algorithm, enum look look) {
    all_reduce(p, algorithm, strcmp(algorithm, "ring") == 0 ? 40 : LS_COMM_MAX_RANKS, 2000, look);
    all_reduce(p, algorithm, 3, 70007, look);
    slices_use(in_two_slices = true);
    all_reduce(p, algorithm, 2, 5000, look);
    all_reduce(p, algorithm, 3, 16 * 1024 + 7, look);
    slices_use(in_two_slices = false);
}

/* Reductions of other types than float, and reductions other than sums. */
static void other_types(probe *p, const char *algorithm) {
    static const struct {
        ls_dtype dtype;
        ls_reduce_op op;
        const char *op_name;
    } rows[] = {{LS_INT64, LS_REDUCE_SUM, "sum"},    {LS_FP16, LS_REDUCE_SUM, "sum"},
                {LS_FP32, LS_REDUCE_MAX, "maximum"}, {LS_INT64, LS_REDUCE_MIN, "minimum"},
                {LS_BF16, LS_REDUCE_SUM, "sum"},     {LS_INT32, LS_REDUCE_SUM, "sum"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t s = 0; s < (i < 3 ? sizeof sizes / sizeof sizes[0] : 2); s++) {
            struct run run = {.count = sizes[s], .dtype = rows[i].dtype, .op = rows[i].op};
            probe_case(p, "%s, N = 3, %s of %zu %s", algorithm, rows[i].op_name, run.count, ls_dtype_name(run.dtype));
            bool complete = fill(p, &run, 3, IN_A_ROW);
            see(p, &run, 3, complete ? crew_run(3, algorithm, "inline", reduce, &run) : LS_ERR_NO_MEMORY, SUMS);
            release(&run);
        }
    }
}

static void sum(probe *p, const char *algorithm) {
    every_case(p, algorithm, SUMS);
    every_small_case(p, algorithm, SUMS);
    other_types(p, algorithm);
    every_large_case(p, algorithm, SUMS);
}

static void count(probe *p, const char *algorithm) {
    every_case(p, algorithm, COUNTS);
    every_small_case(p, algorithm, COUNTS);
    every_large_case(p, algorithm, COUNTS);
}

static void ring_sum(probe *p) { sum(p, "ring"); }
static void ring_count(probe *p) { count(p, "ring"); }
static void direct_sum(probe *p) { sum(p, "direct"); }
static void direct_count(probe *p) { count(p, "direct"); }

/* A wait that fails: its status is returned, and nothing is read after it. What the other ranks report depends on which
 * one is first. */
static void lose(probe *p, int ranks, int rank, uint32_t step, ls_status failure) {
    struct run run = {.count = 1024, .dtype = LS_FP32};
    order_begin();
    order_lose(rank, step, failure);
    probe_case(p, "ring, N = %d, rank %d's wait for step %u fails", ranks, rank, step);
    bool complete = fill(p, &run, ranks, 1);
    if (complete) (void)crew_run(ranks, "ring", "inline", reduce, &run);
    probe_see(p, probe_name(p, "what rank %d returns", rank), "%s", ls_status_text(run.status[rank]));
    probe_see_count(p, "elements that it takes after that", order_taken_after_loss());
    release(&run);
    order_begin();
}

/* With shuffled threads a missing wait may stay without effect; the simulation (order.c) detects it in every run. */
static void ring_order(probe *p) {
    char text[160];
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        size_t reads;
        order_begin();
        all_reduce(p, "ring", worlds[w], 1024, ORDER_ONLY);
        probe_see(p, "order", "%s", order_judge(text, sizeof text, worlds[w], &reads));
        probe_see_count(p, "elements taken from others", reads);
    }
    lose(p, 2, 1, 1, LS_ERR_TIMEOUT);
    lose(p, 3, 0, 2, LS_ERR_PEER);
    for (uint32_t step = 1; step <= 5; step++) lose(p, 4, 2, step, step % 2 ? LS_ERR_INVALID : LS_ERR_TIMEOUT);
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"ring-sum", ring_sum},         {"ring-count", ring_count},
                                         {"ring-order", ring_order},     {"direct-sum", direct_sum},
                                         {"direct-count", direct_count}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
