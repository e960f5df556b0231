/* Shared by the reader and the writer of safetensors files. Private to common/checkpoint. */
#ifndef LS_CHECKPOINT_SAFETENSORS_INTERNAL_H
#define LS_CHECKPOINT_SAFETENSORS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/checkpoint/safetensors.h"

#define LS_SAFETENSORS_METADATA "__metadata__"
#define LS_SAFETENSORS_CRC32_CHARS 8
#define LS_SAFETENSORS_MAX_HEADER_BYTES 100000000u

/* Bytes of a tensor of `ndim`, `shape` and `dtype`; false if they overflow. */
bool ls_safetensor_shape_nbytes(const ls_safetensor *tensor, size_t *nbytes);

/* Sorts `tensors` by name and returns a name that occurs twice, or NULL. */
const char *ls_safetensors_sort_by_name(const ls_safetensor **tensors, size_t count);

/* Whether the bytes are well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool ls_utf8_is_valid(const char *text, size_t nbytes);

/* The eight digits of the checksum in a header's JSON text; NULL: it has none, or not in the writer's form. */
char *ls_safetensors_crc32_digits(char *header);

/* Extends a CRC-32 (zlib's; 0: of no bytes) by `nbytes` bytes. */
uint32_t ls_crc32(uint32_t crc, const void *bytes, size_t nbytes);

#endif
