/* Tests lab 06's buckets: which gradients they contain, when they are launched, and which work waits for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_procs/buckets.h"
#include "labs/06-buckets/steps.h"

/* --- which gradients share a bucket -------------------------------------------------------------------------------- */

enum { MOST_LIMITS = 3 };

struct assignment {
    size_t count, nbytes[16];
    int64_t order[16];
    size_t limit_count, limits[MOST_LIMITS];
    bool reverse;
};

enum { SEEN_ONE_BY_ONE = 16 };

static void see_list(probe *p, const char *what, const size_t *values, size_t count) {
    int64_t *wholes = malloc((count + 1) * sizeof *wholes);
    probe_must(p, "memory for a list", wholes ? LS_OK : LS_ERR_NO_MEMORY);
    for (size_t i = 0; i < count; i++) wholes[i] = (int64_t)values[i];
    probe_see_wholes(p, what, wholes, count);
    free(wholes);
}

static void see_buckets(probe *p, const struct ddp_buckets *b) {
    size_t count = b->bucket_count < b->parameter_count ? b->bucket_count : b->parameter_count;
    probe_see_count(p, "buckets", b->bucket_count);
    for (size_t k = 0, at = 0; k < count && k < SEEN_ONE_BY_ONE; k++) {
        probe_see_count(p, probe_name(p, "gradients in bucket %zu", k), b->sizes[k]);
        for (size_t i = 0; i < b->sizes[k] && at < b->parameter_count && i < SEEN_ONE_BY_ONE; i++, at++)
            probe_see_count(p, probe_name(p, "gradient %zu of bucket %zu", i, k), b->parameters[at]);
    }
    see_list(p, "all gradients, bucket by bucket", b->parameters, b->parameter_count);
    see_list(p, "gradients of each bucket", b->sizes, count);
}

/* Checks that they are the same buckets in reverse order; `assign` tests which gradients they contain. */
static void see_reversed(probe *p, const struct ddp_buckets *straight, const struct ddp_buckets *b) {
    size_t count = straight->bucket_count, all = 0, most = straight->parameter_count;
    for (size_t k = 0; k < count && k < most && all <= most; k++) all += straight->sizes[k];
    probe_see(p, "whether each gradient is in one bucket", "%s", all == most ? "yes" : "no");
    if (all != most) return;
    probe_see(p, "whether there are as many buckets as before", "%s", b->bucket_count == count ? "yes" : "no");
    const size_t *end = straight->parameters + most, *at = b->parameters;
    for (size_t k = 0; k < count && b->bucket_count == count; at += b->sizes[k++]) {
        size_t size = straight->sizes[count - 1 - k];
        end -= size;
        if (b->sizes[k] == size && memcmp(at, end, size * sizeof *at) == 0) continue;
        probe_see(p, "the first bucket that is not what it was, counted from the end", "%zu", k);
        return;
    }
    probe_see(p, "the first bucket that is not what it was, counted from the end", "none");
}

