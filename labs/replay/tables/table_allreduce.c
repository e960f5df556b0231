/* Table 3: what an all-reduce moves, formula against count, and what that costs.
 *
 *   idea    : the textbook's formulas (cost.h) on one side; on the other the project's own algorithms, run with a
 *             thread per rank, which count each range of memory that goes from one rank to another, and check every sum
 *   busiest : of all ranks, the one that sends most, because that is whose link everybody waits for. The parameter
 *             server is our `naive`: rank 0 sends the result N - 1 times
 *   exact   : beside the textbook each algorithm has a formula of its own (allreduce.h) that knows about chunks cut at
 *             cache lines; with it every rank's count must agree to the byte */
#include <math.h>

#include "common/base/bytes_text.h"
#include "labs/replay/engine/cost.h"
#include "labs/replay/tables/count.h"
#include "labs/replay/tables/messages.h"
#include "labs/replay/tables/tables.h"

enum {
    LEAST_RANKS = 2,
    MOST_RANKS = 16,
    PAIR_COUNT = 5,
    SHOWN_BYTES = 1 << 20,
    QUANTITY_CAPACITY = 96,
    WINNERS_CAPACITY = 400
};

/* Ours, and the textbook's of the same kind. Our tree is binary and works in segments, the textbook's is binomial. */
static const struct pair {
    const char *algorithm, *mode;
    ls_pattern pattern;
    bool same; /* the counts of the two must agree */
} pairs[] = {
    {"ring", "ring", LS_PATTERN_RING, true},
    {"naive", "parameter server (naive)", LS_PATTERN_SERVER, true},
    {"tree", "tree", LS_PATTERN_TREE, false},
    {"halving-doubling", "halving-doubling", LS_PATTERN_HALVING_DOUBLING, true},
    {"direct", "direct", LS_PATTERN_DIRECT, true},
};

/* PCIe 3 between GPUs that reach each other through the host: 12 GB/s, some 10 us. Sums cost nothing. */
static const ls_hockney pcie = {.alpha_us = 10, .GBps = 12, .gamma_GBps = INFINITY};

/* --- counting ----------------------------------------------------------------------------------------------------- */

struct tally {
    double messages, bytes; /* sent by the rank that sends most */
    int differing;          /* ranks whose counts are not those of the algorithm's own formula */
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
    if (!algorithm) return ls_fail(LS_ERR_INVALID, "there is no all-reduce %s", pair->algorithm);
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

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Chunks are cut at cache lines, so the busiest rank may have a little more than its share. */
#define CUT_TOLERANCE 0.01
/* Messages have whole bytes. */
#define ROUNDING 1e-3

static bool is_tried(const tables_settings *settings, int ranks) {
    return !settings->quick || ranks <= 4 || ranks == 8;
}

/* Beside the textbook's. Our tree is another one than the textbook's, so there nothing has to agree. */
static void add_row(tables_book *book, const struct pair *pair, int ranks, const char *quantity, double reference,
                    double ours) {
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = pair->mode,
                                          .n = ranks,
                                          .reference = reference,
                                          .ours = ours,
                                          .bound = pair->same ? TABLES_WITHIN : TABLES_SHOWN,
                                          .tolerance = CUT_TOLERANCE,
                                          .how = "measured: counted in all-reduces between threads of this process, "
                                                 "every sum checked; the reference is the textbook's formula"});
}

static void add_differing(tables_book *book, const struct pair *pair, size_t nbytes, int differing) {
    char quantity[QUANTITY_CAPACITY], size[LS_BYTES_TEXT_CAPACITY];
    snprintf(quantity, sizeof quantity, "ranks that count otherwise, %s", ls_bytes_text(size, (double)nbytes));
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = pair->mode,
                                          .reference = 0,
                                          .ours = differing,
                                          .bound = TABLES_WITHIN,
                                          .how = "measured: counted, over all N of the rows above; otherwise than the "
                                                 "algorithm's own formula (common/comm/allreduce.h), to the byte"});
}

/* Counts all N at one size; the busiest ranks' tallies go to `tallies`, if that is not NULL. */
static ls_status count_all(int *differing, struct tally *tallies, const tables_settings *settings,
                           const struct pair *pair, size_t nbytes) {
    ls_status status = LS_OK;
    *differing = 0;
    for (int n = LEAST_RANKS; status == LS_OK && n <= MOST_RANKS; n++) {
        struct tally tally = {0};
        if (!is_tried(settings, n)) continue;
        status = count_one(&tally, pair, n, nbytes);
        *differing += tally.differing;
        if (tallies) tallies[n] = tally;
    }
    return status;
}

