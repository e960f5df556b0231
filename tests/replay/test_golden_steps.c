/* Replayed steps against tests/golden/replay_steps.txt, line by line, up to rounding. `test_golden_steps --write FILE`
 * rewrites the lines of FILE with the current numbers. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/engine/engine.h"
#include "labs/replay/record/record.h"
#include "tests/base/test.h"
#include "tests/replay/golden_steps.h"

#define GOLDEN_FILE "tests/golden/replay_steps.txt"
#define TOLERANCE 1e-9 /* relative; for sums in a different order */

enum { AT_LEAST = 40 };

static void replay(double numbers[GOLDEN_NUMBERS], const struct golden_setting *s) {
    ls_node *node = golden_node(s);
    ls_workload *workload = golden_workload(s);
    ls_trace *trace;
    ls_timeline *timeline;
    struct ls_account *account;
    if (record_steps(&trace, workload, node, &s->options) != LS_OK) fail_msg("%s cannot be replayed", s->text);
    assert_int_equal(ls_engine_run(&timeline, trace, node), LS_OK);
    assert_int_equal(ls_account_make(&account, trace, timeline, node), LS_OK);
    golden_numbers(numbers, account);
    ls_account_free(account);
    ls_timeline_free(timeline);
    ls_trace_destroy(trace);
    golden_close(workload);
    ls_node_close(node);
}

static int differs(const struct golden_setting *s, const char *numbers, const double got[GOLDEN_NUMBERS]) {
    static const char *const names[GOLDEN_NUMBERS] = {"step",          "first computes",  "first is exposed",
                                                      "last computes", "last is exposed", "first sends"};
    for (int i = 0; i < GOLDEN_NUMBERS; i++) {
        char *end;
        double wanted = strtod(numbers, &end);
        if (end == numbers) fail_msg("%s: %d numbers, not %d", s->text, i, GOLDEN_NUMBERS);
        numbers = end;
        if (fabs(got[i] - wanted) <= TOLERANCE * fmax(fabs(wanted), 1)) continue;
        print_error("%s: %s: %.9g, not %.9g (%+.3g %%)\n", s->text, names[i], got[i], wanted,
                    100 * (got[i] / wanted - 1));
        return 1;
    }
    return 0;
}

TEST_CASE(steps_are_the_golden_ones) {
    char line[2 * GOLDEN_LINE];
    int count = 0, wrong = 0;
    FILE *file = fopen(GOLDEN_FILE, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        struct golden_setting s;
        const char *numbers;
        double got[GOLDEN_NUMBERS];
        if (line[0] == '#' || line[0] == '\n') continue;
        golden_parse(&s, line, &numbers);
        if (!numbers) fail_msg("%s has no numbers", s.text);
        replay(got, &s);
        wrong += differs(&s, numbers, got);
        count++;
    }
    fclose(file);
    if (wrong > 0) fail_msg("%d of %d steps are not the golden ones", wrong, count);
    assert_true(count >= AT_LEAST);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void write_anew(void **state) {
    const char *path = *state;
    char line[2 * GOLDEN_LINE], *text = NULL;
    size_t nbytes = 0;
    FILE *from = fopen(path, "r"), *to = open_memstream(&text, &nbytes);
    assert_true(from && to);
    while (fgets(line, sizeof line, from)) {
        struct golden_setting s;
        const char *numbers;
        double got[GOLDEN_NUMBERS];
        if (line[0] == '#' || line[0] == '\n') {
            fputs(line, to);
            continue;
        }
        golden_parse(&s, line, &numbers);
        replay(got, &s);
        fprintf(to, "%s =", s.text);
        for (int i = 0; i < GOLDEN_NUMBERS; i++) fprintf(to, " %.12g", got[i]);
        fprintf(to, "\n");
    }
    fclose(from);
    assert_int_equal(fclose(to), 0);
    assert_non_null(to = fopen(path, "w"));
    fputs(text, to);
    assert_int_equal(fclose(to), 0);
    free(text);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_the_golden_ones)};
    const struct CMUnitTest writing[] = {cmocka_unit_test_prestate(write_anew, argv[argc - 1])};
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return cmocka_run_group_tests_name("golden steps, written", writing, NULL, NULL);
    return cmocka_run_group_tests_name("golden steps", tests, NULL, NULL);
}
