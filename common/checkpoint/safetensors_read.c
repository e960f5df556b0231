/* safetensors_read — a file is untrusted input: no part of it is used before it is checked.
 *   order : length of the header; its text (UTF-8, JSON); each entry by itself (dtype, shape, offsets, their
 *           arithmetic); all together (names differ; sorted by offset the tensors tile the data).
 *   cost  : one read of the file, O(tensors log tensors).
 *   fails : with one line that names file, tensor and reason. It never allocates more than a few times the file's
 *           size. */
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file_kind.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/checkpoint/safetensors_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor bytes are used as they are in the file");

#define LS_LENGTH_BYTES 8
#define LS_EXACT_LIMIT 0x1p53 /* JSON numbers arrive as doubles: integers below this one are exact */

struct ls_safetensors {
    cJSON *json;           /* owns the names and the metadata */
    const cJSON *metadata; /* NULL: there is none */
    unsigned char *data;   /* data_nbytes */
    size_t data_nbytes;
    uint64_t header_hash;
    bool has_crc32;
    uint32_t header_crc32;  /* of the header, the checksum's digits taken as zeros */
    ls_safetensor *tensors; /* count, sorted by offset */
    const ls_safetensor **by_name;
    size_t count;
};

static ls_status fail_file(const char *path, const char *reason) {
    return ls_fail(LS_ERR_FORMAT, "%s is not a valid safetensors file: %s", path, reason);
}

static ls_status fail_tensor(const char *path, const char *name, const char *reason) {
    return ls_fail(LS_ERR_FORMAT, "%s is not a valid safetensors file: tensor '%s': %s", path, name, reason);
}

static ls_status read_exactly(int fd, const char *path, void *destination, size_t nbytes) {
    unsigned char *next = destination;
    while (nbytes > 0) {
        ssize_t got = read(fd, next, nbytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) return fail_file(path, "the file became shorter while being read");
        next += got;
        nbytes -= (size_t)got;
    }
    return LS_OK;
}

/* Reads and checks the 8 bytes in front of the header. */
static ls_status read_header_length(int fd, const char *path, size_t file_nbytes, size_t *header_nbytes) {
    unsigned char bytes[LS_LENGTH_BYTES];
    if (file_nbytes < sizeof bytes) return fail_file(path, "the file is shorter than 8 bytes");
    ls_status status = read_exactly(fd, path, bytes, sizeof bytes);
    if (status != LS_OK) return status;
    const char *kind = ls_file_kind(bytes, sizeof bytes);
    uint64_t length = 0;
    for (int i = LS_LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | bytes[i];
    if (kind && length > file_nbytes - sizeof bytes) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is %s; expected a safetensors file: in Python, safetensors.torch.save_file(state_dict, "
                       "\"weights.safetensors\") writes one",
                       path, kind);
    }
    if (length > LS_SAFETENSORS_MAX_HEADER_BYTES) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is not a valid safetensors file: its header of %" PRIu64 " bytes exceeds the limit of %u",
                       path, length, LS_SAFETENSORS_MAX_HEADER_BYTES);
    }
    if (length > file_nbytes - sizeof bytes) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is truncated or not a safetensors file: its header of %" PRIu64
                       " bytes extends beyond the end of the file",
                       path, length);
    }
    *header_nbytes = (size_t)length;
    return LS_OK;
}

/* Whether a string of the JSON text holds a zero byte, as such or as \u0000: it would end the name early in C. */
static bool has_zero(const char *text, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] == '\0') return true;
        if (text[i] != '\\') continue;
        if (nbytes - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) return true;
        i++; /* the escaped character: a backslash there begins no escape */
    }
    return false;
}

