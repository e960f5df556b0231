/* The interface that each kind of dataset implements. Private to common/data. */
#ifndef LS_DATA_DATASET_INTERNAL_H
#define LS_DATA_DATASET_INTERNAL_H

#include "common/data/dataset.h"

/* One sample at a time: `label` (of each row) and `target` are NULL if not wanted or if the dataset has none. A kind
 * has indices or is a stream. */
typedef struct ls_dataset_kind {
    /* (with indices) Any number of threads at the same time. `alone`: no other sample is read before this one is used,
     * so that it stays in the caches. */
    ls_status (*read)(const ls_dataset *dataset, int64_t index, bool alone, void *input, int64_t *label, float *target);
    /* (stream) A pass from the first sample; on failure *out is NULL. Each cursor is one thread's. */
    ls_status (*cursor_open)(ls_cursor **out, const ls_dataset *dataset);
    /* (stream) The next sample, or *end = true; `input` NULL: the sample is skipped. Not called again after a failure
     * or the end. */
    ls_status (*cursor_next)(ls_cursor *cursor, bool *end, float *input, int64_t *label, float *target);
    void (*cursor_close)(ls_cursor *cursor); /* (stream) frees the cursor too */
    void (*close)(ls_dataset *dataset);      /* frees the dataset too; accepts a half-built one */
} ls_dataset_kind;

/* First member of each kind's struct. Constant after open. */
struct ls_dataset {
    const ls_dataset_kind *kind;
    ls_sample_spec spec;
    size_t count;            /* 0 for a stream */
    size_t promised;         /* (stream) the number of samples in its header, unverified */
    int64_t largest_label;   /* if classes were counted from the labels */
    size_t largest_at;       /* the first sample that has it */
    uint8_t vocabulary[256]; /* (text) the byte of each token; zeros after them, and for other kinds */
};

/* Adds a label to a data set whose classes are counted from its labels. */
static inline void ls_dataset_note_label(ls_dataset *dataset, int64_t label, size_t sample) {
    if (label <= dataset->largest_label && dataset->spec.classes > 0) return;
    dataset->largest_label = label;
    dataset->largest_at = sample;
    dataset->spec.classes = (int)label + 1;
}

/* First member of each stream's cursor; stream.c fills it in, kinds do not use it. */
struct ls_cursor {
    const ls_dataset *dataset;
    size_t share, shares;
    size_t turn; /* the share that the next sample belongs to */
    bool ended;
};

#endif