static void add_busiest(tables_book *book, const tables_settings *settings,
                        struct tally tallies[PAIR_COUNT][MOST_RANKS + 1]) {
    const ls_hockney link = {.alpha_us = 1, .GBps = 1, .gamma_GBps = INFINITY};
    for (int kind = 0; kind < 2; kind++) {
        for (int p = 0; p < PAIR_COUNT; p++) {
            for (int n = LEAST_RANKS; n <= MOST_RANKS; n++) {
                if (!is_tried(settings, n)) continue;
                struct ls_pattern_cost cost = ls_cost_pattern(pairs[p].pattern, n, SHOWN_BYTES, &link);
                const struct tally *tally = &tallies[p][n];
                if (kind == 0)
                    add_row(book, &pairs[p], n, "messages sent, busiest rank", cost.messages, tally->messages);
                if (kind == 1)
                    add_row(book, &pairs[p], n, "bytes sent of 1 MiB, busiest rank", cost.bytes, tally->bytes);
            }
        }
    }
}

static ls_status add_counts(tables_book *book, const tables_settings *settings) {
    static const size_t sizes[] = {256, 65536, SHOWN_BYTES};
    enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };
    static struct tally tallies[PAIR_COUNT][MOST_RANKS + 1];
    int differing[SIZE_COUNT][PAIR_COUNT];
    ls_status status = LS_OK;
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int p = 0; status == LS_OK && p < PAIR_COUNT; p++)
            status =
                count_all(&differing[s][p], sizes[s] == SHOWN_BYTES ? tallies[p] : NULL, settings, &pairs[p], sizes[s]);
    if (status != LS_OK) return status;
    add_busiest(book, settings, tallies);
    for (int s = 0; s < SIZE_COUNT; s++)
        for (int p = 0; p < PAIR_COUNT; p++) add_differing(book, &pairs[p], sizes[s], differing[s][p]);
    return LS_OK;
}

/* --- steps and time ----------------------------------------------------------------------------------------------- */

static const char replayed_how[] =
    "replayed: message by message over a star of links, one of each rank; the reference is the textbook's formula";

/* The textbook's figure beside the same messages, sent over one link of each rank: one after another, while others come
 * in. That is what the formulas say, but for
 *     several messages of a step for one link: direct's steps count as one each all the same; the parameter server's
 *         formula lets their latencies follow one another, though the messages to rank 0 come together
 *     N that are no power of two, where nobody waits for the end of a step: the tree is a step shorter, and in
 *         halving-doubling those who need not fold begin at once, on links that folding needs */
static void add_replayed(tables_book *book, const struct pair *pair, int ranks, const char *quantity, double reference,
                         double ours, bool same) {
    bool power = (ranks & (ranks - 1)) == 0;
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = pair->mode,
                                          .n = ranks,
                                          .reference = reference,
                                          .ours = ours,
                                          .bound = same && power ? TABLES_WITHIN : TABLES_SHOWN,
                                          .tolerance = ROUNDING,
                                          .aside = !power,
                                          .how = replayed_how});
}

/* With a microsecond of latency and next to no bytes, the time is the number of steps. */
static ls_status add_steps(tables_book *book, const struct pair *pair, int ranks) {
    const ls_hockney steps = {.alpha_us = 1, .GBps = 1e9, .gamma_GBps = INFINITY};
    double us = NAN;
    ls_status status = tables_message_us(&us, pair->pattern, ranks, ranks, &steps);
    bool single = pair->pattern != LS_PATTERN_SERVER && pair->pattern != LS_PATTERN_DIRECT;
    add_replayed(book, pair, ranks, "steps, one after another",
                 ls_cost_pattern(pair->pattern, ranks, ranks, &steps).steps, us, single);
    return status;
}

