/* bench_comm's command line: its meaning, and refused values. */
#include <stdio.h>

#include "labs/bench/comm/bench_comm.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

static comm_settings settings;

/* Up to four arguments, as in main(). */
static ls_status parse(const char *a, const char *b, const char *c, const char *d) {
    static char words[5][128];
    const char *const given[] = {"bench_comm", a, b, c, d};
    char *argv[6] = {NULL};
    int argc = 0;
    for (; argc < 5 && given[argc]; argc++) {
        snprintf(words[argc], sizeof words[argc], "%s", given[argc]);
        argv[argc] = words[argc];
    }
    bool help;
    return comm_parse(&settings, argc, argv, &help);
}

TEST_IN(scratch, test_defaults) {
    assert_int_equal(parse(NULL, NULL, NULL, NULL), LS_OK);
    int rows = 0, operations = 0, all_reduces = 0;
    while (ls_allreduce_algorithms[rows].name) rows++;
    while (comm_operations[operations].name) operations++;
    for (int c = 0; c < settings.case_count; c++) all_reduces += comm_is_all_reduce(settings.cases[c].operation);
    assert_int_equal(all_reduces, rows); /* every row of the table */
    assert_int_equal(settings.case_count, rows + operations - 1);
    assert_int_equal(comm_owner(&settings, settings.case_count - 1), all_reduces); /* the first other case */
    assert_int_equal(settings.n.count, 2);
    assert_int_equal(settings.sizes[0], 8);
    assert_int_equal(settings.sizes[settings.size_count - 1], 32 << 20);
    assert_true(settings.variants[COMM_SHM_SHARED]);
    assert_false(settings.variants[COMM_SHM_PRIVATE] || settings.variants[COMM_THREADS]);
    assert_int_equal(settings.runs, 7);
    assert_true(settings.cache_bytes > 0);
    assert_int_equal(parse("--cache=0", NULL, NULL, NULL), LS_OK);
    assert_int_equal(comm_slots_of(comm_operation_find("all_reduce"), 2, 1, &settings).count, 1);
}

TEST_IN(scratch, test_sizes) {
    assert_int_equal(comm_parse_sizes(&settings, "64K,8,1M,8"), LS_OK);
    assert_int_equal(settings.size_count, 3);
    assert_int_equal(settings.sizes[0], 8);
    assert_int_equal(settings.sizes[1], 65536);
    assert_int_equal(settings.sizes[2], 1 << 20);
    assert_int_equal(comm_parse_sizes(&settings, "1K:5K:2"), LS_OK);
    assert_int_equal(settings.size_count, 3);
    assert_int_equal(settings.sizes[2], 4096);
    assert_int_equal(comm_parse_sizes(&settings, "2G"), LS_OK);
    assert_int_equal(settings.sizes[0], (size_t)2 << 30);
    const char *const bad[] = {"",        "0",       "-8",    "8:", "8:4", "8:64:1",
                               "8,,16",   "8,16:32", "8:4G:", "1T", "8 ",  "99999999999999999999",
                               "8:16:2:4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (comm_parse_sizes(&settings, bad[i]) != LS_ERR_USAGE) fail_msg("'%s' was taken", bad[i]);
        scratch_expect_error("--sizes", bad[i]);
    }
}

TEST_IN(scratch, test_wrong_usage) {
    static const struct {
        const char *a, *b, *text;
    } lines[] = {
        {"--op=all_reduce,allreduce", NULL, "unknown operation 'allreduce'; expected all, all_reduce, broadcast"},
        {"--allreduce=ring,rang", NULL, "unknown algorithm 'rang'; expected all, direct, ring"},
        {"--n=1", NULL, "--n"},
        {"--n=2,65", NULL, "--n"},
        {"--runs=0", NULL, "--runs"},
        {"--timeout=4294967297", NULL, "--timeout is out of range; expected at most 1e+07 s"},
        {"--dtype=fp8", NULL, "--dtype"},
        {"--backend=gloo", NULL, "--backend"},
        {"--compare", "--dtype=fp16", "--compare sums fp32"},
        {"--compare", "--sizes=8,10", "10 bytes are not a multiple of an fp32"},
        {"operand", NULL, "operand"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (parse(lines[i].a, lines[i].b, NULL, NULL) != LS_ERR_USAGE) fail_msg("%s was taken", lines[i].a);
        scratch_expect_error(lines[i].text, NULL);
    }
}

TEST_IN(scratch, test_lists_keep_their_order_and_drop_doubles) {
    assert_int_equal(
        parse("--op=broadcast,all_reduce,broadcast", "--allreduce=ring,direct,ring", "--n=4,2,4", "--backend=all"),
        LS_OK);
    assert_int_equal(settings.case_count, 3);
    assert_string_equal(settings.cases[0].operation->name, "broadcast");
    assert_string_equal(settings.cases[1].algorithm, "ring");
    assert_string_equal(settings.cases[2].algorithm, "direct");
    assert_int_equal(settings.n.count, 2);
    assert_int_equal(settings.n.values[0], 2);
    assert_true(settings.variants[COMM_SHM_SHARED] && settings.variants[COMM_THREADS]);
    assert_false(settings.variants[COMM_SHM_PRIVATE]);
    /* operations other than all_reduce share a process group, each all_reduce has its own */
    assert_int_equal(comm_owner(&settings, 0), 0);
    assert_int_equal(comm_owner(&settings, 1), 1);
    assert_int_equal(comm_owner(&settings, 2), 2);
}

TEST_IN(scratch, test_flight_cost_adds_a_case_without_record) {
    assert_int_equal(parse("--flight-cost", "--op=barrier,all_reduce", "--allreduce=ring,direct", NULL), LS_OK);
    assert_int_equal(settings.case_count, 5);
    for (int c = 1; c < 5; c++) {
        assert_string_equal(settings.cases[c].algorithm, c < 3 ? "ring" : "direct");
        assert_int_equal(settings.cases[c].unrecorded, c % 2 == 0);
        assert_int_equal(comm_owner(&settings, c), c);
    }
}
