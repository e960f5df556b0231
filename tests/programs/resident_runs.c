#include "tests/programs/resident_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/data/idx_write.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

enum { STEPS = 9, ALL_BATCHES = 6, SIDE = 8, SAMPLES_MOST = ALL_BATCHES * RESIDENT_BATCH };

/* The same bytes at each call, whatever the number of samples. */
static void write_file(const char *folder, const char *prefix, int ndim, size_t samples, unsigned below) {
    static uint8_t bytes[SAMPLES_MOST * SIDE * SIDE];
    size_t dims[3] = {samples, SIDE, SIDE}, count = ndim == 3 ? samples * SIDE * SIDE : samples;
    uint32_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)((state >> 16) % below);
    }
    ls_idx_writer *writer;
    assert_int_equal(ls_idx_writer_open(&writer, folder, prefix, ndim, dims), 0);
    assert_int_equal(ls_idx_writer_put(writer, bytes, count), 0);
    assert_int_equal(ls_idx_writer_commit(writer), 0);
}

static void write_data(const char *folder, int batches) {
    size_t samples = (size_t)batches * RESIDENT_BATCH;
    (void)mkdir(folder, 0700);
    write_file(folder, "train-images", 3, samples, 256);
    write_file(folder, "train-labels", 1, samples, 10);
    write_file(folder, "t10k-images", 3, RESIDENT_BATCH, 256);
    write_file(folder, "t10k-labels", 1, RESIDENT_BATCH, 10);
}

/* The losses of its steps, as text; the caller frees it. */
static char *losses_of(const char *line, const char *data, const char *more, char hash[PROGRAM_HASH + 1]) {
    static program p;
    const char *losses = scratch_path("losses");
    size_t nbytes;
    program_run(&p, "%s --model mlp:64,16,10 --batch-size %d --steps %d --no-shuffle --data %s --dump-losses %s%s",
                line, RESIDENT_BATCH, STEPS, data, losses, more);
    if (p.status != 0) fail_msg("%s%s: status %d, stderr: %s", line, more, p.status, p.err_text);
    program_read_hash(&p, hash);
    return scratch_read(losses, &nbytes);
}

void resident_expect_same(const char *line, int kept) {
    char all[600], few[600], more[60], resident_hash[PROGRAM_HASH + 1], hash[PROGRAM_HASH + 1];
    snprintf(all, sizeof all, "%s", scratch_path("all"));
    snprintf(few, sizeof few, "%s", scratch_path("few"));
    write_data(all, ALL_BATCHES);
    write_data(few, kept);
    snprintf(more, sizeof more, " --resident-batches %d", kept);
    char *resident = losses_of(line, all, more, resident_hash), *loaded = losses_of(line, few, "", hash);
    assert_int_equal(count_lines(loaded), STEPS);
    if (strcmp(resident, loaded) != 0) {
        fail_msg("%s, %d resident batches: losses\n%snot\n%s", line, kept, resident, loaded);
    }
    assert_string_equal(resident_hash, hash);
    free(resident);
    free(loaded);
}
