/* npy_file — magic, version, the header's length, and a header that is a Python dictionary of three entries:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 3, 32, 32), }
 *   idea  : the header is parsed by the grammar of numpy.save, with entries in any order; everything else is refused by
 *           name
 *   fails : arrays that NumPy itself would convert on the fly (big endian, Fortran order, doubles) are refused: the
 *           message says how to save them again, so that a run's bits never depend on a conversion here */
#include "common/data/npy_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/data/packed.h"

#define LS_NPY_BUFFER_BYTES (1u << 17)
enum { MAGIC_BYTES = 6, MOST_HEADER_BYTES = 4096, DESCR_CAPACITY = 24 };

size_t ls_element_nbytes(ls_element element) {
    static const size_t nbytes[] = {
        [LS_ELEMENT_U8] = 1, [LS_ELEMENT_I32] = 4, [LS_ELEMENT_I64] = 8, [LS_ELEMENT_F32] = 4};
    return nbytes[element];
}

/* --- the dictionary ----------------------------------------------------------------------------------------------- */

struct header {
    char descr[DESCR_CAPACITY]; /* without quotes */
    bool fortran;
    int axes; /* more than LS_NPY_MOST_AXES: only the first are in shape */
    size_t shape[LS_NPY_MOST_AXES];
    bool has_descr, has_order, has_shape;
};

static void skip_blanks(const char **at) { *at += strspn(*at, " \n"); }

static bool take(const char **at, const char *text) {
    skip_blanks(at);
    size_t length = strlen(text);
    if (strncmp(*at, text, length) != 0) return false;
    *at += length;
    return true;
}

static bool take_quoted(const char **at, char *text, size_t capacity) {
    skip_blanks(at);
    char quote = **at;
    if (quote != '\'' && quote != '"') return false;
    const char *begin = *at + 1, *end = strchr(begin, quote);
    if (!end || (size_t)(end - begin) >= capacity) return false;
    memcpy(text, begin, (size_t)(end - begin));
    text[end - begin] = '\0';
    *at = end + 1;
    return true;
}

static bool take_shape(const char **at, struct header *h) {
    if (!take(at, "(")) return false;
    for (h->axes = 0; !take(at, ")"); h->axes++) {
        if (h->axes > 0 && !take(at, ",")) return false;
        if (h->axes > 0 && take(at, ")")) break;
        skip_blanks(at);
        size_t digits = strspn(*at, "0123456789");
        if (digits == 0 || digits > 18) return false;
        if (h->axes < LS_NPY_MOST_AXES) h->shape[h->axes] = strtoull(*at, NULL, 10);
        *at += digits;
    }
    return true;
}

static bool take_entry(const char **at, struct header *h) {
    char key[DESCR_CAPACITY];
    if (!take_quoted(at, key, sizeof key) || !take(at, ":")) return false;
    if (strcmp(key, "shape") == 0) return h->has_shape = take_shape(at, h);
    if (strcmp(key, "fortran_order") == 0) {
        h->fortran = take(at, "True");
        return h->has_order = h->fortran || take(at, "False");
    }
    if (strcmp(key, "descr") != 0) return false;
    if (!take(at, "[")) return h->has_descr = take_quoted(at, h->descr, sizeof h->descr);
    snprintf(h->descr, sizeof h->descr, "[fields]"); /* brackets may nest: the text after the list is not read */
    h->has_descr = true;
    return false;
}

static bool parse_header(const char *text, struct header *h) {
    memset(h, 0, sizeof *h);
    if (!take(&text, "{")) return false;
    while (!take(&text, "}")) {
        if (!take_entry(&text, h)) return false;
        if (!take(&text, ",") && (skip_blanks(&text), *text != '}')) return false;
    }
    skip_blanks(&text);
    return *text == '\0' && h->has_descr && h->has_order && h->has_shape;
}

/* --- accepted types and shapes ------------------------------------------------------------------------------------ */

static ls_status take_element(ls_npy_file *file, const char *descr) {
    static const struct {
        const char *descr;
        ls_element element;
    } taken[] = {{"|u1", LS_ELEMENT_U8},
                 {"<u1", LS_ELEMENT_U8},
                 {"<i4", LS_ELEMENT_I32},
                 {"<i8", LS_ELEMENT_I64},
                 {"<f4", LS_ELEMENT_F32}};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        file->element = taken[i].element;
        if (strcmp(descr, taken[i].descr) == 0) return LS_OK;
    }
    if (descr[0] == '[')
        return ls_fail(LS_ERR_FORMAT, "%s is a structured array; expected one of numbers: save one field, a[\"name\"]",
                       file->path);
    if (strcmp(descr, "|O") == 0)
        return ls_fail(LS_ERR_FORMAT, "%s holds Python objects; expected numbers: save numpy.stack(list(a))",
                       file->path);
    if (descr[0] == '>')
        return ls_fail(LS_ERR_FORMAT, "%s is big endian (%s): save a.astype(a.dtype.newbyteorder(\"<\"))", file->path,
                       descr);
    return ls_fail(
        LS_ERR_FORMAT,
        "%s has elements of type %s; expected uint8, float32, or int64 labels: save a.astype(\"float32\") or "
        "a.astype(\"int64\")",
        file->path, descr);
}

