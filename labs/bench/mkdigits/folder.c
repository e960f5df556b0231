/* The folder to which a data set is written: the files that it may contain before, those that are written, and the note
 * beside them. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/named_files.h"
#include "common/data/idx_write.h"
#include "labs/bench/mkdigits/mkdigits.h"

enum { NOTE_MOST_BYTES = 1 << 20 };

static const struct {
    const char *name; /* in the list */
    const char *images, *labels;
} splits[DIGIT_SPLITS] = {[LS_SPLIT_TRAIN] = {"train", "train-images", "train-labels"},
                          [LS_SPLIT_TEST] = {"t10k", "t10k-images", "t10k-labels"}};

/* The files that we write, and other names under which a loader would find the same file. */
static const char *const own_names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                        "t10k-labels-idx1-ubyte", "README.md"};
enum { OWN_COUNT = sizeof own_names / sizeof *own_names, OWN_DATA_COUNT = OWN_COUNT - 1 };
static const char *const other_names[] = {
    "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte", "train-images.idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz", "train-labels.idx1-ubyte", "train-labels.idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",  "t10k-images.idx3-ubyte",  "t10k-images.idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",  "t10k-labels.idx1-ubyte",  "t10k-labels.idx1-ubyte.gz"};
enum { OTHER_COUNT = sizeof other_names / sizeof *other_names };

struct digits_folder {
    const mkdigits_options *options;
    bool created;
    size_t pixel_count; /* of an image */
    ls_idx_writer *images[DIGIT_SPLITS], *labels[DIGIT_SPLITS];
    ls_file_writer *note, *list; /* list: NULL if there is none */
};

/* --- files that were there before --------------------------------------------------------------------------------- */