/* `text` has a zero after its `nbytes`, as cJSON needs. */
static ls_status parse_header(ls_safetensors *file, const char *path, const char *text, size_t nbytes) {
    if (nbytes == 0 || text[0] != '{') return fail_file(path, "its header does not begin with '{'");
    if (!ls_utf8_is_valid(text, nbytes)) return fail_file(path, "its header is not UTF-8");
    if (has_zero(text, nbytes)) return fail_file(path, "its header contains a NUL character");
    const char *end = NULL;
    file->json = cJSON_ParseWithLengthOpts(text, nbytes + 1, &end, false);
    if (!file->json || !cJSON_IsObject(file->json)) return fail_file(path, "its header is not JSON");
    for (; end < text + nbytes; end++) {
        if (*end != ' ') return fail_file(path, "its header has data after the JSON object");
    }
    return LS_OK;
}

static bool exact_size(const cJSON *number, size_t *value) {
    if (!cJSON_IsNumber(number) || !(number->valuedouble >= 0 && number->valuedouble < LS_EXACT_LIMIT)) return false;
    *value = (size_t)number->valuedouble;
    return (double)*value == number->valuedouble;
}

static ls_status parse_dtype(const char *path, const cJSON *field, ls_safetensor *tensor) {
    if (!cJSON_IsString(field) || !field)
        return fail_tensor(path, tensor->name, "its dtype is missing or not a string");
    for (int i = 0; i < LS_SAFETENSOR_DTYPE_COUNT; i++) {
        if (strcmp(field->valuestring, ls_safetensor_dtype_name((ls_safetensor_dtype)i)) == 0) {
            tensor->dtype = (ls_safetensor_dtype)i;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_UNSUPPORTED, "%s: tensor '%s' has the unknown dtype '%s'", path, tensor->name,
                   field->valuestring);
}

static ls_status parse_shape(const char *path, const cJSON *field, ls_safetensor *tensor) {
    if (!cJSON_IsArray(field)) return fail_tensor(path, tensor->name, "its shape is missing or not an array");
    const cJSON *length;
    cJSON_ArrayForEach(length, field) {
        if (tensor->ndim == LS_SAFETENSOR_MAX_DIMS) {
            return ls_fail(LS_ERR_UNSUPPORTED, "%s: tensor '%s' has too many dimensions; expected at most %d", path,
                           tensor->name, LS_SAFETENSOR_MAX_DIMS);
        }
        if (!exact_size(length, &tensor->shape[tensor->ndim])) {
            return fail_tensor(path, tensor->name, "its shape is not a list of whole numbers from 0");
        }
        tensor->ndim++;
    }
    return LS_OK;
}

/* Needs the shape and the dtype. */
static ls_status parse_offsets(const ls_safetensors *file, const char *path, const cJSON *field,
                               ls_safetensor *tensor) {
    size_t begin, end, nbytes;
    if (!cJSON_IsArray(field) || cJSON_GetArraySize(field) != 2 || !exact_size(cJSON_GetArrayItem(field, 0), &begin) ||
        !exact_size(cJSON_GetArrayItem(field, 1), &end)) {
        return fail_tensor(path, tensor->name, "its data_offsets are not two whole numbers from 0");
    }
    if (begin > end) return fail_tensor(path, tensor->name, "its data ends before it begins");
    if (end > file->data_nbytes) return fail_tensor(path, tensor->name, "its data extends beyond the end of the file");
    if (!ls_safetensor_shape_nbytes(tensor, &nbytes)) return fail_tensor(path, tensor->name, "its shape is too large");
    if (end - begin != nbytes) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is not a valid safetensors file: tensor '%s': its shape and dtype need %zu bytes, "
                       "its data_offsets hold %zu",
                       path, tensor->name, nbytes, end - begin);
    }
    tensor->data = file->data + begin;
    tensor->nbytes = nbytes;
    return LS_OK;
}

/* Fields beyond the three are ignored, as the reference implementation does; one of the three twice is an error. */
static ls_status parse_tensor(const ls_safetensors *file, const char *path, const cJSON *entry, ls_safetensor *tensor) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const cJSON *fields[3] = {NULL};
    tensor->name = entry->string;
    if (!cJSON_IsObject(entry)) return fail_tensor(path, tensor->name, "its entry is not an object");
    const cJSON *field;
    cJSON_ArrayForEach(field, entry) {
        for (int i = 0; i < 3; i++) {
            if (strcmp(field->string, keys[i]) != 0) continue;
            if (fields[i]) return fail_tensor(path, tensor->name, "a key occurs twice in its entry");
            fields[i] = field;
        }
    }
    ls_status status = parse_dtype(path, fields[0], tensor);
    if (status == LS_OK) status = parse_shape(path, fields[1], tensor);
    if (status == LS_OK) status = parse_offsets(file, path, fields[2], tensor);
    return status;
}

