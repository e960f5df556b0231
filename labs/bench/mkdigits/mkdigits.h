/* mkdigits: a data set of MNIST's size, warped from a few real digits. */
#ifndef LABS_BENCH_MKDIGITS_MKDIGITS_H
#define LABS_BENCH_MKDIGITS_MKDIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/data/dataset.h"
#include "common/data/warp.h"

enum { DIGIT_CLASSES = 10, DIGIT_SPLITS = 2 };

typedef struct mkdigits_options {
    const char *folder;           /* of the data set; created if it is missing, its parent must exist */
    const char *source;           /* a folder in MNIST's format */
    const char *list;             /* NULL, or a file for a line per sample: split,index,source,label */
    int64_t counts[DIGIT_SPLITS]; /* samples to be made, by ls_split; > 0 */
    int64_t seed;
    ls_warp_limits limits;
    bool warp_test; /* false: the test set repeats its sources as they are */
    bool force;     /* replace a data set that mkdigits made in the folder */
    bool quiet;
} mkdigits_options;

/* 60,000 and 10,000 samples of data/digits; `folder` is NULL. */
mkdigits_options mkdigits_defaults(void);

typedef struct mkdigits_result {
    struct {
        size_t source_count;             /* digits in the source's split */
        size_t per_class[DIGIT_CLASSES]; /* samples made */
    } splits[DIGIT_SPLITS];
    uint64_t hash; /* ls_hash of each sample's pixels and its label (one byte), training set first */
} mkdigits_result;

/* Makes the data set: {train,t10k}-{images-idx3,labels-idx1}-ubyte, and README.md with the sources' own note. The
 * training set is made from the source's training files alone and the test set from its t10k files alone. The same
 * options and sources give the same bytes. All files are put in place at the end; if anything fails before that, the
 * folder is unchanged. LS_ERR_INVALID: the folder already holds a data set or a README.md (without `force`). */
ls_status mkdigits_make(const mkdigits_options *options, mkdigits_result *result);

/* source_of[i]: the source digit, of 0 .. source_count-1, that sample i of the split is made from. Each source is used
 * count / source_count times, or once more. */
void mkdigits_choose_sources(int64_t *source_of, int64_t count, int64_t source_count, int64_t seed, ls_split split);

/* --- the folder (private to mkdigits) ---------------------------------------------------------------------------------- */

typedef struct digits_folder digits_folder;

/* Begins the files of a data set of height x width images. On failure *out is NULL and the folder is unchanged. */
ls_status digits_folder_open(digits_folder **out, const mkdigits_options *options, size_t height, size_t width);

/* Appends sample `index` of a split, made from digit `source`. */
ls_status digits_folder_put(digits_folder *folder, ls_split split, int64_t index, const uint8_t *pixels, uint8_t label,
                            int64_t source);

/* Puts all files in place, the note first. Frees the folder, whatever the outcome. A set that is replaced is removed
 * first, so that no reader sees a mix of two sets; if this is interrupted, files are missing. */
ls_status digits_folder_commit(digits_folder *folder);

/* Discards the new files and frees the folder. NULL is a no-op. */
void digits_folder_abort(digits_folder *folder);

#endif
