/* plant.awk puts the entries of a lab's bugs.txt and correct.txt into C files, or reports why it cannot and changes
 * nothing. */
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program p;

static const char code[] = "#include <stddef.h>\n"
                           "\n"
                           "int sum(const int *values, int count);\n"
                           "\n"
                           "/* The sum. */\n"
                           "int sum(const int *values, int count) {\n"
                           "    int total = 0;\n"
                           "    for (int i = 0; i < count; i++) {\n"
                           "        total += values[i];\n"
                           "    }\n"
                           "    return total;\n"
                           "}\n"
                           "\n"
                           "int half(int value) { return value / 2; }\n"
                           "\n"
                           "int twice(int value) {\n"
                           "    int total = 0;\n"
                           "    return total + 2 * value;\n"
                           "}\n";

static const char list[] = "# A comment, and entries:\n"
                           "bug three_places: sum-check\n"
                           "in sum\n"
                           "-int total = 0;\n"
                           "+    int total = 1;\n"
                           "-total += values[i];\n"
                           "-}\n"
                           "+        total -= values[i];\n"
                           "+    }\n"
                           "in half\n"
                           "-int half(int value) { return value / 2; }\n"
                           "+int half(int value) { return value / 3; }\n"
                           "in twice\n"
                           "-return total + 2 * value;\n"
                           "+    return value;\n"
                           "\n"
                           "form helper\n"
                           "above twice\n"
                           "+static int same(int value) { return value; }\n"
                           "+\n"
                           "body twice\n"
                           "+    return same(2 * value);\n"
                           "in sum\n"
                           "+    (void)0;\n"
                           "\n"
                           "bug not_there: sum-check\n"
                           "in twice\n"
                           "-int total = 0;\n"
                           "+    int total = 1;\n"
                           "in sum\n"
                           "-return 7;\n"
                           "+    return 8;\n"
                           "\n"
                           "bug no_function: sum-check\n"
                           "in thrice\n"
                           "-return 7;\n"
                           "+    return 8;\n"
                           "\n"
                           "bug in_two_places: sum-check\n"
                           "in sum\n"
                           "-}\n"
                           "+    ;\n"
                           "\n"
                           "bug in_the_next_function: sum-check\n"
                           "in half\n"
                           "-int total = 0;\n"
                           "+    int total = 1;\n"
                           "\n"
                           "bug below_one_line: sum-check\n"
                           "body half\n"
                           "+    return 0;\n"
                           "\n"
                           "bug empty: sum-check\n"
                           "\n"
                           "bug doubled: sum-check\n"
                           "in sum\n"
                           "+    (void)1;\n"
                           "bug doubled: sum-check\n"
                           "in sum\n"
                           "+    (void)2;\n";

/* Applies an entry; returns the status. */
static int apply(const char *entry) {
    scratch_write("a.c", code, strlen(code));
    scratch_write("list.txt", list, strlen(list));
    return program_run(&p, "/usr/bin/awk -v name=%s -f labs/course/plant.awk %s %s", entry, scratch_path("list.txt"),
                       scratch_path("a.c"));
}

static void expect_code(const char *text) {
    char *found = scratch_read_text("a.c");
    assert_string_equal(found, text);
    free(found);
}

TEST_IN(programs, lines_are_replaced_where_they_stand) {
    assert_int_equal(apply("three_places"), 0);
    expect_code("#include <stddef.h>\n"
                "\n"
                "int sum(const int *values, int count);\n"
                "\n"
                "/* The sum. */\n"
                "int sum(const int *values, int count) {\n"
                "    int total = 1;\n"
                "    for (int i = 0; i < count; i++) {\n"
                "        total -= values[i];\n"
                "    }\n"
                "    return total;\n"
                "}\n"
                "\n"
                "int half(int value) { return value / 3; }\n"
                "\n"
                "int twice(int value) {\n"
                "    int total = 0;\n"
                "    return value;\n"
                "}\n");
}

TEST_IN(programs, lines_go_above_a_function_and_into_its_body) {
    assert_int_equal(apply("helper"), 0);
    expect_code("#include <stddef.h>\n"
                "\n"
                "int sum(const int *values, int count);\n"
                "\n"
                "/* The sum. */\n"
                "int sum(const int *values, int count) {\n"
                "    (void)0;\n"
                "    int total = 0;\n"
                "    for (int i = 0; i < count; i++) {\n"
                "        total += values[i];\n"
                "    }\n"
                "    return total;\n"
                "}\n"
                "\n"
                "int half(int value) { return value / 2; }\n"
                "\n"
                "static int same(int value) { return value; }\n"
                "\n"
                "int twice(int value) {\n"
                "    return same(2 * value);\n"
                "}\n");
}

TEST_IN(programs, an_entry_that_does_not_apply_changes_nothing) {
    static const struct {
        const char *entry, *message;
    } tries[] = {{"not_there", "in sum the old lines stand 0 times, and should once: return 7;"},
                 {"in_two_places", "in sum the old lines stand 2 times, and should once: }"},
                 {"no_function", "there is no function thrice"},
                 {"in_the_next_function", "in half the old lines stand 0 times, and should once: int total = 0;"},
                 {"below_one_line", "half is written on one line: replace that line"},
                 {"empty", "it changes nothing"},
                 {"doubled", "it is there 2 times, and should be once"},
                 {"unknown", "it is there 0 times, and should be once"}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        assert_int_equal(apply(tries[i].entry), 1);
        assert_non_null(strstr(p.err_text, tries[i].message));
        assert_int_equal(count_lines(p.err_text), 1);
        expect_code(code);
    }
}
