#define _GNU_SOURCE
/* Table 3: the messages and bytes of an all-reduce, formula against count, and their time.
 *
 *   idea    : the textbook's formulas (cost.h) on one side; on the other the project's own algorithms, run with a
 *             thread per rank, which count each range of memory that is sent from one rank to another, and check every
 *             sum
 *   busiest : the rank that sends most, for whose link all ranks wait. The parameter server is our `naive`: rank 0
 *             sends the result N - 1 times
 *   exact   : in addition to the textbook's, each algorithm has its own formula (allreduce.h), which accounts for
 *             chunks that end at cache lines; every rank's count must agree with it to the byte
 *   replayed: the same messages over one link of each rank: one after another, while others arrive. This agrees with
 *             the formulas, except for
 *                 several messages of a step on one link: direct's steps still count as one each; the parameter
 *                     server's formula adds up their latencies, though messages to rank 0 arrive together
 *                 N that are not powers of two, for which no rank waits for the end of a step: the tree is a step
 *                     shorter, and in halving-doubling ranks that do not fold begin at once, on links that folding
 *                     needs */
#include <math.h>
#include <stdlib.h>

#include "common/base/bytes_text.h"
#include "labs/replay/engine/cost.h"
#include "labs/replay/tables/count.h"
#include "labs/replay/tables/messages.h"
#include "labs/replay/tables/tables.h"

enum { MOST_RANKS = 16, PAIRS = 5, SIZES = 3, SHOWN = 2, QUANTITY_CAPACITY = 96, WINNERS_CAPACITY = 400 };

/* Our algorithm, and the textbook's of the same kind. Our tree is binary and works in segments, the textbook's is
 * binomial. */
static const struct pair {
    const char *algorithm, *mode;
    ls_pattern pattern;
    bool same;                  /* the counts of the two must agree */
    bool same_steps, same_time; /* replayed, on a power of two */
} pairs[PAIRS] = {
    {"ring", "ring", LS_PATTERN_RING, true, true, true},
    {"naive", "parameter server (naive)", LS_PATTERN_SERVER, true, false, false},
    {"tree", "tree", LS_PATTERN_TREE, false, true, true},
    {"halving-doubling", "halving-doubling", LS_PATTERN_HALVING_DOUBLING, true, true, true},
    {"direct", "direct", LS_PATTERN_DIRECT, true, false, true},
};

static const size_t sizes[SIZES] = {256, 65536, 1 << 20}; /* the busiest ranks of the last size are shown */

/* PCIe 3 between GPUs that communicate through the host: 12 GB/s, some 10 us. Sums cost nothing. */
static const ls_hockney pcie = {.alpha_us = 10, .GBps = 12, .gamma_GBps = INFINITY};
/* If bytes cost almost nothing, the time is the number of steps. */
static const ls_hockney step = {.alpha_us = 1, .GBps = 1e9, .gamma_GBps = INFINITY};

static bool is_tried(const tables_settings *settings, int ranks) {
    return !settings->quick || ranks <= 4 || ranks == 8;
}

static void add_row(tables_book *book, const char *quantity, const char *mode, int ranks, double reference, double ours,
                    bool bound) {
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = mode,
                                          .n = ranks,
                                          .reference = reference,
                                          .ours = ours,
                                          .bound = bound ? TABLES_WITHIN : TABLES_SHOWN});
}

/* --- counted ------------------------------------------------------------------------------------------------------ */

struct tally {
    double messages, bytes; /* sent by the rank that sends most */
    int differing;          /* ranks whose counts differ from the algorithm's own formula */
};

static bool same_cost(const struct ls_allreduce_cost *a, const struct ls_allreduce_cost *b) {
    return a->sent_messages == b->sent_messages && a->sent_bytes == b->sent_bytes &&
           a->received_messages == b->received_messages && a->received_bytes == b->received_bytes;
}

