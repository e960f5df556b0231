/* random_dataset — random samples that cost little more than reading memory.
 *   idea  : a pool of P standard normal values is drawn once: 2^18 for the sets that programs train on; for a small set
 *           as many as all its samples together have, rounded up to a power of two, but 2^10 at least. Value i of a
 *           sample is (pool[a + i] + pool[b + i]) / sqrt(2) (indices modulo P), again standard normal; a != b come from
 *           a hash of (seed, sample). There are about P^2 / 2 such pairs, so that no two of even a hundred thousand
 *           samples are likely to be the same.
 *   cost  : 1 MiB; per value two loads and an addition. Drawing each value would take some 30 times as long. Large
 *           samples of a batch are written past the caches, which takes about as long as copying them.
 *   tokens: each from a hash of (seed, sample, position), without the pool
 *   limit : samples of more than P values repeat themselves, and samples share parts: use them to test speed and
 *           memory, not statistics. */
#include <stdint.h>
#include <stdlib.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "common/base/log.h"
#include "common/base/random.h"
#include "common/data/dataset_internal.h"

#define LS_MIN_POOL_COUNT ((size_t)1 << 10)
#define LS_MAX_POOL_COUNT ((size_t)1 << 18)
#define LS_SMALL_SET_COUNT ((size_t)10000)   /* samples; in larger sets they do not depend on the set's size */
#define LS_MAX_INPUT_COUNT ((size_t)1 << 40) /* of a sample; keeps products far from overflow */

#define SCALE 0.70710678f
#define LARGE_COUNT ((size_t)2048) /* values of a sample; from here on, batches exceed the caches */

struct random_dataset {
    ls_dataset base;
    uint64_t seed;
    size_t pool_count;
    float pool[];
};

/* splitmix64's finaliser: a bijection in which each input bit changes each output bit with probability one half. */
static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

enum { TOGETHER = 16 }; /* values that the compiler vectorizes */

static void add_scaled(float *restrict destination, const float *restrict a, const float *restrict b, size_t count) {
    size_t i = 0;
    for (; i + TOGETHER <= count; i += TOGETHER) {
        for (size_t j = i; j < i + TOGETHER; j++) destination[j] = (a[j] + b[j]) * SCALE;
    }
    for (; i < count; i++) destination[i] = (a[i] + b[i]) * SCALE;
}

#if defined(__SSE__)
/* The same values, past the caches: the memory is not read first. */
static void add_scaled_past_caches(float *restrict destination, const float *restrict a, const float *restrict b,
                                   size_t count) {
    const __m128 scale = _mm_set1_ps(SCALE);
    size_t before = -((uintptr_t)destination / sizeof(float)) % 4, i = before < count ? before : count;
    add_scaled(destination, a, b, i);
    for (; i + TOGETHER <= count; i += TOGETHER) {
        for (size_t j = i; j < i + TOGETHER; j += 4)
            _mm_stream_ps(destination + j, _mm_mul_ps(_mm_add_ps(_mm_loadu_ps(a + j), _mm_loadu_ps(b + j)), scale));
    }
    _mm_sfence(); /* before any store that announces the sample */
    add_scaled(destination + i, a + i, b + i, count - i);
}
#else
#define add_scaled_past_caches add_scaled
#endif

static void fill_from_pool(const struct random_dataset *random, uint64_t key, bool alone, float *destination,
                           size_t count) {
    size_t pool_count = random->pool_count;
    size_t first = key % pool_count;
    size_t second = first + 1 + (key >> 32) % (pool_count - 1);
    second %= pool_count;
    void (*add)(float *restrict, const float *restrict, const float *restrict, size_t) =
        count >= LARGE_COUNT && !alone ? add_scaled_past_caches : add_scaled;
    while (count > 0) { /* in runs that end where one of the two reaches the pool's end */
        size_t run = pool_count - (first > second ? first : second);
        if (run > count) run = count;
        add(destination, random->pool + first, random->pool + second, run);
        first = (first + run) % pool_count;
        second = (second + run) % pool_count;
        destination += run;
        count -= run;
    }
}

