/* --debug-collectives: before an operation runs, all ranks fail if any rank runs a different one, with different
 * arguments or in a different order of groups; a rank that does not arrive is named in time. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/comm/ranks.h"

#define SHORT_S 1.0
#define LONG_S 40.0
#define GRACE_S 25.0 /* slack for loaded machines and sanitizers */
#define RANKS 3

/* --- ranks that differ -------------------------------------------------------------------------------------------- */

enum aspect { SAME, LABEL, NUMBER, KIND, ELEMENTS, DTYPE, REDUCTION, ROOT, SENT, SENT_LABEL, LATE, LEAVES, DIES };

struct mismatch {
    enum aspect aspect;
    ls_status status;
    double timeout_s;
    const char *odd, *others; /* both texts in every rank's line */
};

static const struct mismatch mismatches[] = {
    {SAME, LS_OK, LONG_S, "", ""},
    {LABEL, LS_ERR_INVALID, LONG_S,
     "rank 1 runs reduce (sum) of 10 fp32 elements to rank 0 (operation 2, 40 bytes), for rows 5",
     "runs reduce (sum) of 10 fp32 elements to rank 0 (operation 2, 40 bytes), for bucket 5"},
    {NUMBER, LS_ERR_INVALID, LONG_S,
     "rank 1 runs reduce (sum) of 10 fp32 elements to rank 0 (operation 2, 40 bytes), for bucket 6", "for bucket 5"},
    {KIND, LS_ERR_INVALID, LONG_S, "rank 1 runs broadcast of 10 fp32", "runs reduce (sum) of 10 fp32"},
    {ELEMENTS, LS_ERR_INVALID, LONG_S, "rank 1 runs reduce (sum) of 11 fp32", "runs reduce (sum) of 10 fp32"},
    {DTYPE, LS_ERR_INVALID, LONG_S, "rank 1 runs reduce (sum) of 10 int32", "runs reduce (sum) of 10 fp32"},
    {REDUCTION, LS_ERR_INVALID, LONG_S, "rank 1 runs reduce (max)", "runs reduce (sum)"},
    {ROOT, LS_ERR_INVALID, LONG_S, "rank 1 runs reduce (sum) of 10 fp32 elements to rank 2", "elements to rank 0"},
    {SENT, LS_ERR_INVALID, LONG_S, "send of 11 fp32 elements to rank 0", "recv of 10 fp32 elements from rank 1"},
    {SENT_LABEL, LS_ERR_INVALID, LONG_S, "send of 10 fp32 elements to rank 0 (operation 1, 40 bytes), for rows 5",
     "recv of 10 fp32 elements from rank 1 (operation 1, 40 bytes), for bucket 5"},
    {LATE, LS_ERR_TIMEOUT, SHORT_S, "rank 1 did not arrive within 1 s", ""},
    {LEAVES, LS_ERR_PEER, LONG_S, "rank 1 left the group without taking part", ""},
    {DIES, LS_ERR_PEER, LONG_S, "rank 1 died", ""},
};

static ls_status run(struct rank *rank, enum aspect odd, float *x) {
    ls_comm *comm = rank->comm;
    bool messages = odd == SENT || odd == SENT_LABEL;
    if (rank->rank != 1) odd = SAME;
    ls_comm_label(comm, odd == LABEL || odd == SENT_LABEL ? "rows" : "bucket", odd == NUMBER ? 6 : 5);
    if (messages && rank->rank == 0) return ls_comm_recv(comm, rank->stream, x, 10, LS_FP32, 1);
    if (messages && rank->rank == 1) return ls_comm_send(comm, rank->stream, x, odd == SENT ? 11 : 10, LS_FP32, 0);
    if (messages) return ls_comm_barrier(comm, rank->stream);
    if (odd == KIND) return ls_comm_broadcast(comm, rank->stream, x, 10, LS_FP32, 0);
    return ls_comm_reduce(comm, rank->stream, x, odd == ELEMENTS ? 11 : 10, odd == DTYPE ? LS_INT32 : LS_FP32,
                          odd == REDUCTION ? LS_REDUCE_MAX : LS_REDUCE_SUM, odd == ROOT ? 2 : 0);
}

