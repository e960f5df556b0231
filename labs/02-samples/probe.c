/* Tests lab 02's functions: sizes and offsets of pieces; counts, shares and orders of samplers. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/chunk.h"
#include "common/data/sampler.h"
#include "labs/course/probe/probe.h"

/* --- chunks ---------------------------------------------------------------------------------------------------------- */

static const int piece_numbers[] = {1, 2, 3, 4, 5, 8, 16};
enum { PIECE_NUMBERS = sizeof piece_numbers / sizeof piece_numbers[0], MOST_LENGTH = 40 };

/* Initial values that are never the right answer, for functions that write nothing. */
static void chunk(size_t length, int pieces, int index, size_t *begin, size_t *count) {
    *begin = *count = (size_t)-7;
    ls_chunk(length, pieces, index, begin, count);
}

static void see_sizes(probe *p, size_t length, int pieces) {
    char text[512] = "";
    probe_case(p, "%zu samples in %d piece%s", length, pieces, pieces > 1 ? "s" : "");
    probe_see_count(p, "the number of pieces", ls_chunk_count(length, pieces));
    for (int i = 0, at = 0; i < pieces; i++) {
        size_t begin, count;
        chunk(length, pieces, i, &begin, &count);
        at += snprintf(text + at, sizeof text - (size_t)at, i ? " %zd" : "%zd", (ssize_t)count);
    }
    probe_see(p, "their sizes", "%s", text);
}

static void see_place(probe *p, size_t length, int pieces, int index) {
    size_t begin, count;
    chunk(length, pieces, index, &begin, &count);
    probe_see(p, probe_name(p, "piece %d", index), "%zu samples from %zu on", count, begin);
}

static void see_places(probe *p, size_t length, int pieces) {
    probe_case(p, "%zu samples in %d piece%s", length, pieces, pieces > 1 ? "s" : "");
    for (int i = 0; i < pieces; i++) see_place(p, length, pieces, i);
}

/* Of many pieces: the first, those around a random one, those around the last that is not empty, and the last. */
static void see_some_places(probe *p, size_t length, int pieces) {
    probe_case(p, "%zu samples in %d pieces, some of them", length, pieces);
    size_t there = ls_chunk_count(length, pieces);
    probe_see_count(p, "the number of pieces", there);
    const int drawn = (int)probe_draw(p, (uint64_t)pieces), end = there < (size_t)pieces ? (int)there : pieces - 1;
    const int indices[] = {0, drawn, drawn + 1, end - 1, end, end + 1, pieces - 1};
    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++)
        if (indices[i] >= 0 && indices[i] < pieces) see_place(p, length, pieces, indices[i]);
}

static void chunk_sizes(probe *p) {
    for (size_t length = 1; length <= MOST_LENGTH; length++)
        for (int i = 0; i < PIECE_NUMBERS; i++) see_sizes(p, length, piece_numbers[i]);
    for (int i = 0; i < PIECE_NUMBERS; i++) see_sizes(p, 0, piece_numbers[i]);
    for (int again = 0; again < 20; again++) see_sizes(p, probe_draw(p, 100000), 1 + (int)probe_draw(p, 64));
}

static void chunk_places(probe *p) {
    for (size_t length = 0; length <= MOST_LENGTH; length++)
        for (int i = 0; i < PIECE_NUMBERS; i++) see_places(p, length, piece_numbers[i]);
    for (int i = 0; i < PIECE_NUMBERS; i++) see_places(p, SIZE_MAX - probe_draw(p, 3), piece_numbers[i]);
    /* numbers of pieces beyond 8 and 16 bits, of lengths around the limits of 8, 16, 24 (a float), 32 and 53 bits (a
     * double) */
    static const int many[] = {3, 64, 255, 256, 257, 1000, 65535, 65536, 65537};
    static const int bits[] = {8, 16, 24, 31, 32, 53, 63};
    for (size_t m = 0; m < sizeof many / sizeof many[0]; m++) {
        see_some_places(p, 0, many[m]);
        see_some_places(p, 3, many[m]);
        see_some_places(p, (size_t)many[m] + 1, many[m]);
        see_some_places(p, SIZE_MAX, many[m]);
        for (size_t b = 0; b < sizeof bits / sizeof bits[0]; b++)
            for (size_t more = 0; more <= 1; more++) see_some_places(p, ((size_t)1 << bits[b]) + more, many[m]);
    }
}

/* --- samplers -------------------------------------------------------------------------------------------------------- */

enum { MOST_RANKS = 300, MOST_DRAWN_RANKS = 8, MOST_SAMPLES = 70000, MOST_DRAWN_SAMPLES = 2000, MANNERS = 4 };

