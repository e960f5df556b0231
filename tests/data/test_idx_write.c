#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/data/idx_file.h"
#include "common/data/idx_write.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

/* Larger than the writer's buffer; all lengths of the shape differ. */
static const size_t dims[] = {70, 60, 50};
enum { COUNT = 70 * 60 * 50 };

static uint8_t elements[COUNT];

static void fill_elements(void) {
    for (int i = 0; i < COUNT; i++) elements[i] = (uint8_t)(i * 7 + i / 256);
}

static ls_idx_writer *open_writer(void) {
    ls_idx_writer *writer;
    assert_int_equal(ls_idx_writer_open(&writer, scratch_folder(), "train-images", 3, dims), LS_OK);
    return writer;
}

static void expect_elements(void) {
    ls_idx_file file;
    assert_int_equal(ls_idx_file_read(&file, scratch_folder(), "train-images", 3), LS_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(file.dims[i], dims[i]);
    assert_memory_equal(file.data, elements, COUNT);
    free(file.data);
}

TEST_IN(scratch, what_is_written_is_read) {
    fill_elements();
    static const size_t pieces[] = {1000, 1 << 17, COUNT};
    for (int p = 0; p < 3; p++) {
        ls_idx_writer *writer = open_writer();
        for (size_t at = 0; at < COUNT; at += pieces[p]) {
            size_t left = COUNT - at, count = left < pieces[p] ? left : pieces[p];
            assert_int_equal(ls_idx_writer_put(writer, elements + at, count), LS_OK);
        }
        assert_int_equal(scratch_file_count(), p > 0); /* nothing before the commit */
        assert_int_equal(ls_idx_writer_commit(writer), LS_OK);
        expect_elements();
    }
    assert_int_equal(scratch_file_count(), 1);
}

TEST_IN(scratch, the_header_is_big_endian) {
    const size_t length = 3;
    ls_idx_writer *writer;
    assert_int_equal(ls_idx_writer_open(&writer, scratch_folder(), "t10k-labels", 1, &length), LS_OK);
    assert_int_equal(ls_idx_writer_put(writer, "abc", 3), LS_OK);
    assert_int_equal(ls_idx_writer_commit(writer), LS_OK);
    size_t nbytes;
    char *bytes = scratch_read(scratch_path("t10k-labels-idx1-ubyte"), &nbytes);
    assert_int_equal(nbytes, 11);
    assert_memory_equal(bytes, "\0\0\10\1\0\0\0\3abc", 11);
    free(bytes);
}

/* Too few elements, too many, or a dropped writer: the previous file stays. */
TEST_IN(scratch, a_wrong_number_of_elements_replaces_nothing) {
    fill_elements();
    ls_idx_writer *writer = open_writer();
    assert_int_equal(ls_idx_writer_put(writer, elements, COUNT), LS_OK);
    assert_int_equal(ls_idx_writer_commit(writer), LS_OK);
    static const uint8_t zeros[COUNT];

    writer = open_writer();
    assert_int_equal(ls_idx_writer_put(writer, zeros, COUNT - 1), LS_OK);
    assert_int_equal(ls_idx_writer_commit(writer), LS_ERR_INVALID);
    scratch_expect_error("train-images-idx3-ubyte lacks its last 1", NULL);

    writer = open_writer();
    assert_int_equal(ls_idx_writer_put(writer, zeros, COUNT - 1), LS_OK);
    assert_int_equal(ls_idx_writer_put(writer, zeros, 2), LS_ERR_INVALID);
    scratch_expect_error("more elements", NULL);
    assert_int_not_equal(ls_idx_writer_commit(writer), LS_OK);

    writer = open_writer();
    assert_int_equal(ls_idx_writer_put(writer, zeros, COUNT), LS_OK);
    ls_idx_writer_abort(writer);
    ls_idx_writer_abort(NULL);

    expect_elements();
    assert_int_equal(scratch_file_count(), 1);
}

TEST_IN(scratch, impossible_files_are_refused) {
    static const struct {
        int ndim;
        size_t dims[5];
        const char *text;
    } cases[] = {{3, {1, 0, 1}, "0 elements"},
                 {1, {(size_t)UINT32_MAX + 1}, "4294967296 elements"},
                 {3, {UINT32_MAX, UINT32_MAX, UINT32_MAX}, "1 to 4294967295"},
                 {0, {1}, "0 dimensions"},
                 {5, {1, 1, 1, 1, 1}, "5 dimensions"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_idx_writer *writer = (ls_idx_writer *)&writer;
        assert_int_equal(ls_idx_writer_open(&writer, scratch_folder(), "x", cases[i].ndim, cases[i].dims),
                         LS_ERR_INVALID);
        assert_null(writer);
        scratch_expect_error(cases[i].text, NULL);
    }
    ls_idx_writer *writer = (ls_idx_writer *)&writer;
    assert_int_equal(ls_idx_writer_open(&writer, "/no/such/folder", "x", 3, dims), LS_ERR_IO);
    assert_null(writer);
    scratch_expect_error("/no/such/folder/x-idx3-ubyte", "folder must exist");
    assert_int_equal(scratch_file_count(), 0);
}

/* A limit on file sizes stands for a full disk. The put that exceeds it fails, the last one at the latest. */
TEST_IN(scratch, a_full_disk_shows_before_the_commit) {
    struct rlimit whole;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = COUNT, .rlim_max = whole.rlim_max}; /* no room for the header */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ls_idx_writer *writer = open_writer();
    ls_status put = ls_idx_writer_put(writer, elements, COUNT);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_int_equal(put, LS_ERR_IO);
    scratch_expect_error("cannot write", "train-images-idx3-ubyte");
    assert_int_not_equal(ls_idx_writer_commit(writer), LS_OK);
    assert_int_equal(scratch_file_count(), 0);
}
