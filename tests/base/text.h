/* What is in a text. */
#ifndef TESTS_BASE_TEXT_H
#define TESTS_BASE_TEXT_H

/* How often a part, which is not empty, occurs in a text. */
int count_text(const char *text, const char *part);

#endif
