/* calibrate as a user runs it, in its shortest form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "labs/replay/engine/node.h"
#include "tests/base/scratch.h"
#include "tests/programs/program.h"

static void test_the_program_writes_a_node(void **state) {
    (void)state;
    static program p;
    ls_node *node;
    const char *path = scratch_path("node.json");
    assert_int_equal(program_run(&p, "%s/calibrate --quick --quiet --out=%s", build_folder(), path), 0);
    assert_non_null(strstr(p.out_text, "measured on "));
    assert_non_null(strstr(p.out_text, "all-reduce of 1.0 MiB, 2 ranks"));
    assert_non_null(strstr(p.out_text, path));
    assert_string_equal(p.err_text, "");
    assert_int_equal(ls_node_open(&node, path), LS_OK);
    assert_true(ls_node_device_count(node) >= 2);
    const struct ls_node_collectives *collectives = ls_node_collectives(node);
    assert_int_equal(collectives->table[0].ranks, 2);
    assert_int_equal(collectives->table[0].bytes, 1024);
    assert_true(collectives->table_count >= 6);
    for (int i = 1; i < collectives->table_count; i++)
        assert_true(collectives->table[i].ranks > collectives->table[i - 1].ranks ||
                    collectives->table[i].us >= collectives->table[i - 1].us);
    ls_node_close(node);
}

static void test_wrong_usage(void **state) {
    (void)state;
    static program p;
    assert_int_equal(program_run(&p, "%s/calibrate --slow", build_folder()), 2);
    assert_int_equal(
        program_run(&p, "%s/calibrate --quick --quiet --out=%s/absent/node.json", build_folder(), scratch_folder()), 1);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "absent"));
    assert_int_equal(scratch_file_count(), 0);
}

#define PROGRAM_ROW(test) cmocka_unit_test_setup_teardown(test, programs_setup_to_compute, programs_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        PROGRAM_ROW(test_the_program_writes_a_node),
        PROGRAM_ROW(test_wrong_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
