/* Data sets whose files are kept in memory unconverted and are converted to floats sample by sample. Private to
 * common/data. Each layout of files (folder.c lists them) fills in a set's arrays; checks and conversion are the same
 * for all. */
#ifndef LS_DATA_ARRAYS_H
#define LS_DATA_ARRAYS_H

#include <limits.h>

#include "common/data/dataset_internal.h"

#define LS_MNIST_MEAN 0.1307f
#define LS_MNIST_DEVIATION 0.3081f

typedef enum ls_element { LS_ELEMENT_U8, LS_ELEMENT_I32, LS_ELEMENT_I64, LS_ELEMENT_F32 } ls_element;

/* One or several values per sample, at data, data + stride, ... */
struct ls_array {
    const uint8_t *data; /* aligned for its elements */
    size_t stride;       /* bytes from one sample to the next */
    ls_element element;
};

/* How an element becomes an input: v / 255 for bytes, v for floats; then, with MNIST's or the data's own numbers,
 * (value - mean) / deviation of its channel, each step rounded to float, as torchvision's ToTensor and Normalize do. */
struct ls_normalizer {
    ls_normalize rule;
    size_t channels, area; /* area: values of a channel, which lie together */
    float *mean, *deviation;
    float *tables; /* of bytes: a float for each of 256, channel by channel */
};

struct ls_array_set {
    ls_dataset base;
    struct ls_array inputs, answers; /* answers: labels, or floats */
    void *memory[2];                 /* the arrays' memory, from malloc */
    char inputs_path[PATH_MAX], answers_path[PATH_MAX];
    struct ls_normalizer normalizer;
};

/* A layout of files in a folder. */
struct ls_layout {
    bool (*owns)(const char *name); /* whether a file of that name may be one of its files */
    /* Reads a split: arrays, paths, count, and the spec without classes. */
    ls_status (*read)(struct ls_array_set *set, const char *folder, ls_split split);
    int classes; /* fixed by the format; 0: counted from the labels */
    /* NULL, or whether a folder has a test split, which is then optional */
    bool (*has_test)(const char *folder);
};
extern const struct ls_layout ls_idx_layout, ls_cifar10_layout, ls_cifar100_layout, ls_npy_layout;

/* Opens a split of a folder in that layout, checked and not yet normalized. `classes` 0: taken from the layout or the
 * labels. On failure *out is NULL. */
ls_status ls_array_set_open(struct ls_array_set **out, const struct ls_layout *layout, const char *folder,
                            ls_split split, int classes);

/* The first creates the normalizer of a training set, with rule `auto` from means over all its values. The second
 * creates a test set's from that of its training set. LS_ERR_NO_MEMORY. */
ls_status ls_array_set_normalize(struct ls_array_set *set, ls_normalize rule);
ls_status ls_array_set_normalize_like(struct ls_array_set *set, const struct ls_array_set *train);

/* normalizer.c. Turns a sample's elements into floats. */
void ls_normalizer_apply(const struct ls_normalizer *normalizer, ls_element element, const uint8_t *elements,
                         float *restrict input);
void ls_normalizer_free(struct ls_normalizer *normalizer);

/* Computes the float for each byte value. */
void ls_byte_values(float value_of[256], ls_normalize rule, float mean, float deviation);

/* input[i] = value_of[bytes[i]] */
void ls_convert_bytes(float *restrict input, const uint8_t *bytes, size_t count, const float value_of[256]);

#endif
