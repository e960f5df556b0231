/* Captures the text that any thread writes to stderr. */
#ifndef TESTS_BASE_STDERR_TEXT_H
#define TESTS_BASE_STDERR_TEXT_H

/* Redirects stderr to a file; asserts. */
void stderr_begin(void);

/* Restores stderr. Returns the text written since stderr_begin, valid until the next call. */
const char *stderr_end(void);

#endif
