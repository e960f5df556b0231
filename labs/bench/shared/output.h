/* The files that benches write, each as a whole or not at all: what is put into a text becomes the file. */
#ifndef LABS_BENCH_SHARED_OUTPUT_H
#define LABS_BENCH_SHARED_OUTPUT_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/named_files.h"
#include "common/base/status.h"

/* Puts results, or a part of them, as text. */
typedef ls_status bench_put(FILE *file, const void *results);

/* Lists of them end with one without a name. */
typedef struct bench_file {
    const char *name; /* in the folder of results (--out) */
    bench_put *put;   /* NULL: the file is written elsewhere */
} bench_file;

/* Checks that none of the folder's outputs is one of `files`, the others that the command line names, nor another of
 * them; makes the folder, with those above it, if need be, and checks that each can be written. Empties `files`.
 * `folder` NULL: only compares `files`. */
ls_status bench_prepare_folder(ls_named_files *files, const char *folder, const bench_file *outputs);

/* Writes those that have a `put`. */
ls_status bench_write_outputs(const char *folder, const bench_file *outputs, const void *results);
ls_status bench_write_to(const char *path, bench_put *put, const void *results);

/* Of bench_put's kind: the text of the object, which is taken. */
ls_status bench_put_json(FILE *file, cJSON *object);

/* A text that grows as its file is written to. Opening returns the file, closing the text, which the caller frees; both
 * NULL without memory. The text of a `put` is NULL after a report. */
typedef struct bench_text {
    FILE *file;
    char *text;
    size_t nbytes;
} bench_text;
FILE *bench_text_open(bench_text *text);
char *bench_text_close(bench_text *text);
char *bench_text_of(bench_put *put, const void *results);

#endif