static void mismatch_body(struct rank *rank) {
    const struct mismatch *m = rank->argument;
    float x[16] = {0}, before[16] = {0};
    CHECK(rank_open(rank, "inline", NULL, m->timeout_s) == LS_OK);
    rank->comm->debug = true;
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    for (int i = 0; i < 16; i++) x[i] = before[i] = (float)(rank->rank + i);
    bool stays_away = rank->rank == 1 && (m->aspect == LATE || m->aspect == LEAVES || m->aspect == DIES);
    if (stays_away && m->aspect == DIES) (void)raise(SIGKILL);
    while (stays_away && m->aspect == LATE && !ls_comm_is_broken(rank->comm)) usleep(1000);
    double begin_us = ls_now_us();
    ls_status status = stays_away ? LS_OK : run(rank, m->aspect, x);
    CHECK(stays_away || status == m->status);
    CHECK(ls_now_us() - begin_us < (SHORT_S + GRACE_S) * 1e6);
    CHECK(stays_away || (rank_says(rank, m->odd) && rank_says(rank, m->others)));
    CHECK(status == LS_OK || memcmp(x, before, sizeof x) == 0); /* the operation has not run */
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

TEST(ranks_that_differ_fail_before_they_run) {
    for (const struct rank_backend *backend = rank_backends; backend->name; backend++) {
        for (size_t i = 0; i < COUNT_OF(mismatches); i++) {
            bool dies = mismatches[i].aspect == DIES;
            if (dies && backend != rank_backends) continue; /* a thread cannot die alone */
            stderr_begin();
            run_ranks_expecting(backend, RANKS, mismatch_body, &mismatches[i], NULL, dies ? 5 : 7, 128 + SIGKILL);
            (void)stderr_end();
        }
    }
}

/* --- the order of groups ------------------------------------------------------------------------------------------ */

/* Two groups of the same ranks; rank 1 begins with the second. */
static void crossing_body(struct rank *rank) {
    static ls_comm *all[RANKS];
    ls_comm *second = NULL;
    CHECK(rank_open(rank, "inline", NULL, LONG_S) == LS_OK);
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = RANKS,
                               .timeout_s = LONG_S,
                               .bootstrap = &rank->bootstrap,
                               .group = "second",
                               .job = rank->comm};
    rank->comm->debug = true;
    if (!rank->crew) CHECK(ls_comm_create_shm(&second, &options) == LS_OK);
    if (rank->crew && rank->rank == 0) CHECK(ls_comm_create_threads(all, &options) == LS_OK);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    if (rank->crew) second = all[rank->rank];
    CHECK(ls_comm_barrier(second, rank->stream) == LS_OK);
    double begin_us = ls_now_us();
    ls_comm *first = rank->rank == 1 ? second : rank->comm;
    CHECK(ls_comm_barrier(first, rank->stream) == LS_ERR_INVALID);
    CHECK(ls_now_us() - begin_us < GRACE_S * 1e6);
    CHECK(rank_says(rank, "the ranks are out of step: rank ") && rank_says(rank, "all groups in the same order"));
    CHECK(rank_says(rank, "rank 1 begins #2 barrier in second") && rank_says(rank, " begins #2 barrier in group"));
    (void)ls_device_synchronize(rank->device);
    ls_comm_destroy(second);
    rank_close(rank);
}

TEST(ranks_that_begin_two_groups_in_other_orders_fail_at_once) {
    stderr_begin();
    run_good_ranks_on_all(RANKS, crossing_body, NULL);
    (void)stderr_end();
}

int main(void) { return run_added_tests(); }
