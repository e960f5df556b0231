/* Translates the texts of probes into Chinese (probe_case, and the `what` and some values of probe_see). Probes write
 * English, by which runs are compared; a text is translated when it is shown to a student.
 *
 * cases.zh.txt, in a lab's folder and in labs/course for all labs, has one rule a line, "ENGLISH | CHINESE":
 *
 *     {}, N = {}, {} floats | {1}，N = {2}，{3} 个浮点数
 *
 * {} stands for any text that is not empty, {1} to {9} for the first to the ninth of them, which are translated by the
 * same rules, except between quotation marks ("{1}"). The first rule that matches the whole text is used, the lab's
 * before those of all labs. # begins a comment. */
#ifndef LABS_COURSE_GRADE_PHRASES_H
#define LABS_COURSE_GRADE_PHRASES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

typedef struct phrases phrases;

/* Reads the rules for the lab in `folder` ("labs/03-allreduce"); a file that does not exist has none. LS_ERR_INVALID names
 * the line. *out: NULL after a failure. phrases_close(NULL) does nothing. */
ls_status phrases_open(phrases **out, const char *folder);
void phrases_close(phrases *p);

/* Writes the Chinese of text[0 .. length - 1] to out, terminated, and cut at the end of a character if it does not fit.
 * False: no rule matches, and the text is copied. `p` may be NULL: no rules. */
bool phrases_translate(const phrases *p, char *out, size_t capacity, const char *text, size_t length);

#endif
