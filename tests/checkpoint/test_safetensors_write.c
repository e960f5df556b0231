#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zlib.h>

#include "common/checkpoint/safetensors.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

#define FILE_NAME "file.safetensors"

static const char *file_path(void) { return scratch_path(FILE_NAME); }

static ls_safetensors *open_file(void) {
    ls_safetensors *file;
    assert_int_equal(ls_safetensors_open(&file, file_path()), LS_OK);
    assert_non_null(file);
    return file;
}

static const float six_floats[] = {1, 2, 3, 4, 5, 6};

static ls_status write_file(const ls_safetensor *tensors, size_t count) {
    return ls_safetensors_write(file_path(), tensors, count, NULL, 0);
}

static void expect_bytes(const void *expected, size_t expected_nbytes) {
    size_t nbytes;
    char *bytes = scratch_read(file_path(), &nbytes);
    assert_int_equal(nbytes, expected_nbytes);
    assert_memory_equal(bytes, expected, nbytes);
    free(bytes);
}

/* zlib's checksum of the bytes after the length, with zeros for its digits. A tensor's name and a value that look like
 * the key do no harm. */
TEST_IN(scratch, a_checksum_is_of_the_whole_file) {
    const ls_safetensor tensors[] = {
        {.name = "\"lockstep.crc32\":\"11111111\"", .dtype = LS_SAFETENSOR_F32, .ndim = 1, .shape = {0}},
        {.name = "w",
         .dtype = LS_SAFETENSOR_F32,
         .ndim = 1,
         .shape = {6},
         .data = six_floats,
         .nbytes = sizeof six_floats}};
    const ls_safetensors_text lines[] = {{"a", "\"lockstep.crc32\":\"22222222\""},
                                         {LS_SAFETENSORS_CRC32, "put in by the writer"}};
    assert_int_equal(ls_safetensors_write(file_path(), tensors, 2, lines, 2), LS_OK);
    ls_safetensors *file = open_file();
    char said[9];
    snprintf(said, sizeof said, "%s", ls_safetensors_metadata(file, LS_SAFETENSORS_CRC32));
    assert_int_equal(ls_safetensors_verify(file, "x"), LS_OK);
    ls_safetensors_close(file);
    size_t nbytes;
    char *bytes = scratch_read(file_path(), &nbytes), expected[9];
    char *digits = memmem(bytes, nbytes, "\"lockstep.crc32\":\"", 18);
    assert_non_null(digits);
    assert_memory_equal(digits += 18, said, 8);
    memset(digits, '0', 8);
    snprintf(expected, sizeof expected, "%08lx", crc32(0, (const unsigned char *)bytes + 8, (unsigned)nbytes - 8));
    assert_string_equal(said, expected);
    bytes[nbytes - 1] ^= 1; /* zeros are not a valid checksum either */
    scratch_write(FILE_NAME, bytes, nbytes);
    file = open_file();
    assert_int_equal(ls_safetensors_verify(file, "x"), LS_ERR_FORMAT);
    scratch_expect_error("x is damaged", "its metadata says 00000000");
    ls_safetensors_close(file);
    free(bytes);
}

TEST_IN(scratch, writes_the_reference_implementations_bytes) {
    assert_int_equal(write_file(NULL, 0), LS_OK);
    expect_bytes("\x08\0\0\0\0\0\0\0{}      ", 16);

    char expected[8 + 72 + 24] =
        "\x40\0\0\0\0\0\0\0{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}";
    memcpy(expected + 8 + 64, six_floats, 24);
    ls_safetensor tensor = {.name = "attn.0",
                            .dtype = LS_SAFETENSOR_F32,
                            .ndim = 3,
                            .shape = {1, 2, 3},
                            .data = six_floats,
                            .nbytes = sizeof six_floats};
    assert_int_equal(write_file(&tensor, 1), LS_OK);
    expect_bytes(expected, 8 + 64 + 24);

    static const char padded[] =
        "\x48\0\0\0\0\0\0\0{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],\"data_offsets\":[0,24]}}       ";
    memcpy(expected, padded, 8 + 72);
    memcpy(expected + 8 + 72, six_floats, 24);
    tensor.name = "attn0";
    tensor.ndim = 4;
    memcpy(tensor.shape, (const size_t[]){1, 1, 2, 3}, 4 * sizeof(size_t));
    assert_int_equal(write_file(&tensor, 1), LS_OK);
    expect_bytes(expected, 8 + 72 + 24);
    assert_int_equal(scratch_file_count(), 1);
}

