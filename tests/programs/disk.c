#define _GNU_SOURCE
#include "tests/programs/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

const char *disk_mount(const char *name, const char *size) {
    static char path[600];
    snprintf(path, sizeof path, "%s", scratch_path(name));
    assert_int_equal(mkdir(path, 0755), 0);
    bool mounted = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                   mount("none", path, "tmpfs", 0, size) == 0;
    if (!mounted) {
        print_message("skip: this process may not mount a file system\n");
        skip();
    }
    return path;
}

void disk_make_read_only(const char *path) {
    double until_us = ls_now_us() + 30e6;
    while (mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0) {
        assert_int_equal(errno, EBUSY);
        assert_true(ls_now_us() < until_us);
    }
}

void disk_fill(const char *path) {
    char filler[640], bytes[4096];
    snprintf(filler, sizeof filler, "%s/filler", path);
    memset(bytes, 'x', sizeof bytes);
    int fd = open(filler, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, bytes, sizeof bytes) > 0) continue;
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

void disk_unmount(const char *path) { assert_int_equal(umount2(path, MNT_DETACH), 0); }
