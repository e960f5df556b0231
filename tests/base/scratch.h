/* A temporary folder per test, files in it, and the error lines that a test expects. For cmocka programs:
 *     TEST_IN(scratch, name) { ... } */
#ifndef TESTS_BASE_SCRATCH_H
#define TESTS_BASE_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Creates the folder; from here on, this thread's errors are kept for scratch_expect_error instead of printed. */
int scratch_setup(void **state);

/* Removes the folder and its contents. Fails the test if it caused an error that it did not expect. */
int scratch_teardown(void **state);

const char *scratch_folder(void);

/* FOLDER/name; valid until the fourth call after this one. */
const char *scratch_path(const char *name);

/* Writes a file into the folder, replacing an older one. */
void scratch_write(const char *name, const void *data, size_t nbytes);

/* Reads a whole file, anywhere, and appends a zero byte; free() it. */
void *scratch_read(const char *path, size_t *nbytes);

/* The text of FOLDER/name; free() it. */
char *scratch_read_text(const char *name);

/* The number of files in the folder, hidden ones included. */
int scratch_file_count(void);

/* Asserts that an error was reported since the last call, in one line that contains each of the texts (NULL: any). */
void scratch_expect_error(const char *text, const char *another);

#endif
