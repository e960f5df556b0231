/* The files that benches write, each completely or not at all: a file's text is complete before it is written. */
#ifndef LABS_BENCH_SHARED_OUTPUT_H
#define LABS_BENCH_SHARED_OUTPUT_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/named_files.h"
#include "common/base/status.h"

/* Writes results, or a part of them, as text. */
typedef ls_status bench_put(FILE *file, const void *results);

/* Lists of them end with one without a name. */
typedef struct bench_file {
    const char *name; /* in the folder of results (--out) */
    bench_put *put;   /* NULL: the file is written elsewhere */
} bench_file;

/* Checks that the folder's outputs differ from one another and from `files`, the others that the command line names;
 * creates the folder, and those above it, if necessary, and checks that each output can be written. Empties `files`.
 * `folder` NULL: only compares `files`. */
ls_status bench_prepare_folder(ls_named_files *files, const char *folder, const bench_file *outputs);

/* Writes those that have a `put`. */
ls_status bench_write_outputs(const char *folder, const bench_file *outputs, const void *results);
ls_status bench_write_to(const char *path, bench_put *put, const void *results);

/* A helper for functions of type bench_put: writes the object's text, and takes ownership of the object. */
ls_status bench_put_json(FILE *file, cJSON *object);

/* A text that grows as its file is written to. Opening returns the file, closing the text, which the caller frees; both
 * are NULL if memory runs out. The text of a `put` is NULL after a reported failure. */
typedef struct bench_text {
    FILE *file;
    char *text;
    size_t nbytes;
} bench_text;
FILE *bench_text_open(bench_text *text);
char *bench_text_close(bench_text *text);
char *bench_text_of(bench_put *put, const void *results);

#endif
