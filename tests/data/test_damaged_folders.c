/* 500 damaged files of each kind, drawn from a seed: each is refused in one line, or read as a whole set; none causes a
 * crash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/random.h"
#include "common/data/dataset.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/data/folders.h"

enum { DAMAGES = 500 };

/* A file of a valid folder; `header`: the bytes in which damage is drawn more often. */
struct kind {
    const char *file;
    void (*write_folder)(void);
    size_t header;
};

static void write_idx4(void) {
    folders_write_idx4("train", 6);
    folders_write_idx4("t10k", 2);
}

static void write_cifar100(void) {
    folders_write_records("train.bin", 0, 3, 2, 100, 0);
    folders_write_records("test.bin", 0, 1, 2, 100, 0);
}

static void write_arrays(void) {
    static const float values[12] = {1, 2, 3, 4};
    static const int64_t labels[2] = {1, 0};
    folders_write_npy("inputs.npy", "<f4", "(2, 3, 1, 2)", values, 48);
    folders_write_npy("targets.npy", "<i8", "(2,)", labels, 16);
}

/* Replaces the file by its gzipped form. */
static void pack(const char *name) {
    size_t nbytes;
    char packed[64];
    char *file = scratch_read(scratch_path(name), &nbytes);
    snprintf(packed, sizeof packed, "%s.gz", name);
    folders_gzip(packed, file, nbytes, 1);
    unlink(scratch_path(name));
    free(file);
}

static void write_idx4_gzipped(void) {
    write_idx4();
    pack("train-images-idx4-ubyte");
}

static void write_arrays_gzipped(void) {
    write_arrays();
    pack("inputs.npy");
}

static const struct kind kinds[] = {
    {"train-images-idx4-ubyte", write_idx4, 20},
    {"train-labels-idx1-ubyte", write_idx4, 8},
    {"train-images-idx4-ubyte.gz", write_idx4_gzipped, 12},
    {"data_batch_2.bin", folders_write_cifar10, 1},
    {"train.bin", write_cifar100, 2},
    {"inputs.npy", write_arrays, 90},
    {"targets.npy", write_arrays, 90},
    {"inputs.npy.gz", write_arrays_gzipped, 12},
};

typedef enum damage { CUT, LONGER, FLIPPED, OVERWRITTEN, DAMAGE_COUNT } damage;

static size_t below(ls_generator *generator, size_t limit) { return ls_random32(generator) % limit; }

/* Damages the bytes (the buffer has room for 64 more); returns how many are left. */
static size_t spoil(uint8_t *bytes, size_t nbytes, size_t header, damage kind, ls_generator *generator) {
    size_t limit = below(generator, 2) ? header : nbytes, at = below(generator, limit), count = 1 + below(generator, 8);
    if (kind == CUT) return below(generator, 2) ? at : nbytes - 1 - at % 64;
    if (kind == LONGER) {
        count = 1 + below(generator, 64);
        for (size_t i = 0; i < count; i++) bytes[nbytes + i] = (uint8_t)below(generator, 256);
        return nbytes + count;
    }
    if (kind == FLIPPED) bytes[at] ^= (uint8_t)(1u << below(generator, 8));
    for (size_t i = 0; kind == OVERWRITTEN && i < count && at + i < nbytes; i++)
        bytes[at + i] = below(generator, 4) ? (uint8_t)below(generator, 256) : 0xff;
    return nbytes;
}

/* Reads every sample, so that a sanitizer checks the contents. */
static void read_all(const ls_dataset *dataset) {
    const ls_sample_spec *spec = ls_dataset_spec(dataset);
    float *input = malloc(ls_sample_input_count(spec) * sizeof *input);
    assert_non_null(input);
    for (size_t i = 0; i < ls_dataset_count(dataset); i++) {
        int64_t label = 0, index = (int64_t)i;
        assert_int_equal(ls_dataset_read(dataset, &index, 1, input, &label, NULL), LS_OK);
        assert_true(label >= 0 && (label < spec->classes || spec->classes == 0));
    }
    free(input);
}

/* Whether the folder is refused, in one line that names the file or its folder. */
static bool is_refused(const struct kind *kind, damage what) {
    ls_dataset *dataset;
    int normalize = LS_NORMALIZE_AUTO;
    ls_status status = ls_dataset_open_folder(&dataset, NULL, scratch_folder(), &normalize);
    assert_int_equal(status == LS_OK, dataset != NULL);
    if (status != LS_OK) {
        assert_int_equal(status, LS_ERR_FORMAT);
        scratch_expect_error(scratch_folder(), NULL);
        return true;
    }
    if (what == CUT) fail_msg("%s is cut, and taken", kind->file);
    if (what == LONGER && !strstr(kind->file, ".gz")) /* bytes after a gzip stream are ignored, as gzip does */
        fail_msg("%s is longer, and taken", kind->file);
    read_all(dataset);
    ls_dataset_close(dataset);
    return false;
}

TEST_IN(scratch, damaged_files_of_each_kind) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t nbytes, refused = 0;
        ls_generator generator;
        ls_generator_seed(&generator, 35 + k);
        kinds[k].write_folder();
        uint8_t *good = scratch_read(scratch_path(kinds[k].file), &nbytes), *bad = malloc(nbytes + 64);
        assert_non_null(bad);
        for (int d = 0; d < DAMAGES; d++) {
            damage what = (damage)(d % DAMAGE_COUNT);
            memcpy(bad, good, nbytes);
            size_t left = spoil(bad, nbytes, kinds[k].header, what, &generator);
            scratch_write(kinds[k].file, bad, left);
            refused += is_refused(&kinds[k], what);
        }
        if (refused < DAMAGES / 2) fail_msg("%s: only %zu of %d are refused", kinds[k].file, refused, DAMAGES);
        free(good);
        free(bad);
        static const char remove_all[] = "rm -rf -- '%s'/*";
        char command[400];
        snprintf(command, sizeof command, remove_all, scratch_folder());
        assert_int_equal(system(command), 0);
    }
}