static const char *const dtype_names[] = {"U64", "I64", "F64",     "F32",     "U32", "I32", "BF16", "F16",
                                          "U16", "I16", "F8_E4M3", "F8_E5M2", "I8",  "U8",  "BOOL"};
static const size_t dtype_sizes[] = {8, 8, 8, 4, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1};

/* Tensors of every type, the smallest type first, two of each with names in the wrong order. */
TEST_IN(scratch, larger_types_come_first_then_names) {
    static const unsigned char bytes[8] = {7, 6, 5, 4, 3, 2, 1, 0};
    ls_safetensor tensors[2 * LS_SAFETENSOR_DTYPE_COUNT];
    assert_int_equal(LS_SAFETENSOR_DTYPE_COUNT, COUNT_OF(dtype_names));
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        ls_safetensor_dtype dtype = (ls_safetensor_dtype)(LS_SAFETENSOR_DTYPE_COUNT - 1 - (int)i / 2);
        static char names[COUNT_OF(tensors)][32];
        snprintf(names[i], sizeof names[i], "%s.%s", i % 2 ? "a" : "b", ls_safetensor_dtype_name(dtype));
        tensors[i] = (ls_safetensor){
            .name = names[i], .dtype = dtype, .data = bytes, .nbytes = ls_safetensor_dtype_nbytes(dtype)};
    }
    assert_int_equal(write_file(tensors, COUNT_OF(tensors)), LS_OK);
    ls_safetensors *file = open_file();
    assert_int_equal(ls_safetensors_count(file), COUNT_OF(tensors));
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        const ls_safetensor *tensor = ls_safetensors_at(file, i);
        char name[32];
        snprintf(name, sizeof name, "%s.%s", i % 2 ? "b" : "a", dtype_names[i / 2]);
        assert_string_equal(tensor->name, name);
        assert_int_equal(tensor->nbytes, dtype_sizes[i / 2]);
        assert_int_equal((uintptr_t)tensor->data % dtype_sizes[i / 2], 0);
        assert_memory_equal(tensor->data, bytes, tensor->nbytes);
    }
    ls_safetensors_close(file);
}

TEST_IN(scratch, what_is_written_is_read_again) {
    const ls_safetensor tensors[] = {
        {.name = "w", .dtype = LS_SAFETENSOR_F32, .ndim = 2, .shape = {3, 2}, .data = six_floats, .nbytes = 24},
        {.name = "quote\" slash\\ tab\t \xc3\xa9", .dtype = LS_SAFETENSOR_F32, .data = six_floats + 5, .nbytes = 4},
        {.name = "", .dtype = LS_SAFETENSOR_I64, .ndim = 3, .shape = {5, 0, 7}, .nbytes = 0},
        {.name = "eight",
         .dtype = LS_SAFETENSOR_U8,
         .ndim = 8,
         .shape = {1, 2, 1, 2, 1, 2, 1, 1},
         .data = "ABCDEFGH",
         .nbytes = 8},
    };
    const ls_safetensors_text metadata[] = {{"step", "12"}, {"note", "two\nlines \"quoted\""}};
    assert_int_equal(ls_safetensors_write(file_path(), tensors, COUNT_OF(tensors), metadata, 2), LS_OK);
    ls_safetensors *file = open_file();
    assert_int_equal(ls_safetensors_count(file), COUNT_OF(tensors));
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        const ls_safetensor *tensor = ls_safetensors_find(file, tensors[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, tensors[i].dtype);
        assert_int_equal(tensor->ndim, tensors[i].ndim);
        assert_memory_equal(tensor->shape, tensors[i].shape, sizeof tensor->shape);
        assert_int_equal(tensor->nbytes, tensors[i].nbytes);
        if (tensor->nbytes > 0) assert_memory_equal(tensor->data, tensors[i].data, tensor->nbytes);
    }
    assert_string_equal(ls_safetensors_metadata(file, "step"), "12");
    assert_string_equal(ls_safetensors_metadata(file, "note"), "two\nlines \"quoted\"");
    ls_safetensors_close(file);
}

