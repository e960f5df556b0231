#include "tests/programs/resident_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"
#include "tests/programs/small_images.h"

enum { STEPS = 9, ALL_BATCHES = 6 };

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
    snprintf(all, sizeof all, "%s", small_images("all", ALL_BATCHES * RESIDENT_BATCH, RESIDENT_BATCH));
    snprintf(few, sizeof few, "%s", small_images("few", (size_t)kept * RESIDENT_BATCH, RESIDENT_BATCH));
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
