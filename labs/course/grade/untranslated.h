/* Finds a probe's texts without a Chinese translation (phrases.h), for `make course-check`. */
#ifndef LABS_COURSE_GRADE_UNTRANSLATED_H
#define LABS_COURSE_GRADE_UNTRANSLATED_H

#include <stdint.h>

#include "common/base/status.h"
#include "labs/course/grade/lab.h"
#include "labs/course/grade/phrases.h"

/* Runs every check of the lab with the probe and prints to stdout each case and each observation's name whose Chinese
 * still has English: a text with a word of three letters that no rule matches, or a translation with two English words
 * in a row. A text may be printed more than once. LS_ERR_INVALID: at least one was printed. */
ls_status untranslated_print(const lab *l, const phrases *rules, const char *probe, int64_t seed);

#endif