static const char *const manners[MANNERS] = {"", ", drop_last", ", uneven", ", drop_last and uneven"};

struct share {
    int64_t n, epoch;
    int world_size, manner;
    bool shuffle;
    uint64_t seed;
};

static void begin_case(probe *p, const struct share *s) {
    probe_case(p, "%lld samples on %d rank%s%s%s, seed %llu, epoch %lld", (long long)s->n, s->world_size,
               s->world_size > 1 ? "s" : "", s->shuffle ? "" : ", not shuffled", manners[s->manner],
               (unsigned long long)s->seed, (long long)s->epoch);
}

/* A rank's sampler, at the epoch; the caller destroys it. */
static ls_sampler *open_sampler(probe *p, const struct share *s, int rank) {
    const ls_sampler_options options = {.dataset_count = s->n,
                                        .world_size = s->world_size,
                                        .rank = rank,
                                        .shuffle = s->shuffle,
                                        .drop_last = s->manner == 1 || s->manner == 3,
                                        .uneven = s->manner >= 2,
                                        .seed = s->seed};
    ls_sampler *sampler;
    probe_must(p, probe_name(p, "rank %d's sampler", rank), ls_sampler_create(&sampler, &options));
    if (s->epoch > 0) ls_sampler_set_epoch(sampler, s->epoch);
    return sampler;
}

/* Of many ranks only the first two, the last two, and one in between. */
static bool is_looked_at(const struct share *s, int rank) {
    return s->world_size <= MOST_DRAWN_RANKS || rank < 2 || rank >= s->world_size - 2 || rank == s->world_size / 2;
}

static void see_counts(probe *p, const struct share *s) {
    begin_case(p, s);
    for (int r = 0; r < s->world_size; r++) {
        if (!is_looked_at(s, r)) continue;
        ls_sampler *sampler = open_sampler(p, s, r);
        int64_t count = -1, of_each[MOST_RANKS];
        (void)ls_sampler_indices(sampler, &count);
        for (int other = 0; other < s->world_size; other++) of_each[other] = ls_sampler_count(sampler, other);
        probe_see(p, probe_name(p, "the number of rank %d's samples", r), "%lld", (long long)count);
        probe_see_wholes(p, probe_name(p, "what rank %d takes for the numbers of all", r), of_each,
                         (size_t)s->world_size);
        ls_sampler_destroy(sampler);
    }
}

/* How often all ranks together see each sample. The check of the order tests which samples are seen twice. */
static void see_share(probe *p, const struct share *s) {
    enum { MOST_TIMES = 10 };
    static int seen[MOST_SAMPLES];
    int samples[MOST_TIMES + 1] = {0};
    int64_t strangers = 0;
    memset(seen, 0, sizeof seen);
    begin_case(p, s);
    for (int r = 0; r < s->world_size; r++) {
        ls_sampler *sampler = open_sampler(p, s, r);
        int64_t count;
        const int64_t *indices = ls_sampler_indices(sampler, &count);
        for (int64_t i = 0; i < count; i++) {
            bool is_sample = indices[i] >= 0 && indices[i] < s->n;
            strangers += !is_sample;
            if (is_sample) seen[indices[i]]++;
        }
        ls_sampler_destroy(sampler);
    }
    for (int64_t i = 0; i < s->n; i++) samples[seen[i] < MOST_TIMES ? seen[i] : MOST_TIMES]++;
    probe_see(p, "the number of indices that are no samples", "%lld", (long long)strangers);
    for (int times = 0; times <= MOST_TIMES; times++)
        probe_see(p, probe_name(p, "the number of samples that are seen %d time%s", times, times > 1 ? "s" : ""), "%d",
                  samples[times]);
}

static void see_order(probe *p, const struct share *s) {
    begin_case(p, s);
    for (int r = 0; r < s->world_size; r++) {
        if (!is_looked_at(s, r)) continue;
        ls_sampler *sampler = open_sampler(p, s, r);
        int64_t count;
        const int64_t *indices = ls_sampler_indices(sampler, &count);
        probe_see_wholes(p, probe_name(p, "rank %d's samples", r), indices, (size_t)count);
        ls_sampler_set_epoch(sampler, s->epoch + 1);
        indices = ls_sampler_indices(sampler, &count);
        probe_see_wholes(p, probe_name(p, "rank %d's samples in the next epoch", r), indices, (size_t)count);
        ls_sampler_set_epoch(sampler, s->epoch);
        indices = ls_sampler_indices(sampler, &count);
        probe_see_wholes(p, probe_name(p, "rank %d's samples in that epoch again", r), indices, (size_t)count);
        ls_sampler_destroy(sampler);
    }
}

