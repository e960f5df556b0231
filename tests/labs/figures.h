/* Shared by the tests of benches: comparisons of figures, an example machine and example measurements, and fields of
 * CSV. */
#ifndef TESTS_LABS_FIGURES_H
#define TESTS_LABS_FIGURES_H

#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/replay/calibrate/calibrate.h"

/* Equal up to rounding; NaN is equal to nothing. */
void expect_near(double value, double expected);

/* With two cores and a name that needs quotes. */
extern const bench_machine example_machine;

/* Runs that all took `us`; round figures of a machine with two cores. */
calibrate_spread even_spread(double us);
calibrate_figures example_figures(void);

/* bench_dp_vs_ddp's command line: up to four words after the program's name; unused ones, at the end, are NULL. */
ls_status bench_parse_words(bench_settings *settings, char *a, char *b, char *c, char *d);

enum { CSV_FIELD_CAPACITY = 200 };

/* The field `index` of a line of CSV, quotes and all; "" if there is none. The line may end in a newline, followed by
 * other lines. */
void csv_field(char field[CSV_FIELD_CAPACITY], const char *line, int index);

/* The number of fields of a line. */
int csv_fields(const char *line);

#endif
