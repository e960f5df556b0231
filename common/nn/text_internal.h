/* A network's text as it is read: lines (text_lines.c), the network that they make (text_network.c), what is printed of them
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

enum { LS_TEXT_INPUT = -1, LS_TEXT_NOTHING = -2 }; /* in place of the index of a line */

/* A value: the network's input, or what a line makes. Flat: features, as behind flatten, and no image of C x 1 x 1. */
struct ls_text_value {
    struct ls_shape shape;
    bool is_flat;
};

struct ls_text_line {
    int number; /* in the text, from 1 */
    enum ls_text_word word;
    int units, kernel, stride, padding;
    bool takes_classes, no_bias;
    char name[sizeof((ls_layer *)0)->name]; /* if none is given: how many layers stand before it, as in nn.Sequential */
    int reads, adds;                        /* earlier lines, by index; adds: LS_TEXT_NOTHING if it is no addition */
    /* from ls_text_build */
    int readers, last_reader; /* lines that read its value; LS_TEXT_NOTHING */
    bool is_taken_along;      /* a ReLU that is done by the layer before it */
    bool begins_block;
    enum ls_layer_cut cut;
    struct ls_text_value value;
    size_t layer; /* of the network: the layer that makes its value */
};

struct ls_text {
    char source[128]; /* in messages: the file, or the built-in model */
    ls_status wrong;  /* what a fault in it is: LS_ERR_FORMAT of a file; LS_ERR_USAGE of a built-in model's sizes */
    struct ls_text_value input;
    bool takes_input; /* from the data */
    int classes;      /* of the data; 0: not known */
    ls_loss_kind loss;
    struct ls_text_line *lines;
    int count;
};

/* Reads the text, of which nothing is kept. A fault is `wrong`, reported with source and line. Whatever it returns, ls_text_free
 * frees what was made. */
ls_status ls_text_parse(struct ls_text *t, const char *source, ls_status wrong, const char *text, size_t nbytes);
void ls_text_free(struct ls_text *t);

/* "3x32x32" or "784" up to `end`, which may be NULL: the string's. false: it is neither, or too large. */
bool ls_text_parse_shape(const char *text, const char *end, struct ls_text_value *value);
/* Returns `text`. */
#define LS_TEXT_SHAPE_NBYTES 40
const char *ls_text_shape(struct ls_text_value value, char text[LS_TEXT_SHAPE_NBYTES]);

/* Reports "source:line: " and the message; returns t->wrong. */
ls_status ls_text_fail(const struct ls_text *t, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds the lines' layers to a network that has none, and says in the lines what has become of them. t->wrong if sizes do
 * not fit, LS_ERR_USAGE if a size is the data's and not known. */
ls_status ls_text_build(struct ls_text *t, ls_network *network);

/* The text that a description names, with the sizes behind it. (built_in.c) */
ls_status ls_text_open(struct ls_text *t, const char *description);

#endif
