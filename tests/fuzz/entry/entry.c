/* libFuzzer's entry point for the target that -DFUZZ_TARGET names. */
#include "common/base/log.h"
#include "tests/fuzz/targets/targets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
    char complaint[400];
    ls_log_capture(complaint, sizeof complaint); /* readers report errors, but must not print millions of lines */
    FUZZ_TARGET(data, nbytes);
    ls_log_capture(NULL, 0);
    return 0;
}
