/* The GPT's sizes as text: "gpt", or gpt[:LAYERS,HEADS,CHANNELS,CONTEXT[,VOCABULARY]][,scores]. Its network is in model.h's
 * list.
 *
 * The vocabulary comes from the data: programs fill it in after loading the data and before creating a model, since a
 * network with a vocabulary of 0 is refused. `scores` keeps attention's scores in memory instead of computing them tile
 * by tile. */
#ifndef LS_NN_GPT_H
#define LS_NN_GPT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

struct ls_gpt_sizes {
    int layers, heads, channels, context;
    int vocabulary; /* 0: not given */
    bool scores;
};

#define LS_GPT_TEXT_NBYTES 80 /* room for any description that ls_gpt_describe writes */

/* Whether a model's description is a GPT's: "gpt", or "gpt" followed by sizes or an option, which are not checked. */
bool ls_gpt_is_named(const char *description);

/* Parses the sizes of a description; default: 4 layers, 4 heads, 128 channels and a context of 64. LS_ERR_USAGE with
 * one line if it is not one, or if HEADS does not divide CHANNELS. */
ls_status ls_gpt_parse(struct ls_gpt_sizes *out, const char *description);

/* Writes all sizes as text, "gpt:4,4,128,64,65", which ls_gpt_parse reads; a vocabulary of 0 is left out. */
void ls_gpt_describe(const struct ls_gpt_sizes *sizes, char *text, size_t capacity);

#endif
