/* random — MT19937, and the numbers that PyTorch's CPU generator makes from it.
 *   idea  : 624 words of state give 624 outputs, then all words are renewed at once (Matsumoto and Nishimura, 1998).
 *   draws : the header states how many outputs each function takes, since the next function's numbers depend on that.
 *   order : row-major, one element after the other; the results are functions of the seed alone. log, sin and cos are
 *           taken in double and rounded once, so that they do not depend on which float version the C library picks for
 *           a processor. */
#include "common/base/random.h"

#include <math.h>

#define LS_MT19937_MIDDLE 397
#define LS_PI 3.14159265358979323846

void ls_generator_seed(ls_generator *generator, uint64_t seed) {
    uint32_t *state = generator->state;
    state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < LS_MT19937_WORDS; i++) {
        state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    }
    generator->used = LS_MT19937_WORDS;
    generator->has_cached_normal = false;
    generator->cached_normal = 0;
}

static uint32_t twisted(uint32_t state, uint32_t next, uint32_t middle) {
    uint32_t mixed = (state & 0x80000000u) | (next & 0x7fffffffu);
    return middle ^ (mixed >> 1) ^ (0x9908b0dfu & -(next & 1u));
}

/* Three loops without divisions or branches, so that the compiler can make words side by side. */
static void renew_state(uint32_t *state) {
    enum { WORDS = LS_MT19937_WORDS, MIDDLE = LS_MT19937_MIDDLE, BEFORE = WORDS - MIDDLE };
    for (int i = 0; i < BEFORE; i++) state[i] = twisted(state[i], state[i + 1], state[i + MIDDLE]);
    for (int i = BEFORE; i < WORDS - 1; i++) state[i] = twisted(state[i], state[i + 1], state[i - BEFORE]);
    state[WORDS - 1] = twisted(state[WORDS - 1], state[0], state[MIDDLE - 1]);
}

static uint32_t tempered(uint32_t value) {
    value ^= value >> 11;
    value ^= (value << 7) & 0x9d2c5680u;
    value ^= (value << 15) & 0xefc60000u;
    return value ^ (value >> 18);
}

/* The number of words, at most `wanted`, that the state has left; renews it if it has none. */
static size_t words_there(ls_generator *generator, size_t wanted) {
    if (generator->used == LS_MT19937_WORDS) {
        renew_state(generator->state);
        generator->used = 0;
    }
    size_t there = (size_t)(LS_MT19937_WORDS - generator->used);
    return there < wanted ? there : wanted;
}

uint32_t ls_random32(ls_generator *generator) {
    (void)words_there(generator, 1);
    return tempered(generator->state[generator->used++]);
}

uint64_t ls_random64(ls_generator *generator) {
    uint64_t high = ls_random32(generator);
    return high << 32 | ls_random32(generator);
}

/* In [0, 1). A float's significand has 24 bits, so the value is exact. */
static void fill_uniform_unit(ls_generator *generator, float *destination, size_t count) {
    while (count > 0) {
        size_t there = words_there(generator, count);
        const uint32_t *words = generator->state + generator->used;
        for (size_t i = 0; i < there; i++) destination[i] = (float)(int32_t)(tempered(words[i]) & 0xffffffu) * 0x1p-24f;
        generator->used += (int)there;
        destination += there;
        count -= there;
    }
}

void ls_fill_uniform(ls_generator *generator, float *destination, size_t count, double from, double to) {
    float low = (float)from;
    float range = (float)to - low;
    fill_uniform_unit(generator, destination, count);
    for (size_t i = 0; i < count; i++) destination[i] = fmaf(destination[i], range, low);
}

double ls_uniform_double(ls_generator *generator) {
    return (double)(ls_random64(generator) & ((1ull << 53) - 1)) * 0x1p-53;
}

/* One of a pair made by the Box-Muller transform; the generator keeps the other one. */
static double paired_normal(ls_generator *generator) {
    if (generator->has_cached_normal) {
        generator->has_cached_normal = false;
        return generator->cached_normal;
    }
    double u1 = ls_uniform_double(generator);
    double u2 = ls_uniform_double(generator);
    double radius = sqrt(-2.0 * log1p(-u2));
    double angle = 2.0 * LS_PI * u1;
    generator->cached_normal = radius * sin(angle);
    generator->has_cached_normal = true;
    return radius * cos(angle);
}

/* Turns 16 uniforms into 16 normals in place: entries j and j + 8 are a pair. */
static void normal_block(float *block) {
    for (int j = 0; j < 8; j++) {
        float u1 = 1 - block[j]; /* in (0, 1], so that its logarithm is finite */
        float radius = sqrtf(-2 * (float)log((double)u1));
        double angle = (double)((float)(2.0 * LS_PI) * block[j + 8]);
        block[j] = radius * (float)cos(angle);
        block[j + 8] = radius * (float)sin(angle);
    }
}

void ls_fill_normal(ls_generator *generator, float *destination, size_t count) {
    if (count < 16) {
        for (size_t i = 0; i < count; i++) destination[i] = (float)paired_normal(generator);
        return;
    }
    fill_uniform_unit(generator, destination, count);
    for (size_t i = 0; i + 16 <= count; i += 16) normal_block(destination + i);
    if (count % 16 != 0) { /* the last 16 are drawn again: some of them are normals already, some are still uniform */
        fill_uniform_unit(generator, destination + count - 16, 16);
        normal_block(destination + count - 16);
    }
}

void ls_randperm(ls_generator *generator, int64_t n, int64_t *order) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t j = i + (int64_t)ls_random32(generator) % (n - i);
        int64_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}