static ls_status add_time(tables_book *book, const struct pair *pair, int ranks, size_t nbytes) {
    char quantity[QUANTITY_CAPACITY], size[LS_BYTES_TEXT_CAPACITY];
    double us = NAN;
    snprintf(quantity, sizeof quantity, "time of %s at 10 us and 12 GB/s, us", ls_bytes_text(size, (double)nbytes));
    ls_status status = tables_message_us(&us, pair->pattern, ranks, (double)nbytes, &pcie);
    add_replayed(book, pair, ranks, quantity, ls_cost_pattern(pair->pattern, ranks, (double)nbytes, &pcie).us, us,
                 pair->pattern != LS_PATTERN_SERVER);
    return status;
}

static ls_status add_all_replayed(tables_book *book, const tables_settings *settings) {
    static const size_t sizes[] = {0, 4096, SHOWN_BYTES, (size_t)64 << 20}; /* 0: steps */
    ls_status status = LS_OK;
    tables_text(book, "Steps are rounds of messages that may go at the same time. The textbook counts two for the "
                      "parameter server and "
                      "for direct. In the replay a rank's messages leave one after another. So the server takes N "
                      "steps: its first round "
                      "arrives together, and its N - 1 results leave one by one. Direct takes 2 (N - 1): N - 1 shares "
                      "out and N - 1 back. "
                      "Halving-doubling sends more on N = 3 than on 4: two ranks halve, and one of them hands the "
                      "whole buffer to the "
                      "third. It also takes longer than its formula (in the CSV). The formula lets no rank begin "
                      "before the third has "
                      "folded in; in the replay the rank that need not wait fills the link.");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int p = 0; p < PAIR_COUNT; p++)
            for (int n = LEAST_RANKS; status == LS_OK && n <= MOST_RANKS; n++) {
                if (!is_tried(settings, n)) continue;
                status = sizes[s] == 0 ? add_steps(book, &pairs[p], n) : add_time(book, &pairs[p], n, sizes[s]);
            }
    return status;
}

/* The fastest of the first `count` pairs at a size, by the formula. */
static int fastest_at(int ranks, double bytes, int count) {
    int best = 0;
    for (int p = 1; p < count; p++) {
        double us = ls_cost_pattern(pairs[p].pattern, ranks, bytes, &pcie).us;
        if (us < ls_cost_pattern(pairs[best].pattern, ranks, bytes, &pcie).us) best = p;
    }
    return best;
}

/* From 64 bytes to 1 GiB: who wins, and from which size on. */
static void describe_winners(char text[WINNERS_CAPACITY], int ranks, int count) {
    char size[LS_BYTES_TEXT_CAPACITY];
    size_t length = 0;
    int last = -1;
    for (int power = 6; power <= 30; power++) {
        double bytes = (double)(1 << power);
        int best = fastest_at(ranks, bytes, count);
        if (best == last) continue;
        length +=
            (size_t)snprintf(text + length, WINNERS_CAPACITY - length, last < 0 ? "%s" : "; %s", pairs[best].mode);
        if (last >= 0) {
            length +=
                (size_t)snprintf(text + length, WINNERS_CAPACITY - length, " from %s on", ls_bytes_text(size, bytes));
        }
        last = best;
    }
}

static void add_winners(tables_book *book) {
    char three[WINNERS_CAPACITY], all[WINNERS_CAPACITY];
    tables_text(book,
                "Who is fastest on such links by these formulas, from 64 B to 1 GiB (looked at by powers of two):");
    for (int n = 2; n <= MOST_RANKS; n *= 2) {
        describe_winners(three, n, 3);
        describe_winners(all, n, PAIR_COUNT);
        tables_text(book, "N = %d. Of ring, parameter server and tree: %s. Of all five: %s.", n, three, all);
    }
    tables_text(
        book, "Halving-doubling is as short as the tree and moves as little as the ring, but needs a fast way between "
              "ranks that are far apart; the ring only ever talks to its neighbours.");
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

ls_status tables_make_allreduce(tables_book *book, const tables_settings *settings) {
    tables_text(
        book, "A rank's messages and bytes in one all-reduce. The ring sends 2 (N - 1) / N of the buffer, which hardly "
              "grows with N; the parameter server's busiest rank sends N - 1 of them. A message is one range of "
              "memory that goes from one rank to another in one piece. Our tree is binary and sends segments of "
              "64 KiB, the textbook's is binomial and sends whole messages.");
    ls_status status = add_counts(book, settings);
    if (status == LS_OK) status = add_all_replayed(book, settings);
    if (status == LS_OK) add_winners(book);
    return status;
}
