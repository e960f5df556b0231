/* Texts: streams of tokens, cut into samples. A token is the index of a byte in the vocabulary: the bytes that occur in
 * the whole text, sorted. A sample of a context of T tokens has a row for each of them:
 *
 *     sample i of a stream of n tokens: input tokens[i T .. i T + T), labels tokens[i T + 1 .. i T + T]
 *     floor((n - 1) / T) samples; the tokens after the last sample's are not used
 *
 * Samplers, shards and loaders treat a sample as they treat an image. A text's training and test set are read together,
 * have the same vocabulary, and share no token. */
#ifndef LS_DATA_TEXT_H
#define LS_DATA_TEXT_H

#include <limits.h>

#include "common/data/dataset.h"

/* Opens FILE[,FILE...], concatenated, each plain or gzipped. The last floor(n / 10) of the n bytes are the test set,
 * all before them the training set. Files are read whole and kept as one byte per token; at most 1 GiB. LS_ERR_IO: a
 * file is missing, unreadable or not a file; LS_ERR_FORMAT: it is empty, damaged, or not text (a zero byte, or more
 * than one byte in a hundred that is a control character other than tab, line feed, form feed and carriage return);
 * LS_ERR_INVALID: too short for a sample in each set, which takes 10 (context + 1) bytes. One line each; on failure
 * both are NULL. */
ls_status ls_dataset_open_text(ls_dataset **train, ls_dataset **test, const char *files, int context);

/* Takes the next path from the list at *files and advances *files. False: none is left. A path longer than PATH_MAX - 1
 * is truncated. */
bool ls_text_next_file(const char **files, char path[PATH_MAX]);

/* Generates sums of two numbers from 0 to 99, as "12+7=19;", concatenated: LS_SUMS_TRAINED for training and
 * LS_SUMS_HELD_OUT for the test. No training sum has the summands of a test sum, in either order. All follow from the
 * seed. LS_ERR_INVALID: the context is longer than the test set. */
enum { LS_SUMS_TRAINED = 50000, LS_SUMS_HELD_OUT = 200 };
ls_status ls_dataset_open_sums(ls_dataset **train, ls_dataset **test, uint64_t seed, int context);

/* A text's stream, one byte per token. NULL and 0: the data set is not a text. */
const uint8_t *ls_text_tokens(const ls_dataset *dataset, size_t *count);

/* The byte of each token; spec->classes entries. */
const uint8_t *ls_text_vocabulary(const ls_dataset *dataset);

/* The token of a byte; -1: it is not in the vocabulary. */
int ls_text_token(const ls_dataset *dataset, char byte);

#endif