static void tell_list(char *text, size_t capacity, const size_t *values, size_t count) {
    size_t length = 0;
    snprintf(text, capacity, "none");
    for (size_t i = 0; i < count && length < capacity; i++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%zu", i > 0 ? ", " : "", values[i]);
}

static void tell_case(probe *p, const struct assignment *a) {
    char limits[80], sizes[160];
    tell_list(limits, sizeof limits, a->limits, a->limit_count);
    tell_list(sizes, sizeof sizes, a->nbytes, a->count);
    probe_case(p, "gradients of %s bytes, limits %s%s%s", sizes, limits,
               a->count > 1 && a->order[0] > a->order[1] ? ", last to first" : "", a->reverse ? ", reversed" : "");
}

/* Copies into memory that ends where the list ends. */
static void *copied(const void *values, size_t nbytes) {
    void *copy = malloc(nbytes);
    if (copy) memcpy(copy, values, nbytes);
    return copy;
}

/* Calls the function with lists that have exactly as many entries. */
static void assign_lists(probe *p, const struct assignment *a, const size_t *all_nbytes, const int64_t *all_order) {
    struct ddp_buckets buckets = {0};
    size_t *nbytes = copied(all_nbytes, a->count * sizeof *nbytes);
    size_t *limits = copied(a->limits, a->limit_count * sizeof *limits);
    int64_t *order = copied(all_order, a->count * sizeof *order);
    probe_must(p, "the buckets",
               ddp_assign_buckets(&buckets, nbytes, order, a->count, limits, a->limit_count, a->reverse));
    if (a->reverse) {
        struct ddp_buckets straight;
        probe_must(p, "the buckets, not reversed",
                   ddp_assign_buckets(&straight, nbytes, order, a->count, limits, a->limit_count, false));
        see_reversed(p, &straight, &buckets);
        ddp_buckets_free(&straight);
    } else {
        see_buckets(p, &buckets);
    }
    ddp_buckets_free(&buckets);
    free(nbytes);
    free(limits);
    free(order);
}

static void assign(probe *p, const struct assignment *a) {
    tell_case(p, a);
    assign_lists(p, a, a->nbytes, a->order);
}

/* Small edge cases: a limit that is reached, or exceeded; an open bucket at the end, or none; one gradient, or none. */
static const struct assignment small[] = {
    {.count = 2, .nbytes = {60, 60}, .limit_count = 1, .limits = {100}},
    {.count = 3, .nbytes = {60, 60, 60}, .limit_count = 1, .limits = {100}},
    {.count = 4, .nbytes = {50, 50, 40, 70}, .limit_count = 1, .limits = {100}},
    {.count = 4, .nbytes = {99, 1, 99, 2}, .limit_count = 1, .limits = {100}},
    {.count = 3, .nbytes = {1000, 10, 1000}, .limit_count = 1, .limits = {100}},
    {.count = 5, .nbytes = {10, 10, 10, 10, 10}, .limit_count = 2, .limits = {10, 20}},
    {.count = 6, .nbytes = {10, 10, 10, 10, 10, 10}, .limit_count = 2, .limits = {30, 10}},
    {.count = 7, .nbytes = {10, 10, 10, 10, 10, 10, 10}, .limit_count = 3, .limits = {10, 20, 30}},
    {.count = 3, .nbytes = {40, 50, 60}, .limit_count = 1, .limits = {SIZE_MAX}},
    {.count = 3, .nbytes = {40, 50, 60}, .limit_count = 3, .limits = {1000, 1, 1}},
    {.count = 3, .nbytes = {3000000000, 1500000000, 10}, .limit_count = 1, .limits = {4500000000}},
    {.count = 3, .nbytes = {10, 10, 10}, .limit_count = 1, .limits = {1}},
    {.count = 1, .nbytes = {40}, .limit_count = 1, .limits = {40}},
    {.count = 0, .limit_count = 1, .limits = {100}},
};

static void draw_gradients(probe *p, size_t count, size_t *nbytes, int64_t *order) {
    for (size_t i = 0; i < count; i++) nbytes[i] = 4 * (1 + (size_t)probe_draw(p, 25));
    for (size_t i = 0; i < count; i++) order[i] = (int64_t)i;
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)probe_draw(p, i);
        int64_t last = order[i - 1];
        order[i - 1] = order[j];
        order[j] = last;
    }
}

static void draw_assignment(probe *p, struct assignment *a) {
    a->count = 2 + (size_t)probe_draw(p, 14);
    a->limit_count = 1 + (size_t)probe_draw(p, MOST_LIMITS);
    for (size_t i = 0; i < a->limit_count; i++) a->limits[i] = 4 + 4 * (size_t)probe_draw(p, 40);
    draw_gradients(p, a->count, a->nbytes, a->order);
}

/* More gradients, in a bucket and in total, than 16 bits count. */
static void assign_many(probe *p, bool reverse) {
    enum { MANY = 140001 };
    const struct assignment a = {.count = MANY, .limit_count = 3, .limits = {64, 4 << 20, 52}, .reverse = reverse};
    size_t *nbytes = malloc(MANY * sizeof *nbytes);
    int64_t *order = malloc(MANY * sizeof *order);
    probe_must(p, "memory for many gradients", nbytes && order ? LS_OK : LS_ERR_NO_MEMORY);
    draw_gradients(p, MANY, nbytes, order);
    probe_case(p, "%zu gradients of drawn bytes, limits 64, %d, 52, in any order%s", a.count, 4 << 20,
               reverse ? ", reversed" : "");
    assign_lists(p, &a, nbytes, order);
    free(nbytes);
    free(order);
}

static void every_assignment(probe *p, bool reverse) {
    enum { DRAWN = 40 };
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
            struct assignment a = small[i];
            a.reverse = reverse;
            for (size_t k = 0; k < a.count; k++) a.order[k] = (int64_t)(turn == 0 ? k : a.count - 1 - k);
            assign(p, &a);
        }
    for (int i = 0; i < DRAWN; i++) {
        struct assignment a = {.reverse = reverse};
        draw_assignment(p, &a);
        assign(p, &a);
    }
    assign_many(p, reverse);
}

static void assigned(probe *p) { every_assignment(p, false); }
static void reversed(probe *p) { every_assignment(p, true); }

/* --- whole steps --------------------------------------------------------------------------------------------------- */

/* The first step has one bucket with everything, except with find_unused. In any order: a bucket may be complete before
 * its turn, a different one on each rank. */
