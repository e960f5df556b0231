/* labs/bench/claims/claims.sh: its verdicts depend only on the figures that programs print. The programs are the real
 * ones, and stand-ins that print what a test specifies. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program run;

static void claims(const char *folder, const char *parts, int status) {
    program_run(&run, "labs/bench/claims/claims.sh %s %s", folder, parts);
    if (run.status != status) fail_msg("status %d: %s%s", run.status, run.out_text, run.err_text);
}

/* The line that begins with `claim` has that verdict. */
static void expect_verdict(const char *claim, const char *verdict) {
    const char *line = strstr(run.out_text, claim);
    if (!line) fail_msg("no claim '%s' in\n%s", claim, run.out_text);
    char words[160];
    snprintf(words, sizeof words, "%.*s", (int)strcspn(line, "\n"), line);
    if (!strstr(words, verdict)) fail_msg("not %s: %s", verdict, words);
}

static void write_program(const char *name, const char *script) {
    char path[64];
    snprintf(path, sizeof path, "fake/%s", name);
    scratch_write(path, script, strlen(script));
    assert_int_equal(chmod(scratch_path(path), 0755), 0);
}

/* The output of each stand-in; the last argument of tables and replay is the folder. */
static void write_tables(const char *two, const char *four, const char *eight, const char *share) {
    char script[1024];
    snprintf(script, sizeof script,
             "#!/bin/sh\nfor to; do :; done\ncat >\"$to/tables.csv\" <<'END'\n"
             "table,mode,n,reference,ours,deviation,how\n"
             "\"2 speed-up\",\"DP, the course\",8,7.2,7.2,0,\"an, other mode\"\n"
             "\"2 speed-up\",\"DDP, the course\",2,1.9,%s,0,\"\"\n"
             "\"2 speed-up\",\"DDP, the course\",4,3.7,%s,0,\"\"\n"
             "\"2 speed-up\",\"DDP, the course\",8,7.2,%s,0,\"\"\n"
             "\"2 T_N - T1 / N, of the step\",\"DDP, the course\",8,0.1,%s,0,\"\"\nEND\n",
             two, four, eight, share);
    write_program("tables", script);
}

static void write_replay(const char *fp32_ms, const char *fp16_ms, const char *share) {
    char script[1024];
    snprintf(script, sizeof script,
             "#!/bin/sh\nms=%s\ncase $* in *fp16*) ms=%s ;; esac\nfor to; do :; done\n"
             "{ echo model,mode,n,step_ms,communication_share; echo \"net\",single,8,1,0; echo \"net\",DDP,8,$ms,%s; } "
             ">\"$to/replay.csv\"\n",
             fp32_ms, fp16_ms, share);
    write_program("replay", script);
}

/* Losses of the small batch are 0.1 and, for seed 3, 0.2. */
static void write_training(const char *kept, const char *linear) {
    char script[1024];
    snprintf(script, sizeof script,
             "#!/bin/sh\ncase $* in *linear*) loss=%s ;; *'--devices 4'*) loss=%s ;; *'--seed 3'*) loss=0.2 ;; *) "
             "loss=0.1 ;; "
             "esac\necho \"final loss $loss, weights 0\"\n",
             linear, kept);
    write_program("dp_train", script);
}

static void write_fakes(void) {
    assert_int_equal(mkdir(scratch_path("fake"), 0755), 0);
    write_tables("1.92", "3.72", "7.19", "0.09");
    write_replay("80", "50", "0.05");
    write_training("0.3", "0.15");
}

TEST_IN(programs, test_the_real_figures) {
    claims(build_folder(), "gradients replicas replays entries", 0);
    expect_verdict("DP broadcasts gradients", "refuted    measured  0 bytes of them, 814144 of parameters");
    expect_verdict("DP: all replicas", "refuted    counted   one on GPU 1: 5.5 GiB; peaks 38.6 and 11.0");
    expect_verdict("of ResNet-50", "confirmed  replayed  4.2 %");
    expect_verdict("AMP", "refuted    replayed  ResNet-50 on 8 V100: 3.35 times");
    expect_verdict("top-k: compressed / mask", "refuted    computed  0 / 0, NaN, in 99 places of 100");
    assert_int_equal(scratch_file_count(), 0);
}

