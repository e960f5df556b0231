/* ls_dataset: samples by index. Immutable after it is opened: any number of threads may read it at the same time.
 *
 * A sample is an input of rows x channels x height x width values and its answer: a class label for each row, or, for
 * regression, a vector of target floats. An image is one row of floats. A piece of a text (text.h) has a row for each of
 * its positions: one token, an int32, whose label is the token that follows. */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct ls_dataset ls_dataset;

typedef struct ls_sample_spec {
    int channels, height, width;
    int classes;         /* labels lie in 0 .. classes-1; 0: regression, there are no labels */
    size_t target_count; /* floats of a regression target; 0 where classes > 0 */
    int rows;            /* of a sample, each with a label; 0 is 1 */
    bool tokens;         /* inputs are int32 tokens in 0 .. classes-1, which no precision changes */
} ls_sample_spec;

/* Values of one input: rows x channels x height x width, all of 4 bytes: floats, or int32 tokens. */
size_t ls_sample_input_count(const ls_sample_spec *spec);
/* Labels of one sample: one a row, 0 for regression. */
size_t ls_sample_label_count(const ls_sample_spec *spec);

typedef enum ls_split { LS_SPLIT_TRAIN, LS_SPLIT_TEST } ls_split;

/* The conversion of a pixel of 0 .. 255. Each step is rounded to float, as in torchvision's ToTensor and Normalize. */
typedef enum ls_normalize {
    LS_NORMALIZE_NONE,  /* pixel / 255 */
    LS_NORMALIZE_MNIST, /* (pixel / 255 - 0.1307) / 0.3081: MNIST's mean and standard deviation */
    LS_NORMALIZE_AUTO /* (value - mean) / deviation of its channel over the training data; value: pixel / 255, or a float */
} ls_normalize;

/* Opens a split of a folder in MNIST's format: {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, each
 * also spelled ".idx3-ubyte" and ".idx1-ubyte", each plain or gzipped (.gz); inputs 1 x height x width. Labels lie in 0 ..
 * classes-1; `classes` 0: the largest label of the split plus 1. The files are read whole and kept as bytes. LS_ERR_IO:
 * the folder or a file is missing or unreadable; LS_ERR_FORMAT: a file is malformed (magic number, size, gzip checksum,
 * counts that disagree, a label out of range). On failure *out is NULL. */
ls_status ls_dataset_open_idx(ls_dataset **out, const char *folder, ls_split split, int classes,
                              ls_normalize normalize);

/* Opens both splits of a folder: in MNIST's format, the same with a channel axis (idx4), CIFAR-10's or CIFAR-100's binary files,
 * or NumPy arrays (docs/data.md); the test samples are normalized as the training samples are. `test` NULL: not wanted.
 * *test is NULL if a folder of arrays has none. *normalize < 0 is replaced by the default (mnist for one channel of
 * MNIST's format, none for floats, else auto). LS_ERR_IO, LS_ERR_FORMAT: as above; on failure both are NULL. */
ls_status ls_dataset_open_folder(ls_dataset **train, ls_dataset **test, const char *folder, int *normalize);

/* Describes the normalization of a data set of ls_dataset_open_folder: "mnist", "auto (mean 0.4914 0.4822 0.4465,
 * deviation 0.247 0.2435 0.2616)". */
void ls_dataset_describe_normalization(const ls_dataset *dataset, char *text, size_t capacity);

#define LS_DATA_FASHION "fashion-mnist"

/* The path for --data NAME: that of an installed data set ("fashion-mnist", Debian's dataset-fashion-mnist) if there is
 * no folder of that name, else NAME itself. */
const char *ls_dataset_find(const char *name);

/* Whether a folder of any layout may have a file of that name. */
bool ls_dataset_owns_name(const char *name);

/* `count` random samples: inputs and targets standard normal, labels uniform; or tokens uniform, each row's label the next
 * row's token. A sample is a function of (seed, index)
 * alone (of sets of less than 10,000 samples, also of `count`): the same at each read, on each rank, and memory does
 * not grow with `count`. Reading a sample costs only a few times as much as copying it, so that a benchmark on random
 * data does not measure the random numbers. Values do not follow PyTorch's. */