static ls_status take_header(ls_npy_file *file, const struct header *h) {
    ls_status status = take_element(file, h->descr);
    if (status != LS_OK) return status;
    if (h->fortran)
        return ls_fail(LS_ERR_FORMAT, "%s is in Fortran order: save numpy.ascontiguousarray(a)", file->path);
    if (h->axes < 1 || h->axes > LS_NPY_MOST_AXES)
        return ls_fail(LS_ERR_FORMAT, "%s has %d axes; expected 1 to %d, samples first", file->path, h->axes,
                       LS_NPY_MOST_AXES);
    file->axes = h->axes;
    file->sample_nbytes = ls_element_nbytes(file->element);
    for (int a = 0; a < h->axes; a++) {
        file->shape[a] = h->shape[a];
        if (h->shape[a] == 0) return ls_fail(LS_ERR_FORMAT, "%s is empty: its axis %d is zero", file->path, a);
        if (a > 0 && __builtin_mul_overflow(file->sample_nbytes, h->shape[a], &file->sample_nbytes))
            return ls_fail(LS_ERR_FORMAT, "%s is damaged: its samples would be larger than any file", file->path);
    }
    return LS_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static ls_status read_exactly(ls_packed *packed, void *bytes, size_t nbytes, const char *within) {
    size_t got;
    ls_status status = ls_packed_read(packed, bytes, nbytes, &got);
    if (status != LS_OK || got == nbytes) return status;
    return ls_fail(LS_ERR_FORMAT, "%s is truncated: the file ends within its %s", packed->path, within);
}

static ls_status read_header(ls_npy_file *file, ls_packed *packed) {
    uint8_t begin[MAGIC_BYTES + 2], length[4] = {0};
    char text[MOST_HEADER_BYTES + 1];
    struct header header;
    ls_status status = read_exactly(packed, begin, sizeof begin, "header");
    if (status != LS_OK) return status;
    if (memcmp(begin, "\x93NUMPY", MAGIC_BYTES) != 0)
        return ls_fail(LS_ERR_FORMAT, "%s is not a .npy file: expected \\x93NUMPY as its first bytes", file->path);
    int version = begin[MAGIC_BYTES];
    if (version < 1 || version > 2)
        return ls_fail(
            LS_ERR_FORMAT,
            "%s is of .npy version %d.%d; expected 1.0 or 2.0, which numpy.save writes for arrays of numbers",
            file->path, version, begin[MAGIC_BYTES + 1]);
    status = read_exactly(packed, length, version == 1 ? 2 : 4, "header");
    if (status != LS_OK) return status;
    size_t nbytes = length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    if (nbytes > MOST_HEADER_BYTES)
        return ls_fail(LS_ERR_FORMAT,
                       "%s is damaged: its header announces %zu bytes; arrays of numbers have at most %d", file->path,
                       nbytes, MOST_HEADER_BYTES);
    status = read_exactly(packed, text, nbytes, "header");
    if (status != LS_OK) return status;
    text[nbytes] = '\0';
    bool whole = parse_header(text, &header) && strlen(text) == nbytes;
    if (!whole && header.descr[0] != '[')
        return ls_fail(LS_ERR_FORMAT,
                       "%s is damaged: its header is not {'descr': ..., 'fortran_order': ..., 'shape': ...}",
                       file->path);
    return take_header(file, &header);
}

static ls_status read_data(ls_npy_file *file, ls_packed *packed) {
    ls_status status = ls_packed_check_room(packed, file->shape[0], file->shape[0], file->sample_nbytes);
    if (status != LS_OK) return status;
    size_t nbytes = file->shape[0] * file->sample_nbytes, got;
    file->data = malloc(nbytes);
    if (!file->data)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the %zu bytes of %s", nbytes, file->path);
    status = ls_packed_read(packed, file->data, nbytes, &got);
    if (status == LS_OK && got < nbytes)
        status = ls_fail(LS_ERR_FORMAT, "%s is truncated: the file ends within sample %zu of %zu", file->path,
                         got / file->sample_nbytes, file->shape[0]);
    return status == LS_OK ? ls_packed_check_end(packed) : status;
}

ls_status ls_npy_file_read(ls_npy_file *file, const char *folder, const char *name) {
    ls_packed packed;
    file->data = NULL;
    if (!ls_packed_find(&packed, folder, name))
        return ls_fail(LS_ERR_IO, "there is no %s or %s.gz in %s", name, name, folder);
    memcpy(file->path, packed.path, sizeof file->path);
    ls_status status = ls_packed_open(&packed, LS_NPY_BUFFER_BYTES);
    if (status != LS_OK) return status;
    status = read_header(file, &packed);
    if (status == LS_OK) status = read_data(file, &packed);
    ls_packed_close(&packed);
    if (status == LS_OK) return LS_OK;
    free(file->data);
    file->data = NULL;
    return status;
}
