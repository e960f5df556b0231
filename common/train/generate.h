/* Generated text: continues a prompt token by token. Used by the loop. */
#ifndef LS_TRAIN_GENERATE_H
#define LS_TRAIN_GENERATE_H

#include "common/data/text.h"
#include "common/nn/model.h"

struct ls_generation {
    size_t count; /* tokens to generate */
    double
        temperature; /* 0: the likeliest token, the first of equals; else a draw from softmax(logits / temperature) */
    uint64_t seed;   /* of the draws */
};

/* Continues the first context of a text, one token per forward. `bytes` gets the prompt, a context of bytes, followed
 * by `count` bytes. Every rank that shares the model's parameters takes part, and gets the same text. Host-blocking. */
ls_status ls_generate(ls_model *model, const ls_dataset *text, const struct ls_generation *generation, uint8_t *bytes);

/* Counts the correct answers to sums begin .. end-1 of a text of sums (text.h): the likeliest tokens after "=" are
 * those of the answer and its ";". `chunk` questions at a time, in at least `passes` passes of LS_ANSWER_TOKENS
 * forwards. Host-blocking. */
enum { LS_ANSWER_TOKENS = sizeof "198;" - 1 };
ls_status ls_count_answers(ls_model *model, const ls_dataset *sums, size_t begin, size_t end, size_t chunk,
                           size_t passes, int64_t *right);

#endif
