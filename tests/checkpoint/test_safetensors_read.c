#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/checkpoint/safetensors.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

#define FILE_NAME "file.safetensors"

static const char *file_path(void) { return scratch_path(FILE_NAME); }

/* Writes length, header and `data_nbytes` bytes of data: 0, 1, 2, ... */
static void craft_bytes(const char *header, size_t header_nbytes, size_t data_nbytes) {
    char *bytes = calloc(1, 8 + header_nbytes + data_nbytes);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(header_nbytes >> 8 * i);
    memcpy(bytes + 8, header, header_nbytes);
    for (size_t i = 0; i < data_nbytes; i++) bytes[8 + header_nbytes + i] = (char)i;
    scratch_write(FILE_NAME, bytes, 8 + header_nbytes + data_nbytes);
    free(bytes);
}

static void craft(const char *header, size_t data_nbytes) { craft_bytes(header, strlen(header), data_nbytes); }

static ls_safetensors *open_file(void) {
    ls_safetensors *file;
    assert_int_equal(ls_safetensors_open(&file, file_path()), LS_OK);
    assert_non_null(file);
    return file;
}

static void expect_refusal(ls_status expected, const char *text, const char *another) {
    ls_safetensors *file = (ls_safetensors *)&file;
    assert_int_equal(ls_safetensors_open(&file, file_path()), expected);
    assert_null(file);
    scratch_expect_error(FILE_NAME, text);
    if (another) {
        assert_int_equal(ls_safetensors_open(&file, file_path()), expected);
        scratch_expect_error(another, NULL);
    }
}

TEST_IN(scratch, reads_tensors_in_any_order_of_the_header) {
    craft("{\"b\":{\"data_offsets\":[8,14],\"dtype\":\"BF16\",\"shape\":[3,1]},"
          "\"__metadata__\":{\"source\":\"test\",\"\":\"empty key\"},"
          "\"none\":{\"dtype\":\"U8\",\"shape\":[2,0],\"data_offsets\":[8,8]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"later versions\":[1,{}]},"
          "\"\\u00e9\\n\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[14,15]}}  ",
          15);
    ls_safetensors *file = open_file();
    assert_int_equal(ls_safetensors_count(file), 4);
    static const char *const names[] = {"a", "none", "b", "\xc3\xa9\n"};
    static const size_t begins[] = {0, 8, 8, 14}, sizes[] = {8, 0, 6, 1};
    static const int dims[] = {1, 2, 2, 0};
    for (size_t i = 0; i < 4; i++) {
        const ls_safetensor *tensor = ls_safetensors_at(file, i);
        assert_string_equal(tensor->name, names[i]);
        assert_int_equal(tensor->nbytes, sizes[i]);
        assert_int_equal(tensor->ndim, dims[i]);
        if (sizes[i] > 0) assert_int_equal(*(const unsigned char *)tensor->data, begins[i]);
        assert_ptr_equal(ls_safetensors_find(file, names[i]), tensor);
    }
    const ls_safetensor *b = ls_safetensors_find(file, "b");
    assert_int_equal(b->dtype, LS_SAFETENSOR_BF16);
    assert_int_equal(b->shape[0], 3);
    assert_int_equal(b->shape[1], 1);
    assert_null(ls_safetensors_find(file, "c"));
    assert_null(ls_safetensors_find(file, "__metadata__"));
    assert_string_equal(ls_safetensors_metadata(file, "source"), "test");
    assert_string_equal(ls_safetensors_metadata(file, ""), "empty key");
    assert_null(ls_safetensors_metadata(file, "Source"));
    ls_safetensors_close(file);
}

TEST_IN(scratch, a_file_of_pytorchs) {
    ls_safetensors *file;
    assert_int_equal(ls_safetensors_open(&file, "tests/golden/cross_entropy_mean.safetensors"), LS_OK);
    const ls_safetensor *x = ls_safetensors_find(file, "x"), *labels = ls_safetensors_find(file, "labels");
    assert_int_equal(ls_safetensors_count(file), 4);
    assert_true(x && x->dtype == LS_SAFETENSOR_F32 && x->ndim == 2 && x->shape[0] == 64 && x->shape[1] == 10);
    assert_true(labels && labels->dtype == LS_SAFETENSOR_I64 && labels->nbytes == 64 * sizeof(int64_t));
    for (size_t i = 0; i < 64; i++) {
        int64_t label;
        memcpy(&label, (const char *)labels->data + i * sizeof label, sizeof label);
        assert_in_range(label, 0, 9);
    }
    assert_string_equal(ls_safetensors_metadata(file, "source"), "PyTorch float64");
    ls_safetensors_close(file);
}