static ls_status parse_metadata(ls_safetensors *file, const char *path, const cJSON *entry) {
    if (file->metadata) return fail_file(path, "the key '" LS_SAFETENSORS_METADATA "' occurs twice");
    if (!cJSON_IsObject(entry)) return fail_file(path, "its metadata is not an object");
    const cJSON *line;
    cJSON_ArrayForEach(line, entry) {
        if (!cJSON_IsString(line)) return fail_file(path, "its metadata has values other than strings");
        /* the first of that name must be this one: metadata has few lines */
        if (cJSON_GetObjectItemCaseSensitive(entry, line->string) != line) {
            return fail_file(path, "a key occurs twice in its metadata");
        }
    }
    file->metadata = entry;
    return LS_OK;
}

static int compare_places(const void *a, const void *b) {
    const ls_safetensor *first = a, *second = b;
    if (first->data != second->data) return (const char *)first->data < (const char *)second->data ? -1 : 1;
    if (first->nbytes != second->nbytes) return first->nbytes < second->nbytes ? -1 : 1;
    return strcmp(first->name, second->name);
}

/* Sorted by offset, each tensor must begin where the one before it ended, and the last must end at the file's end. */
static ls_status check_tiling(const ls_safetensors *file, const char *path) {
    const unsigned char *expected = file->data;
    for (size_t i = 0; i < file->count; i++) {
        const ls_safetensor *tensor = &file->tensors[i];
        if (tensor->data != expected) {
            bool hole = (const unsigned char *)tensor->data > expected;
            return fail_tensor(path, tensor->name,
                               hole ? "bytes before its data belong to no tensor"
                                    : "its data overlaps another tensor's");
        }
        expected += tensor->nbytes;
    }
    if (expected != file->data + file->data_nbytes) return fail_file(path, "bytes at its end belong to no tensor");
    return LS_OK;
}

static ls_status parse_entries(ls_safetensors *file, const char *path) {
    size_t entries = (size_t)cJSON_GetArraySize(file->json);
    file->tensors = calloc(entries + 1, sizeof *file->tensors);
    file->by_name = calloc(entries + 1, sizeof *file->by_name);
    if (!file->tensors || !file->by_name)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the tensors of %s", path);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, file->json) {
        bool is_metadata = strcmp(entry->string, LS_SAFETENSORS_METADATA) == 0;
        ls_status status = is_metadata ? parse_metadata(file, path, entry)
                                       : parse_tensor(file, path, entry, &file->tensors[file->count++]);
        if (status != LS_OK) return status;
    }
    if (file->count > 0) qsort(file->tensors, file->count, sizeof *file->tensors, compare_places);
    for (size_t i = 0; i < file->count; i++) file->by_name[i] = &file->tensors[i];
    const char *repeated = ls_safetensors_sort_by_name(file->by_name, file->count);
    if (repeated) return fail_tensor(path, repeated, "the name occurs twice");
    return check_tiling(file, path);
}

/* Computes the header's sums for later queries, since its text is not kept. Overwrites its checksum's digits. */
static void sum_header(ls_safetensors *file, char *header, size_t header_nbytes) {
    file->header_hash = ls_hash(LS_HASH_SEED, header, header_nbytes);
    char *digits = ls_safetensors_crc32_digits(header);
    file->has_crc32 = digits != NULL;
    if (digits) memset(digits, '0', LS_SAFETENSORS_CRC32_CHARS);
    file->header_crc32 = ls_crc32(0, header, header_nbytes);
}