TEST_IN(scratch, tensors_that_cannot_be_written) {
    static const struct {
        ls_safetensor tensors[2];
        const char *text;
    } rows[] = {
        {{{.name = NULL}}, "(null)"},
        {{{.name = "__metadata__", .dtype = LS_SAFETENSOR_U8, .data = "x", .nbytes = 1}}, "__metadata__"},
        {{{.name = "\xff", .dtype = LS_SAFETENSOR_U8, .data = "x", .nbytes = 1}}, "cannot be a tensor's name"},
        {{{.name = "a", .dtype = LS_SAFETENSOR_DTYPE_COUNT, .data = "x", .nbytes = 1}}, "dtype 15"},
        {{{.name = "a", .dtype = (ls_safetensor_dtype)-1, .data = "x", .nbytes = 1}}, "dtype -1"},
        {{{.name = "a", .dtype = LS_SAFETENSOR_U8, .ndim = 9, .data = "x", .nbytes = 1}}, "9 dimensions"},
        {{{.name = "a", .dtype = LS_SAFETENSOR_U8, .ndim = -1, .data = "x", .nbytes = 1}}, "-1 dimensions"},
        {{{.name = "a", .dtype = LS_SAFETENSOR_F32, .data = "xxxx", .nbytes = 3}}, "does not fit its 3 bytes"},
        {{{.name = "a", .dtype = LS_SAFETENSOR_F32, .data = NULL, .nbytes = 4}}, "does not fit its 4 bytes"},
        {{{.name = "a", .dtype = LS_SAFETENSOR_U16, .ndim = 2, .shape = {SIZE_MAX, 2}, .data = "x", .nbytes = 0}},
         "does not fit"},
        {{{.name = "a", .dtype = LS_SAFETENSOR_U8, .data = "x", .nbytes = 1},
          {.name = "a", .dtype = LS_SAFETENSOR_I8, .data = "x", .nbytes = 1}},
         "two tensors are named 'a'"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        size_t count = rows[i].tensors[1].name ? 2 : 1;
        assert_int_equal(write_file(rows[i].tensors, count), LS_ERR_INVALID);
        scratch_expect_error(FILE_NAME, rows[i].text);
    }
    const ls_safetensors_text twice[] = {{"k", "1"}, {"k", "2"}}, broken[] = {{"k", "\xff"}};
    assert_int_equal(ls_safetensors_write(file_path(), NULL, 0, twice, 2), LS_ERR_INVALID);
    scratch_expect_error("metadata 'k'", FILE_NAME);
    assert_int_equal(ls_safetensors_write(file_path(), NULL, 0, broken, 1), LS_ERR_INVALID);
    scratch_expect_error("metadata 'k'", FILE_NAME);
    assert_int_equal(scratch_file_count(), 0);
}

TEST_IN(scratch, a_failed_write_keeps_the_old_file) {
    assert_int_equal(ls_safetensors_write(scratch_path("none/a"), NULL, 0, NULL, 0), LS_ERR_IO);
    scratch_expect_error("none/a", "No such file");
    scratch_write(FILE_NAME, "old", 3);
    static const unsigned char bytes[2000];
    const ls_safetensor tensor = {
        .name = "a", .dtype = LS_SAFETENSOR_U8, .ndim = 1, .shape = {2000}, .data = bytes, .nbytes = 2000};
    struct rlimit whole, limit; /* a limit on file sizes stands for a full disk */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    limit = whole;
    limit.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ls_status status = write_file(&tensor, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_int_equal(status, LS_ERR_IO);
    scratch_expect_error(FILE_NAME, "File too large");
    expect_bytes("old", 3);
    assert_int_equal(scratch_file_count(), 1);
}