TEST_IN(scratch, files_without_metadata_or_tensors) {
    craft("{}", 0);
    ls_safetensors *file = open_file();
    assert_int_equal(ls_safetensors_count(file), 0);
    assert_null(ls_safetensors_find(file, "a"));
    assert_null(ls_safetensors_metadata(file, "a"));
    ls_safetensors_close(file);
    ls_safetensors_close(NULL);
}

TEST_IN(scratch, files_that_cannot_be_read) {
    expect_refusal(LS_ERR_IO, "No such file", NULL);
    ls_safetensors *file = (ls_safetensors *)&file;
    assert_int_equal(ls_safetensors_open(&file, scratch_folder()), LS_ERR_IO);
    assert_null(file);
    scratch_expect_error("not a regular file", scratch_folder());
    const char *pipe = scratch_path("pipe"); /* has no writer */
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(ls_safetensors_open(&file, pipe), LS_ERR_IO);
    scratch_expect_error("not a regular file", pipe);
    assert_int_equal(remove(pipe), 0);
}

TEST_IN(scratch, wrong_header_lengths) {
    static const unsigned char too_large[] = {1, 225, 245, 5, 0, 0, 0, 0, '{', '}'}; /* 100,000,001 */
    static const unsigned char largest[] = {0, 225, 245, 5, 0, 0, 0, 0, '{', '}'};
    static const unsigned char all_ones[] = {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'};
    static const unsigned char one_more[] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    for (size_t nbytes = 0; nbytes < 8; nbytes++) {
        scratch_write(FILE_NAME, one_more, nbytes);
        expect_refusal(LS_ERR_FORMAT, "shorter than 8 bytes", NULL);
    }
    scratch_write(FILE_NAME, too_large, sizeof too_large);
    expect_refusal(LS_ERR_FORMAT, "100000001", "limit of 100000000");
    scratch_write(FILE_NAME, largest, sizeof largest);
    expect_refusal(LS_ERR_FORMAT, "header of 100000000 bytes", "beyond the end of the file");
    scratch_write(FILE_NAME, all_ones, sizeof all_ones);
    expect_refusal(LS_ERR_FORMAT, "18446744073709551615", "limit");
    scratch_write(FILE_NAME, one_more, sizeof one_more);
    expect_refusal(LS_ERR_FORMAT, "header of 3 bytes", "beyond the end of the file");
}

TEST_IN(scratch, headers_that_are_no_json_object) {
    static const struct {
        const char *header, *text;
    } rows[] = {
        {"", "does not begin with '{'"},
        {" {}", "does not begin with '{'"},
        {"[]", "does not begin with '{'"},
        {"\xef\xbb\xbf{}", "does not begin with '{'"},
        {"{", "not JSON"},
        {"{\"a\"", "not JSON"},
        {"{\"a\":1,", "not JSON"},
        {"{\"a\":{\"dtype\":\"F32\"", "not JSON"},
        {"{\"a\\ud800\":{}}", "not JSON"},
        {"{}x", "has data after the JSON object"},
        {"{} {}", "has data after the JSON object"},
        {"{}\n", "has data after the JSON object"},
        {"{\"\xff\":{}}", "not UTF-8"},
        {"{\"\xc0\x80\":{}}", "not UTF-8"},
        {"{\"\xe0\x80\xaf\":{}}", "not UTF-8"},
        {"{\"\xed\xa0\x80\":{}}", "not UTF-8"},
        {"{\"\xf4\x90\x80\x80\":{}}", "not UTF-8"},
        {"{\"\xf8\x88\x80\x80\x80\":{}}", "not UTF-8"},
        {"{\"\xf8\x90\x80\x80\":{}}", "not UTF-8"},
        {"{\"\x80\":{}}", "not UTF-8"},
        {"{\"\x82\x80\":{}}", "not UTF-8"},
        {"{\"\xc3Z\":{}}", "not UTF-8"},
        {"{\"\xc3", "not UTF-8"},
        {"{\"a\\u0000b\":{}}", "NUL character"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        craft(rows[i].header, 0);
        expect_refusal(LS_ERR_FORMAT, rows[i].text, NULL);
    }
    craft_bytes("{\"a\0\":{}}", 10, 0);
    expect_refusal(LS_ERR_FORMAT, "NUL character", NULL);
    craft_bytes("{}\0\0", 4, 0);
    expect_refusal(LS_ERR_FORMAT, "NUL character", NULL);
    /* an escaped backslash before u0000 is not a zero byte; these texts are well-formed */
    craft(
        "{\"\\\\u0000 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        1);
    ls_safetensors *file = open_file();
    assert_string_equal(ls_safetensors_at(file, 0)->name, "\\u0000 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82");
    ls_safetensors_close(file);
}

/* Each row is the entry of a tensor t in a file with 8 bytes of data. */
TEST_IN(scratch, entries_that_cannot_be) {
    static const struct {
        const char *entry, *text;
        ls_status status;
    } rows[] = {
        {"1", "not an object", LS_ERR_FORMAT},
        {"[]", "not an object", LS_ERR_FORMAT},
        {"{}", "dtype is missing", LS_ERR_FORMAT},
        {"{'dtype':5,'shape':[2],'data_offsets':[0,8]}", "dtype is missing or not a string", LS_ERR_FORMAT},
        {"{'dtype':'F8_E8M0','shape':[8],'data_offsets':[0,8]}", "dtype 'F8_E8M0'", LS_ERR_UNSUPPORTED},
        {"{'dtype':'f32','shape':[2],'data_offsets':[0,8]}", "dtype 'f32'", LS_ERR_UNSUPPORTED},
        {"{'dtype':'F32','data_offsets':[0,8]}", "shape is missing", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':2,'data_offsets':[0,8]}", "shape is missing or not an array", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[-2],'data_offsets':[0,8]}", "whole numbers", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2.5],'data_offsets':[0,8]}", "whole numbers", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':['2'],'data_offsets':[0,8]}", "whole numbers", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[9007199254740992],'data_offsets':[0,8]}", "whole numbers", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[1e999],'data_offsets':[0,8]}", "whole numbers", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2,1,1,1,1,1,1,1,1],'data_offsets':[0,8]}", "too many dim", LS_ERR_UNSUPPORTED},
        {"{'dtype':'F32','shape':[2]}", "data_offsets are not", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2],'data_offsets':8}", "data_offsets are not", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2],'data_offsets':[8]}", "data_offsets are not", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2],'data_offsets':[0,8,8]}", "data_offsets are not", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2],'data_offsets':[-8,8]}", "data_offsets are not", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2],'data_offsets':[0,8.5]}", "data_offsets are not", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2],'data_offsets':[8,0]}", "ends before it begins", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[3],'data_offsets':[0,12]}", "beyond the end of the file", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[2],'data_offsets':[0,9007199254740991]}", "beyond the end of the file",
         LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[1],'data_offsets':[0,8]}", "need 4 bytes, its data_offsets hold 8", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[],'data_offsets':[0,8]}", "need 4 bytes, its data_offsets hold 8", LS_ERR_FORMAT},
        {"{'dtype':'F32','shape':[4294967296,4294967296],'data_offsets':[0,0]}", "shape is too large", LS_ERR_FORMAT},
        {"{'dtype':'U16','shape':[4503599627370496,2048],'data_offsets':[0,0]}", "shape is too large", LS_ERR_FORMAT},
        {"{'dtype':'F32','dtype':'F32','shape':[2],'data_offsets':[0,8]}", "key occurs twice", LS_ERR_FORMAT},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char header[200];
        snprintf(header, sizeof header, "{\"t\":%s}", rows[i].entry);
        for (char *quote = header; (quote = strchr(quote, '\''));) *quote = '"';
        craft(header, 8);
        expect_refusal(rows[i].status, rows[i].text, "tensor 't'");
    }
}

