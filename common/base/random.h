/* ls_generator: PyTorch's random numbers on the CPU, draw for draw (docs/pytorch.md#random-numbers).
 *
 * The same seed gives the weights, permutations and shards that torch.manual_seed(seed) gives, because both count
 * their draws the same way: one 32-bit output for a float, two for a double, n - 1 for a permutation of n.
 *
 * A generator belongs to one thread at a time. It owns nothing: put it anywhere, copy it to save its state. */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_MT19937_WORDS 624

typedef struct ls_generator {
    /* private: use the functions below */
    uint32_t state[LS_MT19937_WORDS];
    int used; /* words of `state` already used */
    bool has_cached_normal;
    double cached_normal; /* the second of a pair of normals, see ls_fill_normal */
} ls_generator;

/* Only the low 32 bits of the seed count, as in PyTorch: seeds 0 and 2^32 give the same numbers. */
void ls_generator_seed(ls_generator *generator, uint64_t seed);

uint32_t ls_random32(ls_generator *generator);

/* Two 32-bit outputs; the first is the high half. */
uint64_t ls_random64(ls_generator *generator);

/* Fills `destination` with uniform values of [from, to), one 32-bit draw each: torch.Tensor.uniform_ on a processor
 * with AVX2, that is fmaf(u, (float)to - (float)from, (float)from) with u = (draw mod 2^24) / 2^24. */
void ls_fill_uniform(ls_generator *generator, float *destination, size_t count, double from, double to);

/* A uniform double of [0, 1): (64-bit draw mod 2^53) / 2^53. */
double ls_uniform_double(ls_generator *generator);

/* Fills `destination` with standard normal values, torch.Tensor.normal_. The draws equal PyTorch's; the values agree to
 * about 4e-7, since PyTorch's vectorised log, sin and cos differ in the last bits. Fewer than 16 values come in pairs;
 * the second of an odd pair is kept for the next such call. */
void ls_fill_normal(ls_generator *generator, float *destination, size_t count);

/* Writes a random permutation of 0 .. n-1 to `order`: torch.randperm(n). n >= 0; n - 1 draws (none for n <= 1).
 * (PyTorch 2.6 and later use another rule from n = 214748364 on; this is the rule of all releases below that.) */
void ls_randperm(ls_generator *generator, int64_t n, int64_t *order);

#endif
