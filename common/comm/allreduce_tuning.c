/* allreduce_tuning — the table that says which algorithm is the fastest (its format is told in allreduce_tuning.h).
 *   idea  : rows sorted by world size and bytes, and for each world size the place where its rows, or those of the
 *           nearest world size in the table, begin
 *   cost  : a look-up walks the few rows of one world size
 *   fails : a file is read whole and checked row by row, so a table is either complete or not there at all */
#include "common/comm/allreduce_tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/comm/comm.h"

#define LS_BAD_TABLE_CAPACITY 200
#define LS_NAME_CAPACITY 32

struct row {
    ls_allreduce_tuned is;
    const ls_allreduce_algorithm *algorithm;
};

struct ls_allreduce_tuning {
    size_t count, capacity;
    struct row *rows;
    size_t first[LS_COMM_MAX_RANKS + 1]; /* by world size: the row to begin with */
};

/* --- looking up --------------------------------------------------------------------------------------------------- */

/* The name becomes the one in the table of algorithms, which lives as long as the program. */
static struct row make_row(const ls_allreduce_tuned *tuned) {
    const ls_allreduce_algorithm *algorithm = ls_allreduce_find(tuned->algorithm);
    return (struct row){{tuned->world_size, tuned->up_to_bytes, algorithm->name}, algorithm};
}

/* Both sizes are in the table's order, so the distance first falls and then grows. */
static void index_rows(ls_allreduce_tuning *tuning) {
    for (int world_size = 0; world_size <= LS_COMM_MAX_RANKS; world_size++) {
        size_t nearest = 0;
        for (size_t i = 1; i < tuning->count; i++) {
            int distance = abs(tuning->rows[i].is.world_size - world_size);
            if (distance < abs(tuning->rows[nearest].is.world_size - world_size)) nearest = i;
        }
        tuning->first[world_size] = nearest;
    }
}

static const ls_allreduce_tuned built_in_rows[] = {
#define LS_TUNED(world_size, up_to_bytes, algorithm) {world_size, up_to_bytes, #algorithm},
#include "common/comm/allreduce_tuned.def"
#undef LS_TUNED
};

#define LS_BUILT_IN_COUNT (sizeof built_in_rows / sizeof *built_in_rows)

static struct row built_in_storage[LS_BUILT_IN_COUNT];
static ls_allreduce_tuning built_in = {.count = LS_BUILT_IN_COUNT, .rows = built_in_storage};

static void prepare_built_in(void) {
    for (size_t i = 0; i < LS_BUILT_IN_COUNT; i++) built_in.rows[i] = make_row(&built_in_rows[i]);
    index_rows(&built_in);
}

static const ls_allreduce_tuning *table_or_built_in(const ls_allreduce_tuning *tuning) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (tuning) return tuning;
    pthread_once(&once, prepare_built_in);
    return &built_in;
}

const ls_allreduce_algorithm *ls_allreduce_choose(const ls_allreduce_tuning *tuning, int world_size, size_t nbytes) {
    tuning = table_or_built_in(tuning);
    const struct row *row = &tuning->rows[tuning->first[world_size]];
    while (nbytes > row->is.up_to_bytes) row++; /* a world size's last row takes every message */
    return row->algorithm;
}

uint64_t ls_allreduce_tuning_hash(const ls_allreduce_tuning *tuning) {
    tuning = table_or_built_in(tuning);
    uint64_t hash = LS_HASH_SEED;
    for (size_t i = 0; i < tuning->count; i++) {
        const ls_allreduce_tuned *row = &tuning->rows[i].is;
        hash = ls_hash(hash, &row->world_size, sizeof row->world_size);
        hash = ls_hash(hash, &row->up_to_bytes, sizeof row->up_to_bytes);
        hash = ls_hash(hash, row->algorithm, strlen(row->algorithm) + 1);
    }
    return hash;
}

/* --- what a table must be ----------------------------------------------------------------------------------------- */

/* Whether `row` may follow `before` (NULL: it is the first); row NULL: whether the table may end here. If not, says
 * why. */
