/* A lab's probe: a program that calls the student's functions in many small cases, and writes observations.
 *
 * It does not know the right answers. It is linked twice, with the student's file and with the product's, and run with
 * the same seed; build/grade compares the two programs' observations, line by line. The first line that differs is the
 * smallest failing case, so a check goes from small cases to large ones.
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
 * each run. Orders and counts may be the same for every seed, so student code must not be able to write observations
 * itself.
 *
 * The student's code runs confined: no new processes, no writing except to stdout and stderr, no signals to others
 * (confine.h). One thread at a time calls these functions. */
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

/* probe --check=NAME --seed=N --out=FILE. Exit status 0: the check ran to its end, whatever the observations; 1 and 2
 * as in all programs. */
int probe_main(int argc, char **argv, const probe_check *checks);

/* Begins a case. Its name must be clear by itself: "N = 3, 4 floats". */
void probe_case(probe *p, const char *format, ...) LS_PRINTF(2, 3);

/* Writes an observation of this case: its name, as "the sum on rank 1", and its value. */
void probe_see(probe *p, const char *what, const char *format, ...) LS_PRINTF(3, 4);
void probe_see_count(probe *p, const char *what, uint64_t value);

/* A number that may be up to `bound` away from the reference's, which gives the bound: rounding differs with the order
 * of operations, and every correct order gets full points. Never observe digits as text instead: two right numbers may
 * round to different digits. Printed with nine digits, so the bound must be at least 1e-8 of the value. */
void probe_see_near(probe *p, const char *what, double value, double bound);

/* Observes the status; if it is not LS_OK, the probe ends here: later cases would only wait for more deadlines. */
void probe_must(probe *p, const char *what, ls_status status);

/* The first 128 values in full (nine digits: all bits), four a line; the others in blocks, each with its first values and
 * a hash. */
void probe_see_floats(probe *p, const char *what, const float *values, size_t count);
void probe_see_wholes(probe *p, const char *what, const int64_t *values, size_t count);

/* Formats the name of one of several values: "rank 2's sum". Owned by the probe, valid until the next call. */
const char *probe_name(probe *p, const char *format, ...) LS_PRINTF(2, 3);

/* Random numbers that follow from the seed: a whole number below `bound`, and values in -1 .. 1. */
uint64_t probe_draw(probe *p, uint64_t bound);
void probe_draw_floats(probe *p, float *values, size_t count);

#endif
