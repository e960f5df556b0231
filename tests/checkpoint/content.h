/* The contents of a safetensors file, which a test can read, change and write. All functions assert. */
#ifndef TESTS_CHECKPOINT_CONTENT_H
#define TESTS_CHECKPOINT_CONTENT_H

#include "common/checkpoint/safetensors.h"

enum { CONTENT_TENSORS_MAX = 64, CONTENT_LINES_MAX = 48 };

struct content {
    ls_safetensors *file; /* owns names and data */
    ls_safetensor tensors[CONTENT_TENSORS_MAX];
    size_t count;
    ls_safetensors_text lines[CONTENT_LINES_MAX]; /* of the metadata: "format", and a checkpoint's */
    size_t line_count;
};

struct content content_open(const char *path);

/* The tensor, which must exist. */
ls_safetensor *content_find(struct content *c, const char *name);

void content_drop(struct content *c, const char *name);

/* The value of that line, which must exist. */
const char **content_line(struct content *c, const char *key);

/* Writes the contents to a file, and frees them. */
void content_close(struct content *c, const char *path);

#endif
