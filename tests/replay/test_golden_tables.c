/* The rows of tables 1, 2 and 5 that are computed only from files, against tests/golden/replay_tables.csv, which
 * tests/golden/replay_golden.sh writes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define GOLDEN_FILE "tests/golden/replay_tables.csv"
#define TOLERANCE 3e-9 /* relative: the files have nine digits */

enum { LINE = 1000, AT_LEAST = 100 };

/* The beginning of the number in column "ours", after two texts and two numbers. */
static const char *ours(const char *line) {
    const char *at = line;
    for (int commas = 0, quoted = 0; *at && commas < 4; at++) {
        if (*at == '"') quoted = !quoted;
        commas += *at == ',' && !quoted;
    }
    return at;
}

/* The next row that is not measured; false at the end of the file. */
static bool next_row(FILE *file, char row[LINE]) {
    while (fgets(row, LINE, file))
        if (!strstr(row, ",\"measured: ")) return true;
    return false;
}

static int differs(const char *wanted, const char *got) {
    const char *end = ours(wanted);
    if (strncmp(wanted, got, (size_t)(end - wanted)) != 0) {
        print_error("a row is\n%sbut shall be\n%s", got, wanted);
        return 1;
    }
    char *after_wanted, *after_got;
    double a = strtod(end, &after_wanted), b = strtod(ours(got), &after_got);
    bool empty = after_wanted == end && after_got == ours(got);
    if (empty || fabs(a - b) <= TOLERANCE * fmax(fabs(a), fabs(b))) return 0;
    print_error("%.*s: %.9g, not %.9g\n", (int)(end - wanted), wanted, b, a);
    return 1;
}

TEST_IN(programs, rows_are_the_golden_ones) {
    static program p;
    char path[1000], wanted[LINE], got[LINE];
    int count = 0, wrong = 0;
    program_run(&p, "%s/tables --tables=1,2,5 --out=%s", build_folder(), scratch_path("tables"));
    if (p.status != 0) fail_msg("tables: %s", p.err_text);
    snprintf(path, sizeof path, "%s/tables.csv", scratch_path("tables"));
    FILE *golden = fopen(GOLDEN_FILE, "r"), *made = fopen(path, "r");
    assert_true(golden && made && fgets(wanted, LINE, golden) && fgets(got, LINE, made));
    while (fgets(wanted, LINE, golden) && next_row(made, got)) {
        wrong += differs(wanted, got);
        count++;
    }
    bool both_end = feof(golden) && !next_row(made, got);
    fclose(golden);
    fclose(made);
    if (wrong > 0) fail_msg("%d of %d rows are not the golden ones", wrong, count);
    assert_true(both_end && count >= AT_LEAST);
}