/* Small shares first: fewer samples than ranks, multiples of the ranks, one more and one less; then random ones. */
static void every_share(probe *p, bool shuffle, void (*see)(probe *p, const struct share *s)) {
    static const int worlds[] = {1, 2, 3, 4, 8};
    static const int64_t counts[] = {1, 2, 3, 5, 7, 8, 9, 23, 24, 25, 100};
    enum { WORLDS = sizeof worlds / sizeof worlds[0], COUNTS = sizeof counts / sizeof counts[0] };
    for (int c = 0; c < COUNTS; c++)
        for (int w = 0; w < WORLDS; w++)
            for (int m = 0; m < MANNERS; m++)
                see(p, &(struct share){.n = counts[c], .world_size = worlds[w], .manner = m, .shuffle = shuffle});
    for (int i = 0; i < 8; i++) /* a seed and an epoch other than 0, if the case is small enough to read */
        see(p, &(struct share){
                   .n = 5, .world_size = 1 + i / 4, .shuffle = shuffle, .seed = (uint64_t)(i / 2 % 2), .epoch = i % 2});
    for (int again = 0; again < 10; again++)
        for (int m = 0; m < MANNERS; m++)
            see(p, &(struct share){.n = 1 + (int64_t)probe_draw(p, MOST_DRAWN_SAMPLES),
                                   .world_size = 1 + (int)probe_draw(p, MOST_DRAWN_RANKS),
                                   .manner = m,
                                   .shuffle = shuffle,
                                   .epoch = (int64_t)probe_draw(p, 100),
                                   .seed = probe_draw(p, 1000000)});
    for (int m = 0; m < MANNERS; m++) see(p, &(struct share){.n = 0, .world_size = 4, .manner = m, .shuffle = shuffle});
    for (int m = 0; m < MANNERS; m++) { /* more ranks than 8 bits count, and more samples than 16 bits do */
        see(p, &(struct share){.n = 1000, .world_size = MOST_RANKS, .manner = m, .shuffle = shuffle});
        see(p, &(struct share){.n = 7, .world_size = MOST_RANKS, .manner = m, .shuffle = shuffle});
        see(p, &(struct share){.n = MOST_SAMPLES, .world_size = 1 + m % 2 * 2, .manner = m, .shuffle = shuffle});
    }
}

/* Numbers of samples that a float rounds to one less, or one more. */
static void see_counts_of_many(probe *p) {
    static const struct share many[] = {{.n = (1 << 24) + 1, .world_size = 64},
                                        {.n = (1 << 24) + 3, .world_size = 4, .manner = 1},
                                        {.n = (1 << 24) + 1, .world_size = 64, .manner = 2}};
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
        int64_t of_each[MOST_RANKS];
        begin_case(p, &many[i]);
        ls_sampler *sampler = open_sampler(p, &many[i], many[i].world_size - 1);
        for (int other = 0; other < many[i].world_size; other++) of_each[other] = ls_sampler_count(sampler, other);
        probe_see_wholes(p, "what the last rank takes for the numbers of all", of_each, (size_t)many[i].world_size);
        ls_sampler_destroy(sampler);
    }
}

/* Epochs beyond 8 and 16 bits, and seeds beyond 16, 31 and 32. */
static void see_order_of_large_numbers(probe *p) {
    static const int64_t epochs[] = {127, 255, 256, 32767, 65535, 65536};
    static const uint64_t seeds[] = {255, 65536, (1u << 24) + 1, INT32_MAX, UINT32_MAX, (uint64_t)UINT32_MAX + 7};
    for (size_t e = 0; e < sizeof epochs / sizeof epochs[0]; e++)
        see_order(p, &(struct share){.n = 11, .world_size = 2, .shuffle = true, .epoch = epochs[e]});
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        see_order(p, &(struct share){.n = 11, .world_size = 2, .shuffle = true, .seed = seeds[i], .epoch = (int64_t)i});
}

static void sampler_count(probe *p) {
    every_share(p, false, see_counts);
    see_counts_of_many(p);
}

static void sampler_share(probe *p) {
    every_share(p, false, see_share);
    every_share(p, true, see_share);
}

static void sampler_order(probe *p) {
    every_share(p, false, see_order);
    every_share(p, true, see_order);
    see_order_of_large_numbers(p);
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"chunk-sizes", chunk_sizes},     {"chunk-places", chunk_places},
                                         {"sampler-count", sampler_count}, {"sampler-share", sampler_share},
                                         {"sampler-order", sampler_order}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
