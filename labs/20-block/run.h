/* The subjects of lab 20's probe: layer norm and attention as kernels, each array in memory from malloc, so that
 * AddressSanitizer sees its end; and models, in single backward passes or in training. Running out of memory ends the
 * probe. */
#ifndef LABS_20_BLOCK_RUN_H
#define LABS_20_BLOCK_RUN_H

#include "common/nn/network.h"
#include "kernels/kernels.h"
#include "labs/course/probe/probe.h"

/* `count` floats: all 0, random, or read from a text, separated by a blank. */
float *floats_new(probe *p, size_t count);
float *floats_drawn(probe *p, size_t count);
float *floats_read(probe *p, const char *text, size_t count);

/* Checks values with a tolerance of 2e-6 of the largest, or of `scale` if that is larger. Of many values, only some. */
void see_close(probe *p, const char *what, const float *values, size_t count, double scale);
/* Checks that they are PyTorch's within that tolerance. */
void see_golden(probe *p, const char *what, const float *values, const char *golden, size_t count);

/* --- kernels --------------------------------------------------------------------------------------------------------- */

struct norm {
    size_t rows, channels;
    bool accumulate, halves; /* halves: bf16 */
    float *x, *gamma, *dy;   /* set by the caller; random if NULL */
    float *dx, *dgamma, *dbeta;
    double steepest; /* the largest invstd */
};

/* Forward and backward. */
void norm_run(probe *p, struct norm *norm);
void norm_release(struct norm *norm);

struct attention {
    struct ls_attention_shape shape; /* scores in memory */
    float *qkv, *dy;                 /* likewise */
    float *y, *scores, *dqkv;        /* scores: softmax's, [batch, heads, context, context] */
};

size_t attention_count(const struct attention *a); /* of y; qkv has three times as many */
void attention_run(probe *p, struct attention *a);
void attention_release(struct attention *a);

/* --- models ---------------------------------------------------------------------------------------------------------- */

enum net { NET_TIED, NET_EMBEDDING, NET_THRICE, NET_UNREAD, NET_GPT, NET_IMAGES, NET_ROWS, NETS };
const char *net_name(enum net net);
ls_network *net_create(probe *p, enum net net);

enum { MOST_STEPS = 6, MOST_RANKS = 3 };

/* Backward passes on one device, and the order in which gradients became ready. */
struct passes {
    enum net net;
    int count;
    bool accumulates[MOST_STEPS];
    size_t batch;
    char ready[MOST_STEPS][1000];
    float *gradients[MOST_STEPS]; /* of all parameters, concatenated, after each pass */
    size_t gradient_count;
};

void passes_run(probe *p, struct passes *passes);
void passes_release(struct passes *passes);

/* Steps of DDP with SGD. */
struct training {
    const char *model; /* NULL: of `net` */
    enum net net;
    int ranks, accumulate, steps;
    size_t batch; /* samples per rank and micro-batch */
    uint64_t seed;
    double learning_rate, momentum;
    const char *text; /* the samples' tokens, 'A' is 0, in order; NULL: random samples */
    float losses[MOST_STEPS];
    float *trained; /* weights at the end */
    size_t trained_count;
};

void training_run(probe *p, struct training *training);

#endif
