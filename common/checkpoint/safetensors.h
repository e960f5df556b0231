/* safetensors files: named tensors and a few lines of text, readable by PyTorch's tools without running any code.
 *
 *     8 bytes, little-endian: n | n bytes of JSON: name -> {dtype, shape, data_offsets} | the tensors' bytes
 *
 * The reader trusts nothing: every number is checked, the tensors must tile the file exactly, and an error names the
 * file, the tensor and the reason. The writer gives the reference implementation's order and padding, and replaces an
 * existing file as a whole or not at all (common/base/file.h). Elements are little-endian in C order. */
#ifndef LS_CHECKPOINT_SAFETENSORS_H
#define LS_CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define LS_SAFETENSOR_MAX_DIMS 8

/* X(name, bytes of one element), in the order in which the writer puts tensors. */
#define LS_SAFETENSOR_DTYPE_MAP(X)                                                                                     \
    X(U64, 8)                                                                                                          \
    X(I64, 8)                                                                                                          \
    X(F64, 8)                                                                                                          \
    X(F32, 4)                                                                                                          \
    X(U32, 4)                                                                                                          \
    X(I32, 4)                                                                                                          \
    X(BF16, 2)                                                                                                         \
    X(F16, 2)                                                                                                          \
    X(U16, 2)                                                                                                          \
    X(I16, 2)                                                                                                          \
    X(F8_E4M3, 1)                                                                                                      \
    X(F8_E5M2, 1)                                                                                                      \
    X(I8, 1)                                                                                                           \
    X(U8, 1)                                                                                                           \
    X(BOOL, 1)

#define LS_SAFETENSOR_ENUM(name, nbytes) LS_SAFETENSOR_##name,
typedef enum ls_safetensor_dtype {
    LS_SAFETENSOR_DTYPE_MAP(LS_SAFETENSOR_ENUM) LS_SAFETENSOR_DTYPE_COUNT
} ls_safetensor_dtype;
#undef LS_SAFETENSOR_ENUM

/* "F32", ... */
const char *ls_safetensor_dtype_name(ls_safetensor_dtype dtype);
size_t ls_safetensor_dtype_nbytes(ls_safetensor_dtype dtype);

typedef struct ls_safetensor {
    const char *name;
    ls_safetensor_dtype dtype;
    int ndim; /* 0 .. LS_SAFETENSOR_MAX_DIMS; 0: a scalar, one element */
    size_t shape[LS_SAFETENSOR_MAX_DIMS];
    const void *data; /* from a reader: aligned for its type if the file has the writer's order */
    size_t nbytes;    /* product of the shape x bytes of an element; may be 0 */
} ls_safetensor;

/* A line of the "__metadata__" map. */
typedef struct ls_safetensors_text {
    const char *key, *value;
} ls_safetensors_text;

/* The key of a checksum: CRC-32 of the whole file after its first 8 bytes, with the checksum's own eight digits taken
 * as zeros. */
#define LS_SAFETENSORS_CRC32 "lockstep.crc32"

typedef struct ls_safetensors ls_safetensors;

/* Reads the whole file. LS_ERR_IO: it cannot be read; LS_ERR_FORMAT: it is malformed; LS_ERR_UNSUPPORTED: well-formed,
 * but with a dtype or a number of dimensions that this reader does not know. On failure *out is NULL. */
ls_status ls_safetensors_open(ls_safetensors **out, const char *path);

/* The same from an open file, from its beginning on; `path` is for messages. */
ls_status ls_safetensors_open_fd(ls_safetensors **out, int fd, const char *path);

/* Everything that the functions below return lives until ls_safetensors_close. */
size_t ls_safetensors_count(const ls_safetensors *file);
const ls_safetensor *ls_safetensors_at(const ls_safetensors *file, size_t index);       /* in the order of the data */
const ls_safetensor *ls_safetensors_find(const ls_safetensors *file, const char *name); /* NULL: there is none */
const char *ls_safetensors_metadata(const ls_safetensors *file, const char *key);       /* NULL: there is none */

/* A hash of the whole file (common/base/hash.h). Reads the file again. */
uint64_t ls_safetensors_hash(const ls_safetensors *file);

/* Compares the hashes of the file `path` that the ranks have read. LS_ERR_INVALID names a rank whose file differs from
 * rank 0's. */
ls_status ls_safetensors_compare_ranks(const char *path, const uint64_t *hashes, int rank_count);

/* Verifies the checksum of a file that was written with one: LS_ERR_FORMAT if its metadata has none, or a different
 * one. Reads the file again. `path` is for the message. */
ls_status ls_safetensors_verify(const ls_safetensors *file, const char *path);

/* NULL is a no-op. */
void ls_safetensors_close(ls_safetensors *file);

/* Writes `count` tensors, in any order, and `metadata_count` lines of metadata (0: no "__metadata__"). Names are UTF-8
 * and differ from each other. The value of a line with the key LS_SAFETENSORS_CRC32 is filled in here. LS_ERR_INVALID:
 * a tensor is inconsistent, or names repeat; LS_ERR_IO: the file cannot be written, and an older file of that name is
 * untouched. */
ls_status ls_safetensors_write(const char *path, const ls_safetensor *tensors, size_t count,
                               const ls_safetensors_text *metadata, size_t metadata_count);

/* Writes the same bytes to an open file, at its current position; `path` is for messages. */
ls_status ls_safetensors_write_fd(int fd, const char *path, const ls_safetensor *tensors, size_t count,
                                  const ls_safetensors_text *metadata, size_t metadata_count);

#endif