static ls_status count_one(struct tally *tally, const struct pair *pair, int ranks, size_t nbytes) {
    const ls_allreduce_algorithm *algorithm = ls_allreduce_find(pair->algorithm);
    struct ls_allreduce_cost counted[LS_COMM_MAX_RANKS], formula;
    size_t count = nbytes / sizeof(float);
    *tally = (struct tally){0};
    if (!algorithm) return ls_fail(LS_ERR_INVALID, "unknown all-reduce %s", pair->algorithm);
    ls_status status = tables_count_allreduce(counted, algorithm, ranks, count);
    for (int r = 0; status == LS_OK && r < ranks; r++) {
        formula = (struct ls_allreduce_cost){0};
        algorithm->cost(&formula, ranks, r, count, sizeof(float));
        tally->differing += !same_cost(&counted[r], &formula);
        tally->messages = fmax(tally->messages, (double)counted[r].sent_messages);
        tally->bytes = fmax(tally->bytes, (double)counted[r].sent_bytes);
    }
    return status;
}

static void add_busiest(tables_book *book, const tables_settings *settings, struct tally tallies[PAIRS][MOST_RANKS + 1],
                        bool bytes) {
    for (int p = 0; p < PAIRS; p++) {
        for (int n = 2; n <= MOST_RANKS; n++) {
            if (!is_tried(settings, n)) continue;
            struct ls_pattern_cost cost = ls_cost_pattern(pairs[p].pattern, n, (double)sizes[SHOWN], &step);
            const struct tally *tally = &tallies[p][n];
            if (bytes)
                add_row(book, "bytes sent of 1 MiB, busiest rank", pairs[p].mode, n, cost.bytes, tally->bytes,
                        pairs[p].same);
            else
                add_row(book, "messages sent, busiest rank", pairs[p].mode, n, cost.messages, tally->messages,
                        pairs[p].same);
        }
    }
}

/* Adds nodes of two ranks, whose all-reduce is direct's twice: of all bytes within a node, and of half of them across
 * nodes. */
static ls_status add_hierarchical(tables_book *book, const tables_settings *settings) {
    static const struct pair pair = {.algorithm = "hierarchical"};
    const double bytes = (double)sizes[SHOWN];
    struct tally tally;
    ls_status status = LS_OK;
    (void)setenv("LS_RANKS_PER_NODE", "2", 1);
    for (int n = 4; status == LS_OK && n <= MOST_RANKS; n += 2) {
        if (!is_tried(settings, n)) continue;
        struct ls_pattern_cost within = ls_cost_pattern(LS_PATTERN_DIRECT, 2, bytes, &step);
        struct ls_pattern_cost across = ls_cost_pattern(LS_PATTERN_DIRECT, n / 2, bytes / 2, &step);
        status = count_one(&tally, &pair, n, sizes[SHOWN]);
        if (status != LS_OK) break;
        add_row(book, "messages sent, busiest rank", "hierarchical, nodes of 2", n, within.messages + across.messages,
                tally.messages, true);
        add_row(book, "bytes sent of 1 MiB, busiest rank", "hierarchical, nodes of 2", n, within.bytes + across.bytes,
                tally.bytes, true);
        add_row(book, "ranks that count otherwise, 1.0 MiB", "hierarchical, nodes of 2", n, 0, tally.differing, true);
    }
    (void)unsetenv("LS_RANKS_PER_NODE");
    return status;
}

static ls_status add_counts(tables_book *book, const tables_settings *settings) {
    static struct tally tallies[SIZES][PAIRS][MOST_RANKS + 1];
    char quantity[QUANTITY_CAPACITY], size[LS_BYTES_TEXT_CAPACITY];
    ls_status status = LS_OK;
    for (int s = 0; s < SIZES; s++)
        for (int p = 0; p < PAIRS; p++)
            for (int n = 2; status == LS_OK && n <= MOST_RANKS; n++)
                if (is_tried(settings, n)) status = count_one(&tallies[s][p][n], &pairs[p], n, sizes[s]);
    if (status != LS_OK) return status;
    tables_group(book, "busiest");
    add_busiest(book, settings, tallies[SHOWN], false);
    add_busiest(book, settings, tallies[SHOWN], true);
    tables_group(book, "hierarchical");
    status = add_hierarchical(book, settings);
    tables_group(book, "differing");
    for (int s = 0; s < SIZES; s++) {
        snprintf(quantity, sizeof quantity, "ranks that count otherwise, %s", ls_bytes_text(size, (double)sizes[s]));
        for (int p = 0; p < PAIRS; p++) {
            int differing = 0;
            for (int n = 2; n <= MOST_RANKS; n++) differing += tallies[s][p][n].differing;
            add_row(book, quantity, pairs[p].mode, 0, 0, differing, true);
        }
    }
    return status;
}

