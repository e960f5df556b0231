/* text_file — the bytes of text files.
 *   idea  : zlib's gzread reads plain and gzipped files alike, and checks a gzip checksum at the end. The uncompressed
 *           size is not known before, so memory doubles until all of the text fits
 *   fails : a file that is not text is refused before a vocabulary is made from it: one with a zero byte (UTF-16 and
 *           most files of numbers have some), or with more than one control character in a hundred bytes (compressed
 *           data has one in ten) */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "common/base/file_kind.h"
#include "common/base/log.h"
#include "common/data/text_internal.h"

#define FIRST_ROOM ((size_t)1 << 16)
#define MOST_BYTES ((size_t)1 << 30)
enum { CONTROLS_ONE_IN = 100 };

bool ls_text_next_file(const char **files, char path[PATH_MAX]) {
    size_t length = strcspn(*files, ",");
    if (**files == '\0') return false;
    size_t kept = length < PATH_MAX ? length : PATH_MAX - 1;
    memcpy(path, *files, kept);
    path[kept] = '\0';
    *files += length + ((*files)[length] == ',');
    return true;
}

static ls_status make_room(struct ls_bytes *bytes, size_t *room, const char *path) {
    if (bytes->count < *room) return LS_OK;
    if (*room >= MOST_BYTES)
        return ls_fail(LS_ERR_FORMAT, "%s is too long; expected a text of at most %zu bytes", path, MOST_BYTES);
    size_t larger = *room > 0 ? 2 * *room : FIRST_ROOM;
    uint8_t *data = realloc(bytes->data, larger);
    if (!data) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the text of %s", path);
    bytes->data = data;
    *room = larger;
    return LS_OK;
}

/* Reports why gzread stopped, if not at the end of a complete file. */
static ls_status check_end(gzFile file, const char *path) {
    int error = Z_OK;
    const char *text = gzerror(file, &error);
    if (error == Z_OK) return LS_OK;
    if (error == Z_ERRNO) return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (error == Z_BUF_ERROR)
        return ls_fail(LS_ERR_FORMAT, "%s is truncated: the file ends within its compressed data", path);
    return ls_fail(LS_ERR_FORMAT, "%s is damaged: %s", path, text);
}

static ls_status append_stream(struct ls_bytes *bytes, size_t *room, gzFile file, const char *path) {
    for (;;) {
        ls_status status = make_room(bytes, room, path);
        if (status != LS_OK) return status;
        int got = gzread(file, bytes->data + bytes->count, (unsigned)(*room - bytes->count));
        if (got <= 0) return check_end(file, path);
        bytes->count += (size_t)got;
    }
}

static bool is_control(uint8_t byte) {
    return (byte < ' ' && byte != '\t' && byte != '\n' && byte != '\f' && byte != '\r') || byte == 0x7f;
}

static ls_status check_text(const uint8_t *bytes, size_t count, const char *path) {
    if (count == 0) return ls_fail(LS_ERR_FORMAT, "%s is empty; expected a text", path);
    const char *kind = ls_file_kind(bytes, count);
    if (kind) return ls_fail(LS_ERR_FORMAT, "%s is %s; expected a text", path, kind);
    const uint8_t *zero = memchr(bytes, 0, count);
    if (zero)
        return ls_fail(LS_ERR_FORMAT, "%s is binary: byte %zu is zero; expected a text", path, (size_t)(zero - bytes));
    size_t controls = 0;
    for (size_t i = 0; i < count; i++) controls += is_control(bytes[i]);
    if (controls <= count / CONTROLS_ONE_IN) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "%s is binary: %zu of its %zu bytes are control characters; expected a text", path,
                   controls, count);
}

static ls_status append_file(struct ls_bytes *bytes, size_t *room, const char *path) {
    struct stat entry;
    if (stat(path, &entry) != 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(entry.st_mode)) /* opening a pipe would wait for its other end */
        return ls_fail(LS_ERR_IO, "%s is not a regular file; --data text: takes text files", path);
    errno = 0;
    gzFile file = gzopen(path, "rbe");
    if (!file) return ls_fail(LS_ERR_IO, "cannot open %s: %s", path, errno ? strerror(errno) : "out of memory");
    size_t before = bytes->count;
    ls_status status = append_stream(bytes, room, file, path);
    gzclose_r(file);
    return status == LS_OK ? check_text(bytes->data + before, bytes->count - before, path) : status;
}

ls_status ls_text_read_files(struct ls_bytes *bytes, const char *files) {
    char path[PATH_MAX];
    size_t room = 0;
    *bytes = (struct ls_bytes){0};
    ls_status status = files[0] != '\0' ? LS_OK : ls_fail(LS_ERR_USAGE, "--data text: needs the name of a file");
    while (status == LS_OK && ls_text_next_file(&files, path)) status = append_file(bytes, &room, path);
    if (status == LS_OK) return LS_OK;
    free(bytes->data);
    *bytes = (struct ls_bytes){0};
    return status;
}
