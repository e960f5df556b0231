/* The programs of the course's first labs: hello's ranks as threads and as processes, and who_gets's lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/programs/program.h"

static program p;

static void expect_error(const char *text) {
    if (!strstr(p.err_text, text)) fail_msg("'%s' is not in\n%s", text, p.err_text);
}

/* --- hello ----------------------------------------------------------------------------------------------------------- */

static const char hello_of_3[] = "letter      rank 0 of 3: 7, signed by 3, who add up to 3; 1 sent, 1 received\n"
                                 "letter      rank 1 of 3: 7, signed by 2, who add up to 1; 1 sent, 1 received\n"
                                 "letter      rank 2 of 3: 7, signed by 3, who add up to 3; 1 sent, 1 received\n"
                                 "broadcast   rank 0 of 3: 7; 2 sent, 0 received\n"
                                 "broadcast   rank 1 of 3: 7; 0 sent, 1 received\n"
                                 "broadcast   rank 2 of 3: 7; 0 sent, 1 received\n"
                                 "all_reduce  rank 0 of 3: 3; 2 sent, 2 received\n"
                                 "all_reduce  rank 1 of 3: 3; 2 sent, 2 received\n"
                                 "all_reduce  rank 2 of 3: 3; 2 sent, 2 received\n"
                                 "all_gather  rank 0 of 3: 0 1 2; 2 sent, 2 received\n"
                                 "all_gather  rank 1 of 3: 0 1 2; 2 sent, 2 received\n"
                                 "all_gather  rank 2 of 3: 0 1 2; 2 sent, 2 received\n";

static void threads_and_processes_say_the_same(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "hello --threads 3 --word 7"), 0);
    assert_string_equal(p.out_text, hello_of_3);
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 3 hello --word 7"), 0);
    assert_string_equal(p.out_text, hello_of_3);
    for (int seed = 0; seed < 3; seed++) {
        assert_int_equal(program_run(&p, "LS_CPU_STREAMS=shuffle:%d hello --threads 3 --word 7", seed), 0);
        assert_string_equal(p.out_text, hello_of_3);
    }
}

static void a_mismatch_names_two_ranks_and_what_they_run(void **state) {
    (void)state;
    static const char *const starts[] = {"hello --threads 3", "ddprun --nproc-per-node 3 hello"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(program_run(&p, "%s --mismatch count", starts[i]), 1);
        expect_error("rank 2 runs all_reduce (sum) of 2 int64 elements");
        expect_error("rank 0 runs all_reduce (sum) of 1 int64 elements");
        assert_int_equal(program_run(&p, "%s --mismatch collective", starts[i]), 1);
        expect_error("rank 2 runs broadcast of 1 int64 elements");
        assert_null(strstr(p.out_text, "all_reduce"));
    }
}

/* The trap of lab 01. */
static void in_a_world_of_one_nobody_disagrees(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "hello --mismatch count"), 0);
    program_expect_text(&p, "letter      rank 0 of 1: 42, signed by 1, who add up to 0; 0 sent, 0 received\n");
    program_expect_text(&p, "all_reduce  rank 0 of 1: 0; 0 sent, 0 received\n");
}

static void hello_refuses(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "RANK=1 hello"), 1);
    expect_error("the environment has RANK but not WORLD_SIZE");
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 2 hello --threads 2"), 2);
    expect_error("ddprun has started 2 copies of this program");
    assert_int_equal(program_run(&p, "hello --threads 65"), 2);
    assert_int_equal(program_run(&p, "STREAMS=full hello --threads 2"), 1);
    assert_int_equal(program_run(&p,
                                 "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
                                 "MASTER_PORT=%d hello --timeout 0.2",
                                 free_port()),
                     3);
}

/* --- who_gets -------------------------------------------------------------------------------------------------------- */

static void who_gets_shows_chunks_and_lists(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "who_gets --samples 9 --ranks 4 --epochs 0"), 0);
    assert_string_equal(p.out_text, "chunk: 9 samples on 4 devices: 3 3 3 0\n");
    assert_int_equal(program_run(&p, "who_gets --epochs 2"), 0); /* test_sampler.c has PyTorch's lists */
    program_expect_text(&p, "sampler: epoch 0\n  rank 0: 19 15 4 9 5 18\n  rank 1: 8 20 7 10 17 0\n");
    program_expect_text(&p, "  rank 3: 3 14 13 12 2 19\n  seen more than once: 1; never: 0\nsampler: epoch 1\n");
    assert_null(strstr(strstr(p.out_text, "epoch 1"), "  rank 0: 19 15 4 9 5 18\n"));
    assert_int_equal(program_run(&p, "who_gets --epochs 2 --no-set-epoch"), 0);
    assert_non_null(strstr(strstr(p.out_text, "epoch 1"), "  rank 0: 19 15 4 9 5 18\n"));
    assert_int_equal(program_run(&p, "who_gets --drop-last"), 0);
    program_expect_text(&p, "  rank 3: 3 14 13 12 2\n  seen more than once: 0; never: 3\n");
    assert_int_equal(program_run(&p, "who_gets --samples 3 --ranks 2 --no-shuffle --uneven"), 0);
    assert_string_equal(p.out_text,
                        "chunk: 3 samples on 2 devices: 2 1\n"
                        "sampler: epoch 0\n  rank 0: 0 2\n  rank 1: 1\n  seen more than once: 0; never: 0\n");
    assert_int_equal(program_run(&p, "who_gets --ranks 65"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(threads_and_processes_say_the_same, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(a_mismatch_names_two_ranks_and_what_they_run, programs_setup,
                                        programs_teardown),
        cmocka_unit_test_setup_teardown(in_a_world_of_one_nobody_disagrees, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(hello_refuses, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(who_gets_shows_chunks_and_lists, programs_setup, programs_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
