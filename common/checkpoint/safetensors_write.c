/* safetensors_write — the reference implementation's order: larger element types first (so that every tensor is aligned
 * for its type), then by name; the JSON is padded with spaces to a multiple of 8 bytes, so that the data begins
 * aligned. The same tensors give the same bytes, whatever order they are passed in. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/checkpoint/safetensors_internal.h"

#define NO_CRC32 "00000000" /* until the sum is known */
#define LS_NUMBER_CHARS 21  /* a 64-bit number and its comma */

static const char padding[] = "       ";

static ls_status check_tensor(const char *path, const ls_safetensor *tensor) {
    const char *name = tensor->name;
    if (!name || !ls_utf8_is_valid(name, strlen(name)) || strcmp(name, LS_SAFETENSORS_METADATA) == 0) {
        return ls_fail(LS_ERR_INVALID, "cannot write %s: '%s' cannot be a tensor's name", path, name ? name : "(null)");
    }
    if ((int)tensor->dtype < 0 || tensor->dtype >= LS_SAFETENSOR_DTYPE_COUNT || tensor->ndim < 0 ||
        tensor->ndim > LS_SAFETENSOR_MAX_DIMS) {
        return ls_fail(LS_ERR_INVALID, "cannot write %s: tensor '%s' has dtype %d and %d dimensions", path, name,
                       (int)tensor->dtype, tensor->ndim);
    }
    size_t nbytes;
    if (!ls_safetensor_shape_nbytes(tensor, &nbytes) || nbytes != tensor->nbytes || (nbytes > 0 && !tensor->data)) {
        return ls_fail(LS_ERR_INVALID, "cannot write %s: the shape of tensor '%s' does not fit its %zu bytes of data",
                       path, name, tensor->nbytes);
    }
    return LS_OK;
}

static int compare_for_file(const void *a, const void *b) {
    const ls_safetensor *first = *(const ls_safetensor *const *)a;
    const ls_safetensor *second = *(const ls_safetensor *const *)b;
    if (first->dtype != second->dtype) return first->dtype < second->dtype ? -1 : 1;
    return strcmp(first->name, second->name);
}

/* Checks all tensors and makes the list of pointers to them in the file's order; free() it. */
static ls_status sort_tensors(const ls_safetensor ***out, const char *path, const ls_safetensor *tensors,
                              size_t count) {
    const ls_safetensor **sorted = malloc((count + 1) * sizeof *sorted);
    ls_status status = sorted ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", path);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        sorted[i] = &tensors[i];
        status = check_tensor(path, sorted[i]);
    }
    const char *repeated = status == LS_OK ? ls_safetensors_sort_by_name(sorted, count) : NULL;
    if (repeated) status = ls_fail(LS_ERR_INVALID, "cannot write %s: two tensors are named '%s'", path, repeated);
    if (status != LS_OK) {
        free(sorted);
        return status;
    }
    if (count > 0) qsort(sorted, count, sizeof *sorted, compare_for_file);
    *out = sorted;
    return LS_OK;
}

/* Adds "name":{"dtype":...,"shape":[...],"data_offsets":[...]}. Numbers go in as text: cJSON's own are doubles. */
static bool add_tensor(cJSON *header, const ls_safetensor *tensor, size_t begin) {
    char shape[LS_SAFETENSOR_MAX_DIMS * LS_NUMBER_CHARS + 3] = "[";
    char offsets[2 * LS_NUMBER_CHARS + 3];
    size_t used = 1;
    for (int i = 0; i < tensor->ndim; i++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu", i > 0 ? "," : "", tensor->shape[i]);
    }
    snprintf(shape + used, sizeof shape - used, "]");
    snprintf(offsets, sizeof offsets, "[%zu,%zu]", begin, begin + tensor->nbytes);
    cJSON *entry = cJSON_AddObjectToObject(header, tensor->name);
    return entry && cJSON_AddStringToObject(entry, "dtype", ls_safetensor_dtype_name(tensor->dtype)) &&
           cJSON_AddRawToObject(entry, "shape", shape) && cJSON_AddRawToObject(entry, "data_offsets", offsets);
}

static ls_status add_metadata(cJSON *header, const char *path, const ls_safetensors_text *metadata, size_t count) {
    cJSON *map = cJSON_AddObjectToObject(header, LS_SAFETENSORS_METADATA);
    for (size_t i = 0; map && i < count; i++) {
        const ls_safetensors_text *line = &metadata[i];
        bool valid =
            ls_utf8_is_valid(line->key, strlen(line->key)) && ls_utf8_is_valid(line->value, strlen(line->value));
        if (!valid || cJSON_GetObjectItemCaseSensitive(map, line->key)) {
            return ls_fail(LS_ERR_INVALID, "cannot write %s: metadata '%s' is not UTF-8 or occurs twice", path,
                           line->key);
        }
        bool is_crc32 = strcmp(line->key, LS_SAFETENSORS_CRC32) == 0;
        if (!cJSON_AddStringToObject(map, line->key, is_crc32 ? NO_CRC32 : line->value)) map = NULL;
    }
    return map ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", path);
}

