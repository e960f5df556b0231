#include "ddp_procs/compression.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static const char top_k[] = "topk:", no_feedback[] = ",nofeedback";

static bool parse_top_k(ddp_compression *out, const char *text) {
    char *end = NULL;
    if (strncmp(text, top_k, strlen(top_k)) != 0) return false;
    const char *number = text + strlen(top_k);
    if (!isdigit((unsigned char)*number) && *number != '.') return false; /* strtod takes signs, and inf */
    *out = (ddp_compression){.half = LS_FP32, .fraction = strtod(number, &end), .feedback = *end == '\0'};
    return out->fraction > 0 && out->fraction <= 1 && (out->feedback || strcmp(end, no_feedback) == 0);
}

ls_status ddp_compression_parse(ddp_compression *out, const char *text) {
    *out = (ddp_compression){.half = LS_FP32};
    if (strcmp(text, "none") == 0) return LS_OK;
    for (int half = LS_FP16; half <= LS_BF16; half++) {
        if (strcmp(text, ls_dtype_name((ls_dtype)half)) != 0) continue;
        out->half = (ls_dtype)half;
        return LS_OK;
    }
    if (parse_top_k(out, text)) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "--compress %s: expected none, fp16, bf16, topk:FRACTION or topk:FRACTION,nofeedback, with a "
                   "FRACTION above 0 and at most 1",
                   text);
}

void ddp_compression_text(const ddp_compression *compression, char text[DDP_COMPRESSION_CAPACITY]) {
    snprintf(text, DDP_COMPRESSION_CAPACITY, "%s%g%s", top_k, compression->fraction,
             compression->feedback ? "" : no_feedback);
}
