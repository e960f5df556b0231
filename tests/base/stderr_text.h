/* What is written to stderr meanwhile, by any thread. */
#ifndef TESTS_BASE_STDERR_TEXT_H
#define TESTS_BASE_STDERR_TEXT_H

/* From here on stderr goes to a file; asserts. */
void stderr_begin(void);

/* Back to the real one; what was written since, valid until the next call. */
const char *stderr_end(void);

#endif
