/* Shared by the two readers of a folder in MNIST's format: whole (idx_dataset.c) and as a stream (idx_stream.c).
 * Private to common/data. */
#ifndef LS_DATA_IDX_INTERNAL_H
#define LS_DATA_IDX_INTERNAL_H

#include "common/data/dataset_internal.h"
#include "common/data/idx_file.h"

typedef enum ls_idx_role { LS_IDX_IMAGES, LS_IDX_LABELS } ls_idx_role;

/* "train-images", ... */
const char *ls_idx_prefix(ls_split split, ls_idx_role role);

/* The spec of the samples of an image file with these dimensions, without classes. LS_ERR_FORMAT: too large. */
ls_status ls_idx_spec(ls_sample_spec *spec, const char *path, int ndim, const size_t dims[LS_IDX_MAX_DIMS]);

#endif