ls_status ls_dataset_random(ls_dataset **out, uint64_t seed, size_t count, const ls_sample_spec *spec);

/* Samples in memory. */
struct ls_memory_samples {
    ls_sample_spec spec; /* of one row, no tokens */
    size_t count;
    const float *inputs;   /* count x channels x height x width */
    const int64_t *labels; /* count, where there are classes */
    const float *targets;  /* count x target_count, where there are none */
};

/* Opens them as a dataset; the arrays are borrowed until it is closed. LS_ERR_INVALID: a size that is not positive or
 * too large, an array that is missing, a label out of range, or a value that is not finite, naming the sample. */
ls_status ls_dataset_from_memory(ls_dataset **out, const struct ls_memory_samples *samples);

/* Constant for the dataset's life. */
const ls_sample_spec *ls_dataset_spec(const ls_dataset *dataset);
size_t ls_dataset_count(const ls_dataset *dataset);
/* The largest label, and the first sample that has it, if the files were opened with `classes` 0; else 0. */
int64_t ls_dataset_largest_label(const ls_dataset *dataset, size_t *sample);

/* Copies samples indices[0 .. count-1] (each in 0 .. ls_dataset_count-1; repeats are fine): inputs to count x
 * ls_sample_input_count floats or int32 tokens, labels to count x ls_sample_label_count integers, targets to count x
 * target_count floats. `labels` and `targets`
 * may be NULL, and are not touched where the dataset has none. Safe in any thread. A failure (LS_ERR_IO, LS_ERR_FORMAT)
 * names the sample; the arrays' contents are then undefined. */
ls_status ls_dataset_read(const ls_dataset *dataset, const int64_t *indices, size_t count, void *inputs,
                          int64_t *labels, float *targets);

/* --- streams: datasets of images without indices, of unknown length --------------------------------------------------- */

/* Opens a split of a folder in MNIST's format, as above, as a stream that is read from front to back during use: memory
 * does not grow with its size, and errors are reported when they are reached. The number of samples is unknown.
 * `classes` 0: the labels are read once at the beginning, up to the first error. */
ls_status ls_dataset_open_stream(ls_dataset **out, const char *folder, ls_split split, int classes,
                                 ls_normalize normalize);

/* Whether the dataset is a stream: read it by cursors; ls_dataset_count and ls_dataset_read must not be called. */
bool ls_dataset_is_stream(const ls_dataset *dataset);

/* One pass over a share of a stream: samples share, share + shares, share + 2 shares, ... So W x k cursors with shares
 * = W k together read every sample exactly once. Each cursor is for one thread. */
typedef struct ls_cursor ls_cursor;
/* 0 <= share < shares. On failure *out is NULL. */
ls_status ls_cursor_create(ls_cursor **out, const ls_dataset *dataset, size_t share, size_t shares);
/* Reads up to `count` samples; *read is how many: fewer only at the end of the stream. On an error (LS_ERR_IO,
 * LS_ERR_FORMAT; the line says where) *read is 0, and the cursor can only be destroyed. The arrays are those of
 * ls_dataset_read. */
ls_status ls_cursor_read(ls_cursor *cursor, size_t count, float *inputs, int64_t *labels, float *targets, size_t *read);
void ls_cursor_destroy(ls_cursor *cursor); /* NULL is a no-op */

/* --- describing data ----------------------------------------------------------------------------------------- */

/* "1000 samples of 1 x 28 x 28 in 10 classes (sampled hash 0123456789abcdef)", "5400 samples of 64 tokens in 65 classes
 * (...)": equal data have equal texts, and different data almost certainly different ones. The hash covers up to 32
 * samples, spread from the first to the last; in a stream, the first few, and the number of samples is that of its
 * header. NULL: no data, "none". Cost: less than a millisecond where samples are small. LS_ERR_NO_MEMORY, or a failure
 * of reading. */
ls_status ls_dataset_describe(const ls_dataset *dataset, char *text, size_t capacity);

/* NULL is a no-op. */
void ls_dataset_close(ls_dataset *dataset);

#endif
