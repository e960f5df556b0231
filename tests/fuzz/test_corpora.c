/* The kept corpora of the fuzz targets, replayed without libFuzzer: inputs that once broke a reader, or reached code of
 * their own, must be handled. `make fuzz` looks for more. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/fuzz/targets/targets.h"

/* Every file of a corpus, whole and truncated to some lengths. */
static void replay_file(const char *path, void (*target)(const uint8_t *data, size_t nbytes)) {
    size_t nbytes;
    char complaint[400];
    uint8_t *data = scratch_read(path, &nbytes);
    ls_log_capture(complaint, sizeof complaint);
    for (size_t length = nbytes; length > 0; length = length * 3 / 4) target(data, length);
    target(data, 0);
    ls_log_capture(NULL, 0);
    free(data);
}

static void replay(const char *name, void (*target)(const uint8_t *data, size_t nbytes)) {
    char unpack[800];
    int count = 0;
    snprintf(unpack, sizeof unpack, "tar -xzf tests/fuzz/corpus/%s.tar.gz -C '%s'", name, scratch_folder());
    assert_int_equal(system(unpack), 0);
    DIR *corpus = opendir(scratch_folder());
    assert_non_null(corpus);
    for (struct dirent *entry; (entry = readdir(corpus));) {
        if (entry->d_name[0] == '.') continue;
        replay_file(scratch_path(entry->d_name), target);
        count++;
    }
    closedir(corpus);
    assert_true(count >= 5);
}

#define REPLAY(name)                                                                                                   \
    static void test_##name(void **state) {                                                                            \
        (void)state;                                                                                                   \
        replay(#name, fuzz_##name);                                                                                    \
    }
FUZZ_TARGET_MAP(REPLAY)

#define ROW(name) cmocka_unit_test_setup_teardown(test_##name, scratch_setup, scratch_teardown),

int main(void) {
    const struct CMUnitTest tests[] = {FUZZ_TARGET_MAP(ROW)};
    return cmocka_run_group_tests_name("corpora", tests, NULL, NULL);
}
