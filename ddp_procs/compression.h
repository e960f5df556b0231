/* Compression of gradients for communication: --compress. */
#ifndef DDP_COMPRESSION_H
#define DDP_COMPRESSION_H

#include <stdbool.h>

#include "common/base/dtype.h"
#include "common/base/status.h"

typedef struct ddp_compression {
    ls_dtype half; /* gradients are rounded to LS_FP16 or LS_BF16 (reducer.c); LS_FP32: not rounded */
    double
        fraction; /* top-k: the share of each tensor's elements that is sent, the largest, > 0 and <= 1 (topk.c); 0: all are sent */
    bool feedback; /* error feedback: elements not sent are added to the next gradients */
} ddp_compression;

/* "none", "fp16", "bf16", "topk:FRACTION" or "topk:FRACTION,nofeedback". LS_ERR_USAGE with one line. */
ls_status ddp_compression_parse(ddp_compression *out, const char *text);

/* The text of a top-k compression. */
enum { DDP_COMPRESSION_CAPACITY = 48 };
void ddp_compression_text(const ddp_compression *compression, char text[DDP_COMPRESSION_CAPACITY]);

#endif
