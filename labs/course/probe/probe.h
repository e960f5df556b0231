/* A lab's probe: a program that calls what the student has written, in many small cases, and writes down what it saw.
 *
 * It knows no right answers. It is linked twice, with the student's file and with the product's, and run with the same
 * seed; build/grade compares what the two saw, line by line. The first line that differs is the smallest failing case,
 * so a check goes from small cases to large ones.
 *
 *     static void check_sum(probe *p) {
 *         for (int n = 2; n <= 5; n++) {
 *             probe_case(p, "%d ranks", n);
 *             ... run it ...
 *             probe_see_floats(p, "rank 0's sum", values, count);
 *         }
 *     }
 *     int main(int argc, char **argv) {
 *         static const probe_check checks[] = {{"sum", check_sum}, {NULL, NULL}};
 *         return probe_main(argc, argv, checks);
 *     }
 *
 * Bits, counts and order are observed, never times. Inputs are drawn from the seed, which the grader draws again for
 * each run. Where only orders and counts are seen they may be the same for every seed, so student code must not be able
 * to write down anything itself.
 *
 * The student's code runs confined: no new processes, no writing but to stdout and stderr, no signals to
 * others (confine.h). One thread at a time calls these functions. */
#ifndef LABS_COURSE_PROBE_PROBE_H
#define LABS_COURSE_PROBE_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/log.h"
#include "common/base/status.h"

typedef struct probe probe;

typedef struct probe_check {
    const char *name; /* as in lab.conf; NULL ends the table */
    void (*run)(probe *p);
} probe_check;

/* probe --check=NAME --seed=N --out=FILE. Exit status 0: the check ran to its end, whatever was seen; 1, 2 as
 * everywhere. */
int probe_main(int argc, char **argv, const probe_check *checks);

/* Begins a case, told in words that stand alone: "N = 3, 4 floats". */
void probe_case(probe *p, const char *format, ...) LS_PRINTF(2, 3);

/* What is seen in this case: `what` as "the sum on rank 1", and its value. */
void probe_see(probe *p, const char *what, const char *format, ...) LS_PRINTF(3, 4);
void probe_see_count(probe *p, const char *what, uint64_t value);

/* A number that may be up to `bound` away from the reference's, which gives the bound: rounding differs with the order of
 * operations, and no correct order is to lose points. Never print digits to be compared as text in its place: two right
 * numbers may lie on either side of where the last digit changes. Told with nine digits, so the bound is at least 1e-8 of
 * the value. */
void probe_see_near(probe *p, const char *what, double value, double bound);

/* Sees the status; if it is not LS_OK, the probe ends here: what follows would only wait for more deadlines. */
void probe_must(probe *p, const char *what, ls_status status);

/* The first 128 values in full (nine digits: all bits), four a line; the others in blocks, each with its first values and
 * a hash. */
void probe_see_floats(probe *p, const char *what, const float *values, size_t count);
void probe_see_wholes(probe *p, const char *what, const int64_t *values, size_t count);

/* The name of one of several: "rank 2's sum". In memory of the probe, until the next call. */
const char *probe_name(probe *p, const char *format, ...) LS_PRINTF(2, 3);

/* Random numbers that follow from the seed: a whole number below `bound`, and values in -1 .. 1. */
uint64_t probe_draw(probe *p, uint64_t bound);
void probe_draw_floats(probe *p, float *values, size_t count);

#endif