/* A row's label is the token after its own. */
static void fill_tokens(uint64_t key, const ls_sample_spec *spec, int32_t *tokens, int64_t *labels) {
    size_t count = ls_sample_input_count(spec);
    uint64_t vocabulary = (uint64_t)spec->classes;
    for (size_t i = 0; i <= count; i++) {
        int32_t token = (int32_t)(((mix(key + i) >> 32) * vocabulary) >> 32);
        if (i < count) tokens[i] = token;
        if (labels && i > 0) labels[i - 1] = token;
    }
}

static ls_status random_read(const ls_dataset *dataset, int64_t index, bool alone, void *input, int64_t *label,
                             float *target) {
    const struct random_dataset *random = (const struct random_dataset *)dataset;
    /* one key for the input and one for the answer, unrelated to each other */
    uint64_t key = mix(mix(random->seed + 0x9e3779b97f4a7c15u) + (uint64_t)index);
    uint64_t answer_key = mix(key + 0x9e3779b97f4a7c15u);
    if (dataset->spec.tokens) {
        fill_tokens(key, &dataset->spec, input, label);
        return LS_OK;
    }
    fill_from_pool(random, key, alone, input, ls_sample_input_count(&dataset->spec));
    if (label) *label = (int64_t)(answer_key % (uint64_t)dataset->spec.classes);
    if (target) fill_from_pool(random, answer_key, alone, target, dataset->spec.target_count);
    return LS_OK;
}

static void random_close(ls_dataset *dataset) { free(dataset); }

static ls_status check_spec(const ls_sample_spec *spec, size_t count) {
    if (count == 0) return ls_fail(LS_ERR_INVALID, "a random dataset needs at least one sample");
    if (spec->channels < 1 || spec->height < 1 || spec->width < 1) {
        return ls_fail(LS_ERR_INVALID, "a random dataset needs a positive shape, got %d x %d x %d", spec->channels,
                       spec->height, spec->width);
    }
    size_t input_count;
    if (__builtin_mul_overflow((size_t)spec->channels * (size_t)spec->height, (size_t)spec->width, &input_count) ||
        input_count > LS_MAX_INPUT_COUNT || spec->target_count > LS_MAX_INPUT_COUNT) {
        return ls_fail(LS_ERR_INVALID, "samples of %d x %d x %d values and %zu targets are too large", spec->channels,
                       spec->height, spec->width, spec->target_count);
    }
    if (spec->rows > 1 && !spec->tokens)
        return ls_fail(LS_ERR_INVALID, "random samples of several rows must be tokens, not floats");
    if (spec->tokens && (spec->classes == 0 || ls_sample_input_count(spec) != ls_sample_label_count(spec)))
        return ls_fail(LS_ERR_INVALID, "random tokens need a vocabulary, and a row for each token");
    if (spec->classes < 0 || (spec->classes > 0) == (spec->target_count > 0)) {
        return ls_fail(LS_ERR_INVALID, "a random dataset needs either classes or targets, got %d and %zu",
                       spec->classes, spec->target_count);
    }
    return LS_OK;
}

static size_t choose_pool_count(size_t samples, const ls_sample_spec *spec) {
    size_t count = LS_MIN_POOL_COUNT, of_a_sample = ls_sample_input_count(spec) + spec->target_count;
    if (spec->tokens) return count; /* they are not drawn from it */
    if (samples >= LS_SMALL_SET_COUNT) return LS_MAX_POOL_COUNT;
    while (count < LS_MAX_POOL_COUNT && count / of_a_sample < samples) count *= 2;
    return count;
}

ls_status ls_dataset_random(ls_dataset **out, uint64_t seed, size_t count, const ls_sample_spec *spec) {
    static const ls_dataset_kind kind = {.read = random_read, .close = random_close};
    *out = NULL;
    ls_status status = check_spec(spec, count);
    if (status != LS_OK) return status;
    size_t pool_count = choose_pool_count(count, spec);
    struct random_dataset *random = malloc(sizeof *random + pool_count * sizeof *random->pool);
    if (!random) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a random dataset");
    random->base = (ls_dataset){.kind = &kind, .spec = *spec, .count = count};
    random->seed = seed;
    random->pool_count = pool_count;
    ls_generator generator;
    ls_generator_seed(&generator, seed);
    ls_fill_normal(&generator, random->pool, pool_count);
    *out = &random->base;
    return LS_OK;
}
