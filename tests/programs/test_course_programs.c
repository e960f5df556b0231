/* The programs of the course's labs: hello's ranks as threads and as processes, who_gets's lists, who_holds's
 * prediction and count, the ways of who_hangs, and the counts of visits. */
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
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

TEST_IN(programs, threads_and_processes_say_the_same) {
    assert_int_equal(program_run(&p, "hello --threads 3 --word 7"), 0);
    assert_string_equal(p.out_text, hello_of_3);
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 3 hello --word 7"), 0);
    assert_string_equal(p.out_text, hello_of_3);
    for (int seed = 0; seed < 3; seed++) {
        assert_int_equal(program_run(&p, "LS_CPU_STREAMS=shuffle:%d hello --threads 3 --word 7", seed), 0);
        assert_string_equal(p.out_text, hello_of_3);
    }
}

TEST_IN(programs, a_mismatch_names_two_ranks_and_what_they_run) {
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
TEST_IN(programs, in_a_world_of_one_nobody_disagrees) {
    assert_int_equal(program_run(&p, "hello --mismatch count"), 0);
    program_expect_text(&p, "letter      rank 0 of 1: 42, signed by 1, who add up to 0; 0 sent, 0 received\n");
    program_expect_text(&p, "all_reduce  rank 0 of 1: 0; 0 sent, 0 received\n");
}

TEST_IN(programs, hello_refuses) {
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

TEST_IN(programs, who_gets_shows_chunks_and_lists) {
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

/* --- who_holds ------------------------------------------------------------------------------------------------------- */

static const char agree[] = "the prediction and the count agree, to the byte\n";

TEST_IN(programs, who_holds_predicts_what_it_counts) {
    static const char *const models[] = {"mlp", "convnet", "wide", "deep", "wide:64,128,64"};
    static const char *const scenes[] = {"--mode single",           "--mode dp --devices 1",  "--mode dp --devices 3",
                                         "--mode dp --devices 8",   "--mode ddp --devices 1", "--mode ddp --devices 3",
                                         "--mode ddp --devices 13", "--mode dp --devices 13"};
    static const char *const optimizers[] = {"sgd", "momentum", "adam", "adamw"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        for (size_t s = 0; s < sizeof scenes / sizeof *scenes;
             s++) { /* 13 samples: few devices get as many as another */
            assert_int_equal(program_run(&p, "who_holds --model %s %s --optimizer %s --batch 13", models[m], scenes[s],
                                         optimizers[(m + s) % 4]),
                             0);
            program_expect_text(&p, agree);
        }
    }
}

/* With Adam DataParallel's device 0 holds the bytes of the parameters 1 + 4 + 2 times, the others twice.
 * test_meta_programs.c has the figures of training programs. */
TEST_IN(programs, who_holds_shows_what_is_held) {
    static const char line[] = "who_holds --devices 4 --model mlp:784,27000,27000,27000,10";
    assert_int_equal(program_run(&p, "%s", line), 0);
    program_expect_text(&p, "     0  gradient         23672304640  23672304640  =   22.0 GiB\n");
    program_expect_text(&p, "     0  all              41435378992  41435378992  =   38.6 GiB\n");
    program_expect_text(&p, "1 to 3  all              11844843776  11844843776  =   11.0 GiB\n");
    program_expect_text(&p, agree);
    assert_int_equal(program_run(&p, "%s --mode ddp --optimizer sgd", line), 0);
    program_expect_text(&p, "0 to 3  bucket       5918076160   5918076160  =   5.5 GiB\n");
    program_expect_text(&p, agree);
}

TEST_IN(programs, who_holds_refuses) {
    static const struct {
        const char *options, *text;
    } bad[] = {{"--mode both", "'both' is unknown, choose single, dp or ddp"},
               {"--devices 65", "expected 1 to 64"},
               {"--mode single --devices 2", "--mode single has one device, not 2"},
               {"--devices 9 --batch 8", "9 devices cannot share a batch of 8 samples"},
               {"--batch 0", "expected 1 to"},
               {"--model bla", "unknown model \"bla\""},
               {"--model branched", "has parameters that no pass takes"},
               {"--optimizer lion", "choose sgd, momentum, adam or adamw"},
               {"4", "'4' is not an option"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(program_run(&p, "who_holds %s", bad[i].options), 2);
        expect_error(bad[i].text);
        assert_int_equal(count_lines(p.err_text), 1);
        assert_string_equal(p.out_text, "");
    }
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 2 who_holds"), 2);
    assert_int_equal(program_run(&p, "STREAMS=full who_holds"), 1);
}

/* --- who_hangs and visits --------------------------------------------------------------------------------------------- */

/* The first line of the table for each way. */
TEST_IN(programs, who_hangs_parts_where_it_says) {
    static const struct {
        const char *options, *line;
        int status;
    } ways[] = {
        {"skipped --rank 1", "rank 1 is at #119 all_reduce of bucket 2, the others at #119 all_reduce of bucket 1", 1},
        {"extra --rank 0", "rank 0 is at #119 barrier, the others at #119 all_reduce of bucket 1", 1},
        {"order --rank 2", "rank 2 is at #119 all_reduce of bucket 2, the others at #119 all_reduce of bucket 1", 1},
        {"count --rank 1", "rank 1 is at #119 all_reduce of bucket 1 (201 fp32, sum), the others at", 1},
        {"stopped --rank 2", "rank 2 is missing at #119 all_reduce of bucket 1 (200 fp32, sum)", 3},
        {"branched --rank 2", "rank 2 is without a match for #30 send of activations to rank 2 (80 fp32)", 3},
        {"alike --rank 1", "rank 1 is at #89 all_reduce of bucket 2, the others at #89 all_reduce of bucket 1", 3},
        {"ahead --rank 1 --steps 60", "rank 1 is behind all that the records of other ranks still hold", 3},
    };
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        program_run(&p, "LS_CPU_STREAMS=threads ddprun --nproc-per-node 3 --grace 0.1 who_hangs --way %s",
                    ways[i].options);
        if (p.status != ways[i].status) fail_msg("%s: status %d\n%s", ways[i].options, p.status, p.err_text);
        expect_error(ways[i].line);
    }
}

TEST_IN(programs, who_hangs_ends_well_without_a_way) {
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 3 who_hangs"), 0);
    assert_string_equal(p.err_text, "");
    assert_int_equal(program_run(&p, "who_hangs"), 2);
    expect_error("who_hangs needs several ranks");
    assert_int_equal(program_run(&p, "who_hangs --way none"), 2);
}

/* Weights of zero count no visits. (Runs with visits: in the tests of lost and returning ranks.) */
TEST_IN(programs, visits_counts_what_a_run_has_trained_on) {
    const char *folder = scratch_path("samples");
    assert_int_equal(program_run(&p, "visits --write %s", folder), 0);
    assert_int_equal(program_run(&p, "visits %s/zeros", scratch_path("samples")), 0);
    assert_string_equal(p.out_text, "600 samples: 0 times\n");
    assert_int_equal(
        program_run(&p,
                    "ddp_train --spawn 2 --data %s --init %s/zeros --save-weights %s/weights --epochs 2 "
                    "--model mlp:784,10 --batch-size 60 --normalize none --optimizer sgd --momentum 0 --lr 0.0001 "
                    "--no-evaluate",
                    scratch_path("samples"), scratch_path("samples"), scratch_path("samples")),
        0);
    assert_int_equal(program_run(&p, "visits %s/weights", scratch_path("samples")), 0);
    assert_string_equal(p.out_text, "600 samples: 2 times\n");
    assert_int_equal(program_run(&p, "visits"), 2);
    assert_int_equal(program_run(&p, "visits %s", scratch_path("none")), 1);
    assert_int_equal(program_run(&p, "visits --write a b"), 2);
}