/* The header's JSON text without its padding; cJSON_free() it. */
static ls_status make_header(char **out, const char *path, const ls_safetensor *const *sorted, size_t count,
                             const ls_safetensors_text *metadata, size_t metadata_count) {
    cJSON *header = cJSON_CreateObject();
    ls_status status = header ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", path);
    if (status == LS_OK && metadata_count > 0) status = add_metadata(header, path, metadata, metadata_count);
    size_t begin = 0;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        if (!add_tensor(header, sorted[i], begin))
            status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", path);
        begin += sorted[i]->nbytes;
    }
    *out = status == LS_OK ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    if (status == LS_OK && !*out) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", path);
    return status;
}

/* Spaces after a header of that many bytes. */
static size_t padding_nbytes(size_t header_nbytes) { return (8 - header_nbytes % 8) % 8; }

static void put_crc32(char *header, const ls_safetensor *const *sorted, size_t count) {
    char *digits = ls_safetensors_crc32_digits(header), text[LS_SAFETENSORS_CRC32_CHARS + 1];
    if (!digits) return;
    uint32_t crc32 = ls_crc32(0, header, strlen(header));
    crc32 = ls_crc32(crc32, padding, padding_nbytes(strlen(header)));
    for (size_t i = 0; i < count; i++) crc32 = ls_crc32(crc32, sorted[i]->data, sorted[i]->nbytes);
    snprintf(text, sizeof text, "%08" PRIx32, crc32);
    memcpy(digits, text, LS_SAFETENSORS_CRC32_CHARS);
}

/* Receives a file's bytes, in order. */
typedef void (*put_fn)(void *to, const void *data, size_t nbytes);

static void put_all(put_fn put, void *to, const char *header, const ls_safetensor *const *sorted, size_t count) {
    size_t header_nbytes = strlen(header);
    uint64_t length = header_nbytes + padding_nbytes(header_nbytes);
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(length >> 8 * i);
    put(to, bytes, sizeof bytes);
    put(to, header, header_nbytes);
    put(to, padding, padding_nbytes(header_nbytes));
    for (size_t i = 0; i < count; i++) put(to, sorted[i]->data, sorted[i]->nbytes);
}

static void put_in_writer(void *to, const void *data, size_t nbytes) { ls_file_writer_put(to, data, nbytes); }

struct open_file {
    int fd, error; /* the first error of a write; 0: none */
};

static void put_in_file(void *to, const void *data, size_t nbytes) {
    struct open_file *file = to;
    for (const char *next = data; nbytes > 0 && file->error == 0;) {
        ssize_t written = write(file->fd, next, nbytes);
        if (written < 0 && errno != EINTR) file->error = errno;
        if (written <= 0) continue;
        next += written;
        nbytes -= (size_t)written;
    }
}

/* `fd` -1: the file is `path`. */
static ls_status write_file(int fd, const char *path, const char *header, const ls_safetensor *const *sorted,
                            size_t count) {
    if (strlen(header) > LS_SAFETENSORS_MAX_HEADER_BYTES - 8) {
        return ls_fail(LS_ERR_INVALID, "cannot write %s: its header would be larger than %u bytes", path,
                       LS_SAFETENSORS_MAX_HEADER_BYTES);
    }
    if (fd >= 0) {
        struct open_file file = {.fd = fd};
        put_all(put_in_file, &file, header, sorted, count);
        return file.error == 0 ? LS_OK : ls_fail(LS_ERR_IO, "cannot write %s: %s", path, ls_write_error(file.error));
    }
    ls_file_writer *writer = NULL;
    ls_status status = ls_file_writer_open(&writer, path);
    if (status != LS_OK) return status;
    put_all(put_in_writer, writer, header, sorted, count);
    return ls_file_writer_commit(writer);
}

static ls_status write_tensors(int fd, const char *path, const ls_safetensor *tensors, size_t count,
                               const ls_safetensors_text *metadata, size_t metadata_count) {
    const ls_safetensor **sorted = NULL;
    ls_status status = sort_tensors(&sorted, path, tensors, count);
    if (status != LS_OK) return status;
    char *header = NULL;
    status = make_header(&header, path, sorted, count, metadata, metadata_count);
    if (status == LS_OK) put_crc32(header, sorted, count);
    if (status == LS_OK) status = write_file(fd, path, header, sorted, count);
    cJSON_free(header);
    free(sorted);
    return status;
}

ls_status ls_safetensors_write(const char *path, const ls_safetensor *tensors, size_t count,
                               const ls_safetensors_text *metadata, size_t metadata_count) {
    return write_tensors(-1, path, tensors, count, metadata, metadata_count);
}

ls_status ls_safetensors_write_fd(int fd, const char *path, const ls_safetensor *tensors, size_t count,
                                  const ls_safetensors_text *metadata, size_t metadata_count) {
    return write_tensors(fd, path, tensors, count, metadata, metadata_count);
}
