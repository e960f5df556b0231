/* How gradients travel, as --compress says it. */
#ifndef DDP_COMPRESSION_H
#define DDP_COMPRESSION_H

#include <stdbool.h>

#include "common/base/dtype.h"
#include "common/base/status.h"

typedef struct ddp_compression {
    ls_dtype half;   /* rounded to LS_FP16 or LS_BF16 (reducer.c); LS_FP32: not */
    double fraction; /* of each tensor the largest elements, so many of all, > 0 and <= 1 (topk.c); 0: all */
    bool feedback;   /* what has not been sent is added to the next gradients */
} ddp_compression;

/* "none", "fp16", "bf16", "topk:FRACTION" or "topk:FRACTION,nofeedback". LS_ERR_USAGE with one line. */
ls_status ddp_compression_parse(ddp_compression *out, const char *text);

/* topk's, as text; capacity: DDP_COMPRESSION_CAPACITY. */
enum { DDP_COMPRESSION_CAPACITY = 48 };
void ddp_compression_text(const ddp_compression *compression, char text[DDP_COMPRESSION_CAPACITY]);

#endif