static ls_status read_file(ls_safetensors *file, const char *path, int fd) {
    struct stat disk;
    if (fstat(fd, &disk) != 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(disk.st_mode)) return ls_fail(LS_ERR_IO, "cannot read %s: not a regular file", path);
    if (lseek(fd, 0, SEEK_SET) < 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    size_t header_nbytes = 0;
    ls_status status = read_header_length(fd, path, (size_t)disk.st_size, &header_nbytes);
    if (status != LS_OK) return status;
    file->data_nbytes = (size_t)disk.st_size - LS_LENGTH_BYTES - header_nbytes;
    char *header = malloc(header_nbytes + 1);
    file->data = malloc(file->data_nbytes + 1);
    if (header && file->data) {
        header[header_nbytes] = '\0';
        status = read_exactly(fd, path, header, header_nbytes);
        if (status == LS_OK) status = parse_header(file, path, header, header_nbytes);
        if (status == LS_OK) sum_header(file, header, header_nbytes);
    } else {
        status =
            ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the %lld bytes of %s", (long long)disk.st_size, path);
    }
    free(header);
    if (status == LS_OK) status = read_exactly(fd, path, file->data, file->data_nbytes);
    return status == LS_OK ? parse_entries(file, path) : status;
}

ls_status ls_safetensors_open_fd(ls_safetensors **out, int fd, const char *path) {
    *out = NULL;
    ls_safetensors *file = calloc(1, sizeof *file);
    ls_status status =
        file ? read_file(file, path, fd) : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", path);
    if (status == LS_OK)
        *out = file;
    else
        ls_safetensors_close(file);
    return status;
}

ls_status ls_safetensors_open(ls_safetensors **out, const char *path) {
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (fd < 0) return ls_fail(LS_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    ls_status status = ls_safetensors_open_fd(out, fd, path);
    close(fd);
    return status;
}

size_t ls_safetensors_count(const ls_safetensors *file) { return file->count; }

const ls_safetensor *ls_safetensors_at(const ls_safetensors *file, size_t index) { return &file->tensors[index]; }

const ls_safetensor *ls_safetensors_find(const ls_safetensors *file, const char *name) {
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, file->by_name[middle]->name);
        if (order == 0) return file->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *ls_safetensors_metadata(const ls_safetensors *file, const char *key) {
    const cJSON *line = cJSON_GetObjectItemCaseSensitive(file->metadata, key);
    return line ? line->valuestring : NULL;
}

uint64_t ls_safetensors_hash(const ls_safetensors *file) {
    return ls_hash(file->header_hash, file->data, file->data_nbytes);
}

ls_status ls_safetensors_compare_ranks(const char *path, const uint64_t *hashes, int rank_count) {
    for (int r = 1; r < rank_count; r++) {
        if (hashes[r] == hashes[0]) continue;
        return ls_fail(LS_ERR_INVALID,
                       "rank 0 and rank %d have read different files %s: the file was replaced meanwhile, or is not on "
                       "a disk that they share",
                       r, path);
    }
    return LS_OK;
}

ls_status ls_safetensors_verify(const ls_safetensors *file, const char *path) {
    char digits[LS_SAFETENSORS_CRC32_CHARS + 1];
    const char *written = ls_safetensors_metadata(file, LS_SAFETENSORS_CRC32);
    if (!written) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is damaged, or another program has changed it: its metadata has no " LS_SAFETENSORS_CRC32
                       ", its checksum; use an older checkpoint, or run without one",
                       path);
    }
    uint32_t crc32 = ls_crc32(file->header_crc32, file->data, file->data_nbytes);
    snprintf(digits, sizeof digits, "%08" PRIx32, crc32);
    if (file->has_crc32 && strcmp(digits, written) == 0) return LS_OK;
    return ls_fail(LS_ERR_FORMAT,
                   "%s is damaged, or another program has changed it: its checksum is %s, and its metadata says %.40s "
                   "(" LS_SAFETENSORS_CRC32 "); use an older checkpoint, or run without one",
                   path, digits, written);
}

void ls_safetensors_close(ls_safetensors *file) {
    if (!file) return;
    cJSON_Delete(file->json);
    free(file->data);
    free(file->tensors);
    free(file->by_name);
    free(file);
}