/* --- replayed ----------------------------------------------------------------------------------------------------- */

/* Adds the steps, or the time of that many bytes. */
static ls_status add_replayed(tables_book *book, const struct pair *pair, int ranks, size_t nbytes) {
    char quantity[QUANTITY_CAPACITY] = "steps, one after another", size[LS_BYTES_TEXT_CAPACITY];
    bool steps = nbytes == 0, power = (ranks & (ranks - 1)) == 0, same = steps ? pair->same_steps : pair->same_time;
    const ls_hockney *link = steps ? &step : &pcie;
    double us = NAN, bytes = steps ? ranks : (double)nbytes;
    if (!steps) snprintf(quantity, sizeof quantity, "time of %s at 10 us and 12 GB/s, us", ls_bytes_text(size, bytes));
    ls_status status = tables_message_us(&us, pair->pattern, ranks, bytes, link);
    const struct ls_pattern_cost cost = ls_cost_pattern(pair->pattern, ranks, bytes, link);
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = pair->mode,
                                          .n = ranks,
                                          .reference = steps ? cost.steps : cost.us,
                                          .ours = us,
                                          .bound = same && power ? TABLES_WITHIN : TABLES_SHOWN,
                                          .aside = !power});
    return status;
}

static ls_status add_messages(tables_book *book, const tables_settings *settings) {
    static const size_t replayed[] = {0, 4096, 1 << 20, (size_t)64 << 20};
    ls_status status = LS_OK;
    tables_group(book, "messages");
    for (size_t s = 0; s < sizeof replayed / sizeof *replayed; s++)
        for (int p = 0; p < PAIRS; p++)
            for (int n = 2; status == LS_OK && n <= MOST_RANKS; n++)
                if (is_tried(settings, n)) status = add_replayed(book, &pairs[p], n, replayed[s]);
    return status;
}

/* --- who is fastest ----------------------------------------------------------------------------------------------- */

/* The fastest of the first `count` pairs at a size, by the formula. */
static int fastest_at(int ranks, double bytes, int count) {
    int best = 0;
    for (int p = 1; p < count; p++) {
        double us = ls_cost_pattern(pairs[p].pattern, ranks, bytes, &pcie).us;
        if (us < ls_cost_pattern(pairs[best].pattern, ranks, bytes, &pcie).us) best = p;
    }
    return best;
}

/* From 64 bytes to 1 GiB: the fastest algorithms, and the sizes at which they change. */
static void describe_winners(char text[WINNERS_CAPACITY], int ranks, int count) {
    char size[LS_BYTES_TEXT_CAPACITY];
    int length = 0, last = -1;
    for (int power = 6; power <= 30; power++) {
        double bytes = (double)(1 << power);
        int best = fastest_at(ranks, bytes, count);
        if (best == last) continue;
        length += snprintf(text + length, (size_t)(WINNERS_CAPACITY - length), "%s%s%s%s%s", last < 0 ? "" : "; ",
                           pairs[best].mode, last < 0 ? "" : " from ", last < 0 ? "" : ls_bytes_text(size, bytes),
                           last < 0 ? "" : " on");
        last = best;
    }
}

ls_status tables_compute_allreduce(tables_book *book, const tables_settings *settings) {
    char three[WINNERS_CAPACITY], all[WINNERS_CAPACITY];
    ls_status status = add_counts(book, settings);
    if (status == LS_OK) status = add_messages(book, settings);
    tables_group(book, "winners");
    for (int n = 2; n <= MOST_RANKS; n *= 2) {
        describe_winners(three, n, 3);
        describe_winners(all, n, PAIRS);
        tables_text(book, "N = %d. Of ring, parameter server and tree: %s. Of all five: %s.", n, three, all);
    }
    return status;
}
