/* sums — "12+7=19;": a text without a file, whose answers can be marked right or wrong.
 *   idea  : questions are drawn from all pairs of summands, in a random order, until enough are held out; a pair that
 *           was drawn already in the other order is skipped, so that all sums differ. The training text draws pairs
 *           with replacement, and again if a pair is held out, in either order: so a network can learn a held-out sum
 *           only from others
 *   cost  : a few milliseconds, half a megabyte */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/random.h"
#include "common/data/text_internal.h"

enum { NUMBERS = 100, PAIRS = NUMBERS * NUMBERS, SUM_MOST_BYTES = sizeof "99+99=198;" };

/* Pairs are numbered a x NUMBERS + b. */
struct sums {
    ls_generator generator;
    bool held_out[PAIRS]; /* as questions, in either order */
    int64_t order[PAIRS];
    char test[LS_SUMS_HELD_OUT * SUM_MOST_BYTES], train[LS_SUMS_TRAINED * SUM_MOST_BYTES];
    size_t test_count, train_count;
};

static char *write_number(char *text, int number, char end) {
    if (number >= 100) *text++ = (char)('0' + number / 100);
    if (number >= 10) *text++ = (char)('0' + number / 10 % 10);
    *text++ = (char)('0' + number % 10);
    *text++ = end;
    return text;
}

/* Without snprintf, which takes most of a small run's time. */
static size_t write_sum(char *text, int64_t pair) {
    int a = (int)(pair / NUMBERS), b = (int)(pair % NUMBERS);
    return (size_t)(write_number(write_number(write_number(text, a, '+'), b, '='), a + b, ';') - text);
}

static void hold_out(struct sums *sums) {
    ls_randperm(&sums->generator, PAIRS, sums->order);
    for (int i = 0, questions = 0; questions < LS_SUMS_HELD_OUT; i++) {
        int64_t pair = sums->order[i], swapped = pair % NUMBERS * NUMBERS + pair / NUMBERS;
        if (sums->held_out[pair]) continue;
        sums->held_out[pair] = sums->held_out[swapped] = true;
        sums->test_count += write_sum(sums->test + sums->test_count, pair);
        questions++;
    }
}

static void draw_training(struct sums *sums) {
    for (int i = 0; i < LS_SUMS_TRAINED; i++) {
        int64_t pair;
        do pair = ls_random32(&sums->generator) % PAIRS;
        while (sums->held_out[pair]);
        sums->train_count += write_sum(sums->train + sums->train_count, pair);
    }
}

ls_status ls_dataset_open_sums(ls_dataset **train, ls_dataset **test, uint64_t seed, int context) {
    *train = *test = NULL;
    struct sums *sums = calloc(1, sizeof *sums);
    if (!sums) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for generated sums");
    ls_generator_seed(&sums->generator, seed);
    hold_out(sums);
    draw_training(sums);
    const struct ls_text_sets sets = {.name = "the text of generated sums",
                                      .train = (const uint8_t *)sums->train,
                                      .train_count = sums->train_count,
                                      .test = (const uint8_t *)sums->test,
                                      .test_count = sums->test_count};
    ls_status status = ls_text_open_sets(train, test, &sets, context);
    free(sums);
    return status;
}
