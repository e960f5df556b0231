/* Counts parts of a text. */
#ifndef TESTS_BASE_TEXT_H
#define TESTS_BASE_TEXT_H

/* The number of occurrences of a part, which is not empty, in a text. */
int count_text(const char *text, const char *part);

#endif
