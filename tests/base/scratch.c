#define _GNU_SOURCE
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

static char folder[256];
static char error[2048];

int scratch_setup(void **state) {
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ls_test.XXXXXX", parent && strlen(parent) < 200 ? parent : "/tmp");
    ls_log_capture(error, sizeof error);
    return mkdtemp(folder) ? 0 : -1;
}

int scratch_file_count(void) {
    DIR *stream = opendir(folder);
    if (!stream) return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        count++;
    }
    closedir(stream);
    return count;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

int scratch_teardown(void **state) {
    (void)state;
    ls_log_capture(NULL, 0);
    bool removed = nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0;
    if (error[0] != '\0') fprintf(stderr, "unexpected error: %s\n", error);
    return removed && error[0] == '\0' ? 0 : -1;
}

const char *scratch_folder(void) { return folder; }

const char *scratch_path(const char *name) {
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void scratch_write(const char *name, const void *data, size_t nbytes) {
    FILE *file = fopen(scratch_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

void *scratch_read(const char *path, size_t *nbytes) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long length = ftell(file);
    assert_true(length >= 0);
    rewind(file);
    char *data = malloc((size_t)length + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)length, file), length);
    fclose(file);
    data[length] = '\0';
    *nbytes = (size_t)length;
    return data;
}

char *scratch_read_text(const char *name) {
    size_t nbytes;
    return scratch_read(scratch_path(name), &nbytes);
}

void scratch_expect_error(const char *text, const char *another) {
    if (error[0] == '\0') fail_msg("no error was reported");
    if (strchr(error, '\n')) fail_msg("more than one line: %s", error);
    if (text && !strstr(error, text)) fail_msg("'%s' is not in: %s", text, error);
    if (another && !strstr(error, another)) fail_msg("'%s' is not in: %s", another, error);
    error[0] = '\0';
}
