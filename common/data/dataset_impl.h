/* What a kind of dataset fills in; private to common/data. */
#ifndef LS_DATA_DATASET_IMPL_H
#define LS_DATA_DATASET_IMPL_H

#include "common/data/dataset.h"

/* One sample at a time: `labels` and `targets` are NULL where not wanted or not there. */
typedef struct ls_dataset_kind {
    ls_status (*read)(const ls_dataset *dataset, int64_t index, float *input, int64_t *label, float *target);
    void (*close)(ls_dataset *dataset); /* frees the dataset too; accepts a half-built one */
} ls_dataset_kind;

/* First member of each kind's struct. Constant after open. */
struct ls_dataset {
    const ls_dataset_kind *kind;
    ls_sample_spec spec;
    size_t count;
};

#endif