static bool may_follow(const ls_allreduce_tuned *before, const ls_allreduce_tuned *row,
                       char reason[LS_BAD_TABLE_CAPACITY]) {
    char names[LS_BAD_TABLE_CAPACITY / 2];
    bool same_group = before && row && row->world_size == before->world_size;
    reason[0] = '\0';
    if (!before && !row) {
        snprintf(reason, LS_BAD_TABLE_CAPACITY, "the table has no rows");
    } else if (before && !same_group && before->up_to_bytes != LS_TUNED_MAX) {
        snprintf(reason, LS_BAD_TABLE_CAPACITY, "the last row of world size %d must go up to LS_TUNED_MAX, not %zu",
                 before->world_size, before->up_to_bytes);
    } else if (row && (row->world_size < 2 || row->world_size > LS_COMM_MAX_RANKS)) {
        snprintf(reason, LS_BAD_TABLE_CAPACITY, "world size %d is not between 2 and %d", row->world_size,
                 LS_COMM_MAX_RANKS);
    } else if (before && row && row->world_size < before->world_size) {
        snprintf(reason, LS_BAD_TABLE_CAPACITY, "world size %d comes after %d; rows must ascend", row->world_size,
                 before->world_size);
    } else if (same_group && row->up_to_bytes <= before->up_to_bytes) {
        snprintf(reason, LS_BAD_TABLE_CAPACITY, "%zu bytes do not come after %zu; rows of a world size must ascend",
                 row->up_to_bytes, before->up_to_bytes);
    } else if (row && !ls_allreduce_find(row->algorithm)) {
        ls_allreduce_names(names, sizeof names);
        snprintf(reason, LS_BAD_TABLE_CAPACITY, "'%s' is no all-reduce algorithm; there are %s", row->algorithm, names);
    }
    return reason[0] == '\0';
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool parse_number(const char *text, size_t largest, size_t *number) {
    if (strspn(text, "0123456789") != strlen(text)) return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    *number = (size_t)value;
    return text[0] != '\0' && errno == 0 && value <= largest;
}

/* LS_TUNED(world size, bytes, algorithm), then nothing or a comment. The row's name is in `name`. */
static bool parse_row(const char *line, ls_allreduce_tuned *row, char name[LS_NAME_CAPACITY]) {
    char world_size[LS_NAME_CAPACITY], bytes[LS_NAME_CAPACITY];
    int end = 0;
    size_t number;
    (void)sscanf(line, " LS_TUNED ( %31[0-9] , %31[0-9A-Z_] , %31[^ \t,()] ) %n", world_size, bytes, name, &end);
    if (end == 0 || (line[end] != '\0' && strncmp(line + end, "//", 2) != 0)) return false;
    if (!parse_number(world_size, INT32_MAX, &number)) return false;
    *row = (ls_allreduce_tuned){.world_size = (int)number, .up_to_bytes = LS_TUNED_MAX, .algorithm = name};
    return strcmp(bytes, "LS_TUNED_MAX") == 0 || parse_number(bytes, SIZE_MAX, &row->up_to_bytes);
}

static const ls_allreduce_tuned *last_row(const ls_allreduce_tuning *tuning) {
    return tuning->count > 0 ? &tuning->rows[tuning->count - 1].is : NULL;
}

static ls_status append(ls_allreduce_tuning *tuning, const ls_allreduce_tuned *row, const char *path) {
    if (tuning->count == tuning->capacity) {
        size_t capacity = 2 * tuning->capacity + 16;
        struct row *rows = realloc(tuning->rows, capacity * sizeof *rows);
        if (!rows) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the all-reduce table %s", path);
        tuning->rows = rows;
        tuning->capacity = capacity;
    }
    tuning->rows[tuning->count++] = make_row(row);
    return LS_OK;
}

static ls_status fail_line(const char *path, int line, const char *reason) {
    return ls_fail(LS_ERR_FORMAT, "%s is not a valid all-reduce table: line %d: %s", path, line, reason);
}

static ls_status parse_line(ls_allreduce_tuning *tuning, const char *path, int number, const char *line) {
    char reason[LS_BAD_TABLE_CAPACITY], name[LS_NAME_CAPACITY];
    ls_allreduce_tuned row;
    line += strspn(line, " \t\r");
    if (*line == '\0' || strncmp(line, "//", 2) == 0) return LS_OK;
    if (!parse_row(line, &row, name))
        return fail_line(path, number, "this is not LS_TUNED(world size, bytes or LS_TUNED_MAX, algorithm)");
    if (!may_follow(last_row(tuning), &row, reason)) return fail_line(path, number, reason);
    return append(tuning, &row, path);
}

/* Cuts the text, which ends with a zero byte after nbytes, into lines. */
static ls_status parse(ls_allreduce_tuning *tuning, const char *path, char *text, size_t nbytes) {
    char reason[LS_BAD_TABLE_CAPACITY];
    int number = 0;
    for (char *line = text; line < text + nbytes;) {
        size_t length = strcspn(line, "\n");
        number++;
        if (line[length] == '\0' && line + length < text + nbytes)
            return fail_line(path, number, "a zero byte; tables are text");
        line[length] = '\0';
        ls_status status = parse_line(tuning, path, number, line);
        if (status != LS_OK) return status;
        line += length + 1;
    }
    return may_follow(last_row(tuning), NULL, reason) ? LS_OK : fail_line(path, number > 0 ? number : 1, reason);
}

/* The file's text in memory of the caller's, with a zero byte behind it. */
static ls_status read_text(const char *path, int fd, char *text, size_t *nbytes) {
    struct stat disk;
    if (fstat(fd, &disk) != 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(disk.st_mode)) return ls_fail(LS_ERR_IO, "cannot read %s: it is not a regular file", path);
    ssize_t got = 1;
    for (*nbytes = 0; got != 0 && *nbytes <= LS_TUNED_FILE_BYTES; *nbytes += (size_t)got) {
        got = read(fd, text + *nbytes, LS_TUNED_FILE_BYTES + 1 - *nbytes);
        if (got < 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    }
    if (*nbytes > LS_TUNED_FILE_BYTES)
        return ls_fail(LS_ERR_FORMAT, "%s is not a valid all-reduce table: it is larger than %zu bytes", path,
                       LS_TUNED_FILE_BYTES);
    text[*nbytes] = '\0';
    return LS_OK;
}

static ls_status load(ls_allreduce_tuning *tuning, const char *path, int fd) {
    size_t nbytes;
    char *text = malloc(LS_TUNED_FILE_BYTES + 2);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "no memory to read %s", path);
    ls_status status = read_text(path, fd, text, &nbytes);
    if (status == LS_OK) status = parse(tuning, path, text, nbytes);
    free(text);
    if (status == LS_OK) index_rows(tuning);
    return status;
}

ls_status ls_allreduce_tuning_load(ls_allreduce_tuning **out, const char *path) {
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe that nobody writes to must not block */
    if (fd < 0) return ls_fail(LS_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    ls_allreduce_tuning *tuning = calloc(1, sizeof *tuning);
    ls_status status = tuning ? load(tuning, path, fd) : ls_fail(LS_ERR_NO_MEMORY, "no memory to read %s", path);
    close(fd);
    if (status == LS_OK) {
        *out = tuning;
    } else {
        ls_allreduce_tuning_destroy(tuning);
    }
    return status;
}

void ls_allreduce_tuning_destroy(ls_allreduce_tuning *tuning) {
    if (!tuning) return;
    free(tuning->rows);
    free(tuning);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static ls_status check_rows(const char *path, const ls_allreduce_tuned *rows, size_t count) {
    char reason[LS_BAD_TABLE_CAPACITY];
    for (size_t i = 0; i <= count; i++)
        if (!may_follow(i > 0 ? &rows[i - 1] : NULL, i < count ? &rows[i] : NULL, reason))
            return ls_fail(LS_ERR_INVALID, "cannot write the all-reduce table %s: row %zu: %s", path, i + 1, reason);
    return LS_OK;
}

/* Each of its lines behind slashes. */
static void put_comment(ls_file_writer *writer, const char *comment) {
    while (*comment) {
        size_t length = strcspn(comment, "\n");
        ls_file_writer_put(writer, "// ", 3);
        ls_file_writer_put(writer, comment, length);
        ls_file_writer_put(writer, "\n", 1);
        comment += length + (comment[length] == '\n');
    }
}

static void put_row(ls_file_writer *writer, const ls_allreduce_tuned *row) {
    char line[128], bytes[LS_NAME_CAPACITY] = "LS_TUNED_MAX";
    if (row->up_to_bytes != LS_TUNED_MAX) snprintf(bytes, sizeof bytes, "%zu", row->up_to_bytes);
    int length = snprintf(line, sizeof line, "LS_TUNED(%d, %s, %s)\n", row->world_size, bytes, row->algorithm);
    ls_file_writer_put(writer, line, (size_t)length);
}

ls_status ls_allreduce_tuning_save(const char *path, const char *comment, const ls_allreduce_tuned *rows,
                                   size_t count) {
    ls_file_writer *writer;
    ls_status status = check_rows(path, rows, count);
    if (status == LS_OK) status = ls_file_writer_open(&writer, path);
    if (status != LS_OK) return status;
    put_comment(writer, comment);
    for (size_t i = 0; i < count; i++) put_row(writer, &rows[i]);
    return ls_file_writer_commit(writer);
}