/* Tensors of bytes in a file with 8 bytes of data: {name, begin, end}. */
TEST_IN(scratch, holes_overlaps_and_repetitions) {
    static const struct {
        struct {
            const char *name;
            int begin, end;
        } tensors[3];
        const char *text, *another;
    } rows[] = {
        {{{"a", 1, 8}}, "tensor 'a'", "belong to no tensor"},
        {{{"a", 0, 7}}, "bytes at its end belong to no tensor", NULL},
        {{{"a", 0, 3}, {"b", 4, 8}}, "tensor 'b'", "belong to no tensor"},
        {{{"a", 0, 5}, {"b", 4, 8}}, "tensor 'b'", "overlaps"},
        {{{"a", 0, 8}, {"b", 0, 8}}, "tensor 'b'", "overlaps"},
        {{{"a", 0, 8}, {"b", 4, 4}}, "tensor 'b'", "overlaps"},
        {{{"b", 4, 8}, {"c", 0, 4}, {"b", 8, 8}}, "tensor 'b'", "name occurs twice"},
        {{{"a", 0, 8}, {"a", 0, 8}}, "tensor 'a'", "name occurs twice"},
        {{{NULL, 0, 0}}, "bytes at its end belong to no tensor", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char header[400] = "{";
        for (size_t j = 0; j < 3 && rows[i].tensors[j].name; j++) {
            int begin = rows[i].tensors[j].begin, end = rows[i].tensors[j].end;
            size_t used = strlen(header);
            snprintf(header + used, sizeof header - used,
                     "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]}", j > 0 ? "," : "",
                     rows[i].tensors[j].name, end - begin, begin, end);
        }
        strcat(header, "}");
        craft(header, 8);
        expect_refusal(LS_ERR_FORMAT, rows[i].text, rows[i].another);
    }
}

TEST_IN(scratch, metadata_that_cannot_be) {
    static const struct {
        const char *header, *text;
    } rows[] = {
        {"{\"__metadata__\":[]}", "metadata is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", "other than strings"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}", "twice in its metadata"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "'__metadata__' occurs twice"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        craft(rows[i].header, 0);
        expect_refusal(LS_ERR_FORMAT, rows[i].text, NULL);
    }
}

/* No prefix of a valid file is valid, and no damaged byte crashes the reader. */
TEST_IN(scratch, every_truncation_and_every_spoilt_byte) {
    craft("{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}",
          9);
    size_t nbytes;
    unsigned char *good = scratch_read(file_path(), &nbytes);
    for (size_t length = 0; length < nbytes; length++) {
        scratch_write(FILE_NAME, good, length);
        expect_refusal(LS_ERR_FORMAT, NULL, NULL);
    }
    for (size_t i = 0; i < 8 * nbytes; i++) {
        good[i / 8] ^= (unsigned char)(1u << i % 8);
        scratch_write(FILE_NAME, good, nbytes);
        ls_safetensors *file;
        if (ls_safetensors_open(&file, file_path()) != LS_OK) scratch_expect_error(FILE_NAME, NULL);
        ls_safetensors_close(file);
        good[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    free(good);
}

/* Weights in another format: the line names the format, and how to convert it. */
TEST_IN(scratch, files_of_other_formats_are_named) {
    static const struct {
        const char *begin, *words;
    } files[] = {
        {"PK\x03\x04xxxxyyyyzzzz", "is a zip archive, as torch.save (.pt, .pth)"},
        {"\x80\x02\x8axxxxyyyyzzzz", "is a pickle, as old versions of torch.save"},
        {"\x93NUMPY\x01\x02xxxxyyyy", "is a NumPy array (.npy)"},
        {"\x1f\x8b\x08xxxxyyyyzzzz", "is a gzip file"},
        {"\x89HDF\r\n\x1a\nxxxxyyyy", "is an HDF5 file"},
        {"\x89PNG\r\n\x1a\nxxxxyyyy", "is a PNG picture"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ls_safetensors *file;
        scratch_write("weights", files[i].begin, strlen(files[i].begin));
        assert_int_equal(ls_safetensors_open(&file, scratch_path("weights")), LS_ERR_FORMAT);
        scratch_expect_error(files[i].words, "expected a safetensors file");
    }
}