TEST_IN(programs, test_other_figures_turn_the_verdicts) {
    write_fakes();
    claims(scratch_path("fake"), "speedups replays rates", 0);
    expect_verdict("DDP is 1.9, 3.7, 7.2", "confirmed  computed  its own times: 1.92, 3.72, 7.19");
    expect_verdict("DDP: communication", "confirmed  computed  its own times on 8 GPUs: 9.0 %");
    expect_verdict("of ResNet-50", "confirmed");
    expect_verdict("AMP", "confirmed  replayed  ResNet-50 on 8 V100: 1.60 times");
    expect_verdict("4 times the batch", "confirmed  measured  loss 0.15, not 0.30; before 0.10 to 0.20");
    write_tables("1.92", "3.57", "7.19", "0.11");
    write_replay("80", "39", "0.2");
    write_training("0.3", "0.21");
    claims(scratch_path("fake"), "speedups replays rates", 0);
    expect_verdict("DDP is 1.9, 3.7, 7.2", "refuted");
    expect_verdict("DDP: communication", "refuted");
    expect_verdict("of ResNet-50", "refuted");
    expect_verdict("AMP", "refuted  ");
    expect_verdict("4 times the batch", "refuted");
    write_training("0.15", "0.15"); /* the rate need not be scaled at all */
    claims(scratch_path("fake"), "rates", 0);
    expect_verdict("4 times the batch", "refuted");
}

/* A DP that sends gradients to all devices, and one that has every replica on GPU 0. */
TEST_IN(programs, test_another_dp_turns_the_verdicts) {
    write_fakes();
    write_program("dp_train",
                  "#!/bin/sh\nwhile [ $# -gt 1 ] && [ \"$1\" != --trace ]; do shift; done\nmkdir -p \"$2\"\n"
                  "for phase in replicate reduce; do\n"
                  "    echo '{\"kind\": \"copy\", \"phase\": \"'$phase'\", \"bytes\": 8, \"from\": 0, \"to\": 1, }'\n"
                  "done >\"$2/rank_0.pt.trace.json\"\n");
    claims(scratch_path("fake"), "gradients", 0);
    expect_verdict("DP broadcasts gradients", "confirmed  measured  8 bytes of them, 8 of parameters");
    write_program(
        "dp_train",
        "#!/bin/sh\nfor d in 8 0 0 0; do printf '\"peak_bytes\":{\"parameter\":%d,\"total\":%d}' $d $d; done\n");
    claims(scratch_path("fake"), "replicas", 0);
    expect_verdict("DP: all replicas", "confirmed");
}

static void expect_failure(const char *parts, const char *text) {
    claims(scratch_path("fake"), parts, 1);
    assert_non_null(strstr(run.err_text, text));
    assert_null(strstr(run.out_text, "refuted"));
}

/* No figure, a figure that is not a number, a program that fails: no verdict. */
TEST_IN(programs, test_without_a_figure_there_is_no_verdict) {
    write_fakes();
    write_tables("1.92", "nan", "7.19", "0.09");
    expect_failure("speedups", "no figure for the claim 'DDP is 1.9, 3.7, 7.2 times as fast on 2, 4, 8 GPUs'");
    write_replay("80", "50", "");
    expect_failure("replays", "no figure for the claim");
    write_training("0.3", "-nan");
    expect_failure("rates", "no figure for the claim");
    write_program("dp_train", "#!/bin/sh\necho broken >&2\nexit 1\n");
    expect_failure("rates", "dp_train failed: dp_train --devices 1");
    program_run(&run, "labs/bench/claims/claims.sh %s rates speed", build_folder());
    assert_int_equal(run.status, 2);
    assert_string_equal(run.err_text, "claims: there is no part 'speed'\n");
}