static const struct kind kinds[] = {
    {.ranks = 1, .most = 3},
    {.ranks = 1, .most = 3, .arrival = AT_RANDOM},
    {.ranks = 2, .most = 3},
    {.ranks = 2, .most = 3, .arrival = AT_RANDOM},
    {.ranks = 3, .most = 1, .arrival = AT_RANDOM},
    {.ranks = 2, .most = 10, .arrival = AT_RANDOM},
    {.ranks = 1, .most = 3, .no_overlap = true},
    {.ranks = 2, .most = 3, .no_overlap = true, .arrival = AT_RANDOM},
    {.ranks = 2, .most = 3, .local = true, .arrival = AT_RANDOM},
    {.ranks = 3, .most = 3, .compress = LS_FP16, .arrival = AT_RANDOM},
    {.ranks = 4, .most = 4, .compress = LS_BF16, .no_overlap = true},
    {.ranks = 2, .most = 3, .find_unused = true},
    {.ranks = 3, .most = 3, .find_unused = true, .arrival = AT_RANDOM},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void launched(probe *p) {
    char text[256];
    for (int k = 0; k < KINDS; k++) {
        struct steps *steps = steps_run(p, &kinds[k], "inline");
        for (int s = 0; s < STEPS; s++)
            for (int r = 0; r < kinds[k].ranks; r++) {
                const struct rank *rank = &steps->rank[r];
                probe_see(p, probe_name(p, "buckets that rank %d launches in step %d", r, s), "%s",
                          order_launches(text, sizeof text, &rank->order, s, rank->reported[s]));
            }
        for (int r = 0; r < kinds[k].ranks; r++) {
            const struct rank *rank = &steps->rank[r];
            probe_see(p, probe_name(p, "rank %d's phase while it launches", r), "%s", rank->order.phase);
            probe_see(p, probe_name(p, "rank %d's phase afterwards, in backward", r), "%s", rank->phase_of_backward);
            probe_see(p, probe_name(p, "rank %d's phase after the end, to which it came in another one", r), "%s",
                      rank->phase_of_end);
        }
        free(steps);
    }
}

static void see_averages(probe *p, const struct steps *steps) {
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < steps->kind.ranks; r++)
            probe_see_floats(p, probe_name(p, "rank %d's gradients after step %d", r, s), steps->rank[r].got[s],
                             steps->rank[r].got_count);
}

static void averaged(probe *p) {
    for (int k = 0; k < KINDS; k++) {
        struct steps *steps = steps_run(p, &kinds[k], "inline");
        see_averages(p, steps);
        free(steps);
    }
}

/* If nothing is launched, everything is ordered. */
static void see_launches(probe *p, const struct steps *steps) {
    bool launches = true;
    for (int r = 0; r < steps->kind.ranks; r++) launches = launches && steps->rank[r].order.launch_count > 0;
    probe_see(p, "whether buckets are launched", "%s", launches ? "yes" : "no");
}

/* With find_unused the host waits for the last all-reduce, so the waits of the compute stream prove nothing. */
static void ordered(probe *p) {
    char text[256];
    for (int k = 0; k < KINDS; k++) {
        if (kinds[k].find_unused) continue;
        struct steps *steps = steps_run(p, &kinds[k], "inline");
        see_launches(p, steps);
        for (int r = 0; r < kinds[k].ranks; r++)
            probe_see(p, probe_name(p, "rank %d", r), "%s", order_judge(text, sizeof text, &steps->rank[r].order));
        free(steps);
    }
}

static void overlapped(probe *p) {
    char text[256];
    for (int k = 0; k < KINDS; k++) {
        struct steps *steps = steps_run(p, &kinds[k], "inline");
        for (int s = 0; s < STEPS; s++)
            for (int r = 0; r < kinds[k].ranks; r++)
                probe_see(
                    p, probe_name(p, "gradients that may be written while a bucket is reduced, step %d, rank %d", s, r),
                    "%s", order_overlap(text, sizeof text, &steps->rank[r].order, s));
        free(steps);
    }
}

/* With find_unused the host waits, so the streams' order proves nothing. */
static bool is_ordered(const struct steps *steps) {
    char text[256];
    bool is = true;
    for (int r = 0; r < steps->kind.ranks && !steps->kind.find_unused; r++)
        is = is && strcmp(order_judge(text, sizeof text, &steps->rank[r].order), "every access is ordered") == 0;
    return is;
}

/* Compares with the same steps on inline streams, whose results `average` tests. Missing waits that order.c detects are
 * reported by `order`. */
static void see_same(probe *p, const struct steps *inline_steps, const struct steps *steps) {
    bool judged = is_ordered(steps);
    see_launches(p, steps);
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < steps->kind.ranks; r++) {
            const struct rank *is = &steps->rank[r], *should = &inline_steps->rank[r];
            bool same = memcmp(is->got[s], should->got[s], is->got_count * sizeof(float)) == 0;
            probe_see(p, probe_name(p, "whether rank %d's gradients after step %d are those of inline streams", r, s),
                      "%s", same || !judged ? "yes" : "no");
        }
}

/* Detects what order.c does not see (memory that is written without a stream). */
static void shuffled(probe *p) {
    enum { SEEDS = 5 };
    for (int k = 0; k < KINDS; k++) {
        struct steps *inline_steps = steps_run(p, &kinds[k], "inline");
        for (int seed = 0; seed < SEEDS; seed++) {
            char streams[40];
            snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            struct steps *steps = steps_again(p, inline_steps, streams);
            see_same(p, inline_steps, steps);
            free(steps);
        }
        free(inline_steps);
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"assign", assigned},   {"reverse", reversed}, {"launch", launched},
                                         {"average", averaged},  {"order", ordered},    {"overlap", overlapped},
                                         {"shuffled", shuffled}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
