/* attention_layout — how attention's workspace is divided, from its shape. Nothing here depends on the vector width, so
 * that one workspace serves every build. */
#ifndef LS_KERNELS_CPU_ATTENTION_LAYOUT_H
#define LS_KERNELS_CPU_ATTENTION_LAYOUT_H

#include "kernels/kernels.h"

/* Positions of a tile of scores, both ways. */
#define LS_ATTENTION_TILE 64

struct ls_attention_layout {
    size_t context, head; /* positions; channels of a head */
    size_t columns;       /* those channels rounded up to the widest vector */
    size_t positions;     /* rounded up to whole tiles */
    /* the parts of the workspace, in floats */
    size_t rows_count;   /* a head's q, k, ...: 6 of these, consecutive */
    size_t block_count;  /* a tile's rows of a result: 2; then a float for each position */
    size_t scores_count; /* a tile's rows of scores: forward needs one, backward two */
};

struct ls_attention_layout ls_attention_make_layout(const struct ls_attention_shape *shape);

#endif
