/* Changed flags rebuild a build folder, and only the files that they affect; and tests/long leaves each feature a test
 * in `make test`. */
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

/* Each line names which of two files were compiled: one of the library, one of a test. */
TEST_IN(programs, test_other_flags_build_anew) {
    static program p;
    static const char script[] =
        "set -e\n"
        "unset CFLAGS CPPFLAGS\n"
        "compiled() {\n"
        "    MAKEFLAGS= MAKELEVEL=0 make V=1 SAN= BUILD=\"$build\" \"$@\" \"$build/obj/common/base/clock.o\" "
        "\"$build/obj/tests/base/test_chunk.o\" >\"$build.said\"\n"
        "    echo $(grep -c -e '-c common/base/clock.c' \"$build.said\") $(grep -c -e '-c tests/base/test_chunk.c' "
        "\"$build.said\")\n"
        "}\n"
        "build=$1\n"
        "compiled OPT=-O0 TEST_OPT=-O0\n"
        "compiled OPT=-O0 TEST_OPT=-O0\n"
        "compiled OPT=-O0 TEST_OPT=-O1\n"
        "compiled OPT=-O1 TEST_OPT=-O1\n"
        "export CFLAGS=-DA_FLAG\n"
        "compiled OPT=-O1 TEST_OPT=-O1\n"
        "export CFLAGS='-DA_FLAG -DA_FLAG'\n" /* as in a recursive make */
        "compiled OPT=-O1 TEST_OPT=-O1\n";
    scratch_write("compiled.sh", script, strlen(script));
    assert_int_equal(program_run(&p, "/bin/sh %s %s", scratch_path("compiled.sh"), scratch_path("build")), 0);
    assert_string_equal(p.out_text, "1 1\n0 0\n0 1\n1 1\n1 1\n0 0\n");
}

/* The test that a line of tests/long names exists, and is not itself in the list. */
TEST_IN(programs, test_what_takes_long_leaves_a_test_of_each_feature) {
    static program p;
    static const char script[] =
        "set -f\n"
        "grep '^test_' tests/long | while read -r name seconds others; do\n"
        "    [ \"$seconds\" -ge 4 ] && [ \"$others\" ] || echo \"$name: $seconds $others\"\n"
        "    for test in ${name#test_} $others; do\n"
        "        [ \"$(git ls-files -co --exclude-standard \"tests/?*/test_$test.c\" 2>/dev/null || find tests -name "
        "\"test_$test.c\")\" ] || echo \"$name: there is no test_$test\"\n"
        "    done\n"
        "    for test in $others; do ! grep -q \"^test_$test \" tests/long || echo \"$name: test_$test is long, too\"; "
        "done\n"
        "done\n";
    scratch_write("long.sh", script, strlen(script));
    assert_int_equal(program_run(&p, "/bin/sh %s", scratch_path("long.sh")), 0);
    assert_string_equal(p.out_text, "");
}