static bool join_path(char path[PATH_MAX], const char *folder, const char *name) {
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static bool is_there(const char *folder, const char *name) {
    char path[PATH_MAX];
    struct stat entry;
    return join_path(path, folder, name) && lstat(path, &entry) == 0;
}

static ls_status check_contents(const mkdigits_options *options) {
    const char *folder = options->folder;
    for (int i = 0; i < OTHER_COUNT; i++) {
        if (!is_there(folder, other_names[i])) continue;
        return ls_fail(LS_ERR_INVALID, "%s holds another data set (%s); name a new folder", folder, other_names[i]);
    }
    for (int i = 0; i < OWN_COUNT && !options->force; i++) {
        if (!is_there(folder, own_names[i])) continue;
        return ls_fail(LS_ERR_INVALID, "%s already holds %s; name a new folder, or replace it with --force", folder,
                       own_names[i]);
    }
    return LS_OK;
}

/* The digits that are read must not be overwritten, and the list must not be one of the data set's own files. */
static ls_status check_files(const mkdigits_options *options) {
    char note[PATH_MAX];
    ls_named_files files = {0};
    bool fits = join_path(note, options->source, "README.md");
    const ls_named_file named[] = {
        {.option = "--source", .path = options->source, .owns = ls_dataset_owns_name},
        {.option = "--source", .path = fits ? note : NULL},
        {.option = "--list", .path = options->list, .is_output = true},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) ls_named_files_add(&files, &named[i]);
    ls_named_files_add_outputs(&files, "FOLDER", options->folder, own_names, OWN_COUNT);
    return ls_named_files_check(&files);
}

static ls_status prepare(digits_folder *folder) {
    const char *path = folder->options->folder;
    ls_status status = check_files(folder->options);
    if (status != LS_OK) return status;
    folder->created = mkdir(path, 0777) == 0;
    if (!folder->created && errno != EEXIST)
        return ls_fail(LS_ERR_IO, "cannot make the folder %s: %s", path, strerror(errno));
    struct stat entry;
    if (stat(path, &entry) != 0 || !S_ISDIR(entry.st_mode))
        return ls_fail(LS_ERR_IO, "%s is not a folder; name one that the data set can go to", path);
    return check_contents(folder->options);
}

/* --- the note -------------------------------------------------------------------------------------------------------------- */

/* The sources' own note: origin, authors, licence. NULL if there is none, or it cannot be read; the caller frees it. */
static char *read_sources_note(const char *source, size_t *nbytes) {
    char path[PATH_MAX], why[PATH_MAX + 200] = "", *text = NULL;
    ls_log_sink sink = ls_log_capture(why, sizeof why);
    bool read = join_path(path, source, "README.md") && ls_file_read(path, NOTE_MOST_BYTES, &text, nbytes) == LS_OK;
    ls_log_restore(sink);
    if (!read || *nbytes == 0) {
        ls_warn("%s has no readable README.md: add the origin and licence of its digits to the new data set's", source);
    }
    return text;
}

static ls_status write_note(digits_folder *folder) {
    const mkdigits_options *o = folder->options;
    char text[2048];
    int length = snprintf(
        text, sizeof text,
        "# %" PRId64 " + %" PRId64 " warped handwritten digits\n\n"
        "Changed copies of real digits, made by lockstep's mkdigits with seed %" PRId64
        ": each a real digit shifted by up "
        "to %g pixels,\nrotated by up to %g degrees, scaled by up to %g and sheared by up to %g, with noise of "
        "standard "
        "deviation %g on its ink%s.\nThe training set is made from training digits alone, the test set from test "
        "digits alone. "
        "Warps of one digit are not\nindependent samples: a larger test set makes no finer measure of accuracy.\n\n"
        "What follows is the sources' own note. Keep it, and its attribution, with the data.\n\n---\n\n",
        o->counts[LS_SPLIT_TRAIN], o->counts[LS_SPLIT_TEST], o->seed, o->limits.shift_pixels,
        o->limits.rotation_degrees, o->limits.scale, o->limits.shear, o->limits.noise,
        o->warp_test ? "" : "; the test digits as they are");
    size_t nbytes = 0;
    char *sources_note = read_sources_note(o->source, &nbytes);
    ls_file_writer_put(folder->note, text, (size_t)length);
    ls_file_writer_put(folder->note, sources_note, nbytes);
    free(sources_note);
    return ls_file_writer_status(folder->note);
}

/* --- writing --------------------------------------------------------------------------------------------------------------- */

static ls_status open_files(digits_folder *folder, size_t height, size_t width) {
    const mkdigits_options *o = folder->options;
    ls_status status = LS_OK;
    for (int s = 0; status == LS_OK && s < DIGIT_SPLITS; s++) {
        const size_t dims[] = {(size_t)o->counts[s], height, width};
        status = ls_idx_writer_open(&folder->images[s], o->folder, splits[s].images, 3, dims);
        if (status == LS_OK) status = ls_idx_writer_open(&folder->labels[s], o->folder, splits[s].labels, 1, dims);
    }
    char path[PATH_MAX];
    if (status == LS_OK && !join_path(path, o->folder, "README.md"))
        status = ls_fail(LS_ERR_IO, "the path of %s is too long", o->folder);
    if (status == LS_OK) status = ls_file_writer_open(&folder->note, path);
    if (status == LS_OK) status = write_note(folder);
    if (status != LS_OK || !o->list) return status;
    static const char heading[] = "split,index,source,label\n";
    status = ls_file_writer_open(&folder->list, o->list);
    if (status == LS_OK) ls_file_writer_put(folder->list, heading, strlen(heading));
    return status;
}

ls_status digits_folder_open(digits_folder **out, const mkdigits_options *options, size_t height, size_t width) {
    *out = NULL;
    digits_folder *folder = calloc(1, sizeof *folder);
    if (!folder) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", options->folder);
    folder->options = options;
    folder->pixel_count = height * width;
    ls_status status = prepare(folder);
    if (status == LS_OK) status = open_files(folder, height, width);
    if (status != LS_OK) {
        digits_folder_abort(folder);
        return status;
    }
    *out = folder;
    return LS_OK;
}

ls_status digits_folder_put(digits_folder *folder, ls_split split, int64_t index, const uint8_t *pixels, uint8_t label,
                            int64_t source) {
    ls_status status = ls_idx_writer_put(folder->images[split], pixels, folder->pixel_count);
    if (status == LS_OK) status = ls_idx_writer_put(folder->labels[split], &label, 1);
    if (status != LS_OK || !folder->list) return status;
    char line[96];
    int length =
        snprintf(line, sizeof line, "%s,%" PRId64 ",%" PRId64 ",%u\n", splits[split].name, index, source, label);
    ls_file_writer_put(folder->list, line, (size_t)length);
    return ls_file_writer_status(folder->list);
}

static ls_status remove_old(const digits_folder *folder) {
    char path[PATH_MAX];
    for (int i = 0; i < OWN_DATA_COUNT; i++) {
        if (!join_path(path, folder->options->folder, own_names[i])) continue; /* then there is no file of that name */
        if (unlink(path) != 0 && errno != ENOENT)
            return ls_fail(LS_ERR_IO, "cannot replace %s: %s", path, strerror(errno));
    }
    return LS_OK;
}

/* Commits a writer if all went well before. */
static ls_status commit_data(ls_idx_writer **writer, ls_status status) {
    if (status == LS_OK) {
        status = ls_idx_writer_commit(*writer);
        *writer = NULL;
    }
    return status;
}

static ls_status commit_text(ls_file_writer **writer, ls_status status) {
    if (status == LS_OK && *writer) {
        status = ls_file_writer_commit(*writer);
        *writer = NULL;
    }
    return status;
}

ls_status digits_folder_commit(digits_folder *folder) {
    ls_status status = remove_old(folder);
    status = commit_text(&folder->note, status);
    for (int s = 0; s < DIGIT_SPLITS; s++) {
        status = commit_data(&folder->images[s], status);
        status = commit_data(&folder->labels[s], status);
    }
    status = commit_text(&folder->list, status);
    digits_folder_abort(folder);
    return status;
}

void digits_folder_abort(digits_folder *folder) {
    if (!folder) return;
    for (int s = 0; s < DIGIT_SPLITS; s++) {
        ls_idx_writer_abort(folder->images[s]);
        ls_idx_writer_abort(folder->labels[s]);
    }
    ls_file_writer_abort(folder->note);
    ls_file_writer_abort(folder->list);
    if (folder->created)
        rmdir(folder->options->folder); /* removes the folder only if it is empty: if no file was committed */
    free(folder);
}
