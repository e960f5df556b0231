/* values — numbers that look like those of training, for measurements. */
#include <stdint.h>
#include <stdlib.h>

#include "labs/bench/gpu_check/gpu_check.h"

enum { PIECE = 1 << 20 };

/* xorshift: the quality does not matter, the bits must only toggle. */
static uint32_t next(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* 0.5 to 1 is the exponent field 126 of fp32 and bf16 and 14 of fp16; sign and mantissa are random. */
static void put(void *piece, size_t i, ls_dtype dtype, uint32_t random) {
    if (dtype == LS_FP32) ((uint32_t *)piece)[i] = (random & 0x807fffffu) | 126u << 23;
    if (dtype == LS_BF16) ((uint16_t *)piece)[i] = (uint16_t)((random & 0x807fu) | 126u << 7);
    if (dtype == LS_FP16) ((uint16_t *)piece)[i] = (uint16_t)((random & 0x83ffu) | 14u << 10);
}

ls_status gpu_check_fill(ls_device *device, void *memory, size_t count, ls_dtype dtype) {
    size_t element_nbytes = ls_dtype_nbytes(dtype);
    uint32_t state = 2463534242u;
    void *piece = malloc(PIECE * element_nbytes);
    ls_status status = piece ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for numbers to measure with");
    for (size_t begin = 0; status == LS_OK && begin < count; begin += PIECE) {
        size_t some = count - begin < PIECE ? count - begin : PIECE;
        for (size_t i = 0; i < some; i++) put(piece, i, dtype, next(&state));
        status = ls_copy_now(ls_device_stream(device, LS_STREAM_COPY), (char *)memory + begin * element_nbytes, piece,
                             some * element_nbytes);
    }
    free(piece);
    return status;
}
