/* text_file — the bytes of text files.
 *   idea  : the uncompressed size of a gzipped file is not known before, so memory doubles until all of the text fits
 *   fails : a file that is not text is refused before a vocabulary is made from it: one with a zero byte (UTF-16 and
 *           most files of numbers have some), or with more than one control character in a hundred bytes (compressed
 *           data has one in ten) */
#include <stdlib.h>
#include <string.h>

#include "common/base/file_kind.h"
#include "common/base/log.h"
#include "common/data/packed.h"
#include "common/data/text_internal.h"

#define FIRST_ROOM (1u << 16)
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

static ls_status append_stream(struct ls_bytes *bytes, size_t *room, ls_packed *file) {
    for (size_t got = 1; got > 0; bytes->count += got) {
        ls_status status = make_room(bytes, room, file->path);
        if (status == LS_OK) status = ls_packed_read(file, bytes->data + bytes->count, *room - bytes->count, &got);
        if (status != LS_OK) return status;
    }
    return ls_packed_check_end(file);
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

static ls_status append_file(struct ls_bytes *bytes, size_t *room, ls_packed *file) {
    ls_status status = ls_packed_open(file, FIRST_ROOM);
    if (status != LS_OK) return status;
    size_t before = bytes->count;
    status = append_stream(bytes, room, file);
    ls_packed_close(file);
    return status == LS_OK ? check_text(bytes->data + before, bytes->count - before, file->path) : status;
}

ls_status ls_text_read_files(struct ls_bytes *bytes, const char *files) {
    ls_packed file;
    size_t room = 0;
    *bytes = (struct ls_bytes){0};
    ls_status status = files[0] != '\0' ? LS_OK : ls_fail(LS_ERR_USAGE, "--data text: needs the name of a file");
    while (status == LS_OK && ls_text_next_file(&files, file.path)) status = append_file(bytes, &room, &file);
    if (status == LS_OK) return LS_OK;
    free(bytes->data);
    *bytes = (struct ls_bytes){0};
    return status;
}
