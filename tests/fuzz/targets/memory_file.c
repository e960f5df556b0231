#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/targets/targets.h"

void fuzz_require(int holds, const char *promise) {
    if (holds) return;
    fprintf(stderr, "a promise is broken: %s\n", promise);
    abort();
}

const char *fuzz_memory_file(const uint8_t *data, size_t nbytes) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int written = fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, nbytes, 0) == (ssize_t)nbytes;
    fuzz_require(written, "this test can write a file in memory");
    return path;
}
