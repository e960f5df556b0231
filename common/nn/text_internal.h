/* A parsed network text: its lines (text_lines.c), the network built from them (text_network.c), and printing
 * (text_print.c). Private to common/nn. */
#ifndef LS_NN_TEXT_INTERNAL_H
#define LS_NN_TEXT_INTERNAL_H

#include "common/nn/network_internal.h"
#include "common/nn/network_text.h"

enum ls_text_word {
    LS_WORD_CONV,
    LS_WORD_BATCHNORM,
    LS_WORD_RELU,
    LS_WORD_MAXPOOL,
    LS_WORD_AVGPOOL,
    LS_WORD_FLATTEN,
    LS_WORD_LINEAR,
    LS_WORD_ADD,
    LS_WORD_COUNT
};
extern const char *const ls_text_words[LS_WORD_COUNT];

enum { LS_TEXT_INPUT = -1, LS_TEXT_NOTHING = -2 }; /* instead of a line's index */

/* A value: the network's input, or a line's output. Flat: features, as after flatten, rather than an image of C x 1 x
 * 1. */
struct ls_text_value {
    struct ls_shape shape;
    bool is_flat;
};

struct ls_text_line {
    int number; /* in the text, from 1 */
    enum ls_text_word word;
    int units, kernel, stride, padding;
    bool takes_classes, no_bias;
    char name[sizeof((ls_layer *)0)->name]; /* default: the number of layers before it, as in nn.Sequential */
    int reads, adds;                        /* earlier lines, by index; adds: LS_TEXT_NOTHING if it is no addition */
    /* from ls_text_build */
    int readers, last_reader; /* lines that read its value; LS_TEXT_NOTHING */
    bool is_taken_along;      /* a ReLU that is fused into the layer before it */
    bool begins_block;
    enum ls_layer_cut cut;
    struct ls_text_value value;
    size_t layer; /* of the network: the layer that computes its value */
};

struct ls_text {
    char source[128]; /* in messages: the file, or the built-in model */
    ls_status wrong;  /* status of a fault: LS_ERR_FORMAT for a file; LS_ERR_USAGE for a built-in model's sizes */
    struct ls_text_value input;
    bool takes_input; /* from the data */
    int classes;      /* of the data; 0: not known */
    ls_loss_kind loss;
    struct ls_text_line *lines;
    int count;
};

/* Parses the text, which is not kept. A fault returns `wrong`, reported with source and line. Call ls_text_free in any
 * case. */
ls_status ls_text_parse(struct ls_text *t, const char *source, ls_status wrong, const char *text, size_t nbytes);
void ls_text_free(struct ls_text *t);

/* Parses "3x32x32" or "784" up to `end` (NULL: the end of the string). False: neither, or too large. */
bool ls_text_parse_shape(const char *text, const char *end, struct ls_text_value *value);
/* Returns `text`. */
#define LS_TEXT_SHAPE_NBYTES 40
const char *ls_text_shape(struct ls_text_value value, char text[LS_TEXT_SHAPE_NBYTES]);

/* Reports "source:line: " and the message; returns t->wrong. */
ls_status ls_text_fail(const struct ls_text *t, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds the lines' layers to a network without layers, and fills in the lines' results. t->wrong: sizes do not fit;
 * LS_ERR_USAGE: a size that comes from the data is unknown. */
ls_status ls_text_build(struct ls_text *t, ls_network *network);

/* Parses the text that a description names, with the sizes that follow it. (built_in.c) */
ls_status ls_text_open(struct ls_text *t, const char *description);

#endif
