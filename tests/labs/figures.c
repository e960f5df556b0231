#include "tests/labs/figures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

const bench_machine example_machine = {.cpu = "A \"fast\" CPU, really",
                                       .system = "Linux 6",
                                       .compiler = "gcc 12",
                                       .onednn = "2.6.3",
                                       .commit = "abc",
                                       .date = "2026-01-02T03:04:05Z",
                                       .cores = 2,
                                       .load = 0.5};

void expect_near(double value, double expected) {
    if (!(fabs(value - expected) < 1e-12 * (1 + fabs(expected)))) fail_msg("%.17g is not %.17g", value, expected);
}

/* Copies one field (to NULL: none) and counts all of them. */
static int scan(char *field, const char *line, int wanted) {
    int index = 0, length = 0;
    bool quoted = false;
    for (; *line && *line != '\n'; line++) {
        if (*line == '"') quoted = !quoted;
        if (*line == ',' && !quoted) {
            index++;
        } else if (field && index == wanted && length < CSV_FIELD_CAPACITY - 1) {
            field[length++] = *line;
        }
    }
    if (field) field[length] = '\0';
    return index + 1;
}

void csv_field(char field[CSV_FIELD_CAPACITY], const char *line, int index) { scan(field, line, index); }

int csv_fields(const char *line) { return scan(NULL, line, 0); }
