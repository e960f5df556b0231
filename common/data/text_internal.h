/* Shared by the kinds of text: files (text_file.c), generated sums (sums.c). Private to common/data. */
#ifndef LS_DATA_TEXT_INTERNAL_H
#define LS_DATA_TEXT_INTERNAL_H

#include "common/data/dataset_internal.h"
#include "common/data/text.h"

struct ls_bytes {
    uint8_t *data; /* malloc's */
    size_t count;
};

/* The bytes of all files. On failure there is nothing to free. */
ls_status ls_text_read_files(struct ls_bytes *bytes, const char *files);

/* Both sets, from the bytes of each. LS_ERR_INVALID, naming the text, if one is too short for a sample. */
struct ls_text_sets {
    const char *name; /* for messages: "text:FILE" */
    const uint8_t *train, *test;
    size_t train_count, test_count;
};
ls_status ls_text_open_sets(ls_dataset **train, ls_dataset **test, const struct ls_text_sets *sets, int context);

#endif
