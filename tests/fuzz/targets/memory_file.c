#define _GNU_SOURCE
#include <limits.h>
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

/* --- folders ------------------------------------------------------------------------------------------------------ */

enum { MOST_FOLDERS = 4, FOLDER_NBYTES = 256 };

static struct {
    char path[FOLDER_NBYTES];
    const char *const *names;
    int count;
} folders[MOST_FOLDERS];
static int folder_count;

static void remove_folders(void) {
    char path[PATH_MAX];
    for (int f = 0; f < folder_count; f++) {
        for (int i = 0; i < folders[f].count; i++) {
            snprintf(path, sizeof path, "%s/%s", folders[f].path, folders[f].names[i]);
            unlink(path);
        }
        rmdir(folders[f].path);
    }
}

const char *fuzz_memory_folder(const char *const *names, int count) {
    const char *above = getenv("TMPDIR"), *target = fuzz_memory_file(NULL, 0);
    char path[PATH_MAX], *folder = folders[folder_count].path;
    fuzz_require(folder_count < MOST_FOLDERS, "there are few folders");
    snprintf(folder, FOLDER_NBYTES, "%.200s/fuzz-XXXXXX", above ? above : "/tmp");
    int made = mkdtemp(folder) != NULL;
    if (folder_count == 0) atexit(remove_folders);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        made = made && symlink(target, path) == 0;
    }
    folders[folder_count].names = names;
    folders[folder_count++].count = count;
    fuzz_require(made, "this test can make a folder");
    return folder;
}
