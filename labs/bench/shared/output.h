/* The files that benches write: CSV with one row per measurement, and JSON. */
#ifndef LABS_BENCH_SHARED_OUTPUT_H
#define LABS_BENCH_SHARED_OUTPUT_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/named_files.h"
#include "common/base/status.h"
#include "labs/bench/shared/machine.h"

/* Checks that none of the `count` files FOLDER/NAME (--out) is one of `files`, the others that the command line names,
 * nor another of them; makes the folder, with those above it, if need be, and checks that each can be written. Empties
 * `files`. */
ls_status bench_prepare_folder(ls_named_files *files, const char *folder, const char *const *names, int count);

/* Writes FOLDER/NAME as a whole or not at all; text NULL: only checks that it could be written. */
ls_status bench_write_file(const char *folder, const char *name, const char *text);

/* The same for a path. */
ls_status bench_write_path(const char *path, const char *text);

/* A text that grows as its file is written to. Opening returns the file, closing the text, which the caller frees; both
 * NULL without memory. */
typedef struct bench_text {
    FILE *file;
    char *text;
    size_t nbytes;
} bench_text;
FILE *bench_text_open(bench_text *text);
char *bench_text_close(bench_text *text);

/* CSV after RFC 4180: the text in quotes, with quotes doubled. */
void bench_put_text(FILE *file, const char *text);

/* A comma and the number, or nothing behind the comma where the value is not finite. */
void bench_put_number(FILE *file, double value);

/* ",cores,cpu,..." of a CSV's head, and the same columns of a row. */
void bench_put_machine_head(FILE *file);
void bench_put_machine(FILE *file, const bench_machine *machine);

/* null where the value is not finite, since JSON has no such number. */
void bench_add_number(cJSON *object, const char *name, double value);
cJSON *bench_machine_object(const bench_machine *machine);

#endif
