/* Messages about options are true: a run does what it announces at its start, and its reports of steps are correct. */
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define SMALL "--model mlp:784,32,10"

static program p;

static void expect_said(const char *text, const char *line) {
    if (!strstr(text, line)) fail_msg("this line is missing: %s\nsaid was:\n%s", line, text);
}

static void expect_run(const char *line) {
    if (program_run(&p, "%s", line) != 0) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

static const cJSON *field(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item) fail_msg("there is no %s", name);
    return item;
}

static double number(const cJSON *object, const char *name) { return cJSON_GetNumberValue(field(object, name)); }

/* --- the lines at the start --------------------------------------------------------------------------------------- */

/* data/digits has 1500 training samples. */
TEST_IN(programs, a_run_says_what_its_options_come_to) {
    static const struct {
        const char *line, *said[4];
    } runs[] = {
        {"dp_train --single --steps 1 --no-evaluate",
         {"\nbatch: 64 samples a step\n", "\nlearning rate: 0.001\n",
          "\nsamples: 1500 an epoch in 24 steps (the last of 28); 1 step in all\n"}},
        {"dp_train --devices 2 --per-device-batch 8 --accumulate 4 --lr-scale linear --warmup-steps 10 --lr-schedule "
         "cosine "
         "--lr-min 1e-5 --epochs 1 --drop-last --no-evaluate",
         {"\nbatch: 64 samples a step = 2 devices x 8 x 4 micro-batches\n",
          "\nlearning rate: 0.002 = 0.001 x 2 devices (linear), 10 steps of warm-up, then cosine to 1e-05 in 13 "
          "steps\n",
          "\nsamples: 1500 an epoch in 23 steps, 28 dropped; 23 steps in all\n"}},
        {"dp_train --devices 3 --batch-size 64 --accumulate 3 --steps 1 --no-evaluate --lr-scale sqrt --lr-schedule "
         "step",
         {"\nbatch: 64 samples a step on 3 devices in 3 micro-batches, not evenly: 6 to 8 on a device at a time\n",
          "\nlearning rate: 0.00173205081 = 0.001 x sqrt(3 devices), times 0.1 every 30 epochs\n"}},
        {"ddp_train --spawn 4 --batch-size 28 --epochs 1 --precision fp16 --init-scale 1024",
         {"\nbatch: 28 samples a step = 4 devices x 7\n",
          "\nsamples: 1500 an epoch in 54 steps (the last of 16), 375 a rank; 54 steps in all\n",
          "\nprecision: fp16, loss scale 1024, doubled after 2000 steps in a row without infinities\n",
          "\nbytes a step: each rank all-reduce 101824 (gradients; ring and direct send 2 x 3/4 of them)\n"}},
        {"ddp_train --spawn 7 --batch-size 70 --steps 2 --no-evaluate --precision bf16",
         {"\nsamples: 1500 an epoch in 22 steps (the last of 35), 215 a rank, 5 repeated; 2 steps in all\n",
          "\nprecision: bf16\n"}},
        {"ddp_train --spawn 2 --batch-size 31 --shard contiguous --steps 2 --no-evaluate",
         {"\nbatch: 31 samples a step on 2 devices, not evenly: 15 to 16 on a device at a time\n",
          "\nsamples: 1500 an epoch in 49 steps (the last of 12), at most 774 a rank; 2 steps in all\n"}},
        {"dp_train --device-ids 0,2,3,5 --batch-size 9 --steps 1 --no-evaluate", /* pieces of 3 3 3 0 */
         {"\nbatch: 9 samples a step on 4 devices, not evenly: 0 to 3 on a device at a time\n",
          "\nbytes a step: device 0 gather 120 (outputs); devices 2 to 3 scatter 9528 (inputs and output gradients), "
          "replicate "
          "101824 (parameters), gather 120 (outputs), reduce 101824 (gradients); device 5 nothing\n"}},
        {"dp_train --single --data stream:data/digits --no-shuffle --steps 2 --no-evaluate",
         {"\nsamples: a stream of unknown length; 2 steps in all\n"}},
    };
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        char line[300];
        snprintf(line, sizeof line, "%s " SMALL, runs[i].line);
        expect_run(line);
        for (size_t s = 0; s < COUNT_OF(runs[i].said) && runs[i].said[s]; s++) expect_said(p.out_text, runs[i].said[s]);
        bool alone = strstr(runs[i].line, "--single") != NULL; /* no communication */
        assert_true((strstr(p.out_text, "\nbytes a step:") == NULL) == alone);
        assert_string_equal(p.err_text, "");
    }
    expect_run("dp_train --devices 2 --quiet --steps 1 --no-evaluate --init-scale 3");
    assert_null(strstr(p.out_text, "\nbatch:")); /* suppressed by --quiet */
    assert_int_equal(count_lines(p.out_text), 3);
    assert_string_equal(p.err_text, "");
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

/* Finds "NAME NUMBER (" in the entry that begins with `who`; 0 if there is none. */
static double announced(const char *line, const char *who, const char *phase) {
    char wanted[64], name[64];
    snprintf(wanted, sizeof wanted, " %s ", who);
    const char *ends = strcmp(who, "each rank") == 0 ? "\n" : ";\n"; /* the line has one entry for ranks */
    const char *entry = strstr(line, wanted), *end = entry ? entry + strcspn(entry, ends) : NULL;
    if (!entry) fail_msg("nothing is said of %s: %s", who, line);
    snprintf(name, sizeof name, " %s ", phase);
    const char *at = strstr(entry, name);
    return at && at < end ? atof(at + strlen(name)) : 0;
}

/* All phases that moved bytes, on all devices, moved the announced number, and no others were announced. */
static void expect_announced_bytes(const char *line, bool ranks) {
    static const char *const phases[] = {"scatter", "replicate",  "broadcast", "gather",
                                         "reduce",  "all-reduce", "tensor",    "optimizer"};
    char command[512];
    size_t nbytes;
    snprintf(command, sizeof command, "%s %s --steps 12 --no-evaluate --summary %s", line,
             strstr(line, "--model") ? "" : SMALL, scratch_path("summary"));
    expect_run(command);
    const char *said = strstr(p.out_text, "\nbytes a step:");
    if (!said) fail_msg("%s does not say what travels: %s", line, p.out_text);
    char *text = scratch_read(scratch_path("summary"), &nbytes);
    cJSON *wrapper = cJSON_Parse(text);
    const cJSON *device;
    double sum = 0;
    cJSON_ArrayForEach(device, field(field(wrapper, "summary"), "device_table")) {
        char who[32];
        snprintf(who, sizeof who, ranks ? "each rank" : "device %d", (int)number(device, "device"));
        const cJSON *counted = field(device, "bytes_per_step_by_phase");
        for (size_t i = 0; i < COUNT_OF(phases); i++) {
            const cJSON *item = cJSON_GetObjectItemCaseSensitive(counted, phases[i]);
            double was = item ? item->valuedouble : 0, predicted = announced(said, who, phases[i]);
            if (!(was == predicted)) fail_msg("%s: %s of %s: %g, not %g", line, phases[i], who, was, predicted);
            sum += was;
        }
    }
    assert_true(sum > 0);
    cJSON_Delete(wrapper);
    free(text);
}

TEST_IN(programs, the_bytes_are_those_that_travel) {
    expect_announced_bytes("dp_train --devices 2", false);
    expect_announced_bytes("dp_train --devices 2 --accumulate 4 --output-device 1 --precision fp16", false);
    expect_announced_bytes("dp_train --devices 3 --accumulate 3", false);
    expect_announced_bytes("dp_train --device-ids 0,2,4,7 --batch-size 9", false); /* pieces of 3 3 3 0 */
    expect_announced_bytes("ddp_train --spawn 2 --model convnet --batch-size 8", true);
    expect_announced_bytes("ddp_train --spawn 2 --compress fp16", true);
    expect_announced_bytes("ddp_train --spawn 2 --compress topk:0.02", true);
    expect_announced_bytes(
        "ddp_train --spawn 3 --batch-size 30 --accumulate 2 --model convnet --compress topk:0.1,nofeedback", true);
    expect_announced_bytes("dp_train --single --offload optimizer", false);
    expect_announced_bytes("dp_train --devices 2 --offload optimizer", false);
    expect_announced_bytes("ddp_train --spawn 2 --offload optimizer", true);
    expect_announced_bytes("ddp_train --spawn 3 --batch-size 30 --shard-state 2", true);
    expect_announced_bytes("ddp_train --spawn 4 --tensor 2 --model convnet --batch-size 12", true);
    expect_announced_bytes("ddp_train --spawn 4 --tensor 2 --accumulate 2 --model gpt:3,2,16,8 --data sums:1 "
                           "--sequence-parallel --checkpoint-activations 2 --batch-size 24",
                           true);
    expect_announced_bytes("ddp_train --spawn 2 --compress bf16 --accumulate 2 --model convnet --batch-size 8", true);
}

/* --- each step ---------------------------------------------------------------------------------------------------- */

/* The scale is so large that the first gradients are infinite, until it has been halved often enough: the lines, the
 * summary and the last lines agree on the skipped steps, and on the learning rate meanwhile. */
static void expect_skipped_steps(const char *program_line) {
    enum { STEPS = 24, WARMUP = 4 };
    char command[512];
    size_t nbytes;
    double scale = ldexp(1, 30), warm = 0.001 * 2;
    int skipped = 0;
    snprintf(command, sizeof command,
             "%s " SMALL
             " --steps %d --precision fp16 --init-scale 1073741824 --lr-scale linear --warmup-steps %d --no-evaluate "
             "--metrics %s",
             program_line, STEPS, WARMUP, scratch_path("metrics"));
    expect_run(command);
    char *text = scratch_read(scratch_path("metrics"), &nbytes), *rest = text;
    for (int step = 0; step < STEPS; step++) {
        cJSON *line = cJSON_Parse(strsep(&rest, "\n"));
        assert_non_null(line);
        bool left_out = cJSON_IsTrue(field(line, "skipped"));
        assert_true((float)number(line, "loss_scale") == (float)scale); /* with all digits of a float */
        double rate = step < WARMUP ? warm * ((step + 1) / (double)WARMUP) : warm;
        assert_true(fabs(number(line, "lr") - rate) <= 1e-8 * rate);
        const cJSON *norm = field(line, "grad_norm");
        assert_true(left_out ? cJSON_IsNull(norm) : norm->valuedouble > 0.1 && norm->valuedouble < 20);
        skipped += left_out;
        if (left_out) scale /= 2;
        assert_true(step > 0 || left_out);
        cJSON_Delete(line);
    }
    cJSON *wrapper = cJSON_Parse(rest);
    const cJSON *summary = field(wrapper, "summary");
    assert_true(skipped >= 2 && skipped < STEPS - 4);
    assert_true(number(summary, "skipped_steps") == skipped && number(summary, "loss_scale") == scale);
    assert_true(number(summary, "lr") == 0.001 && number(summary, "lr_effective") == 0.002);
    char last[128];
    snprintf(last, sizeof last, "\nloss scale %.9g at the end; %d of %d steps skipped for infinite gradients\n", scale,
             skipped, STEPS);
    expect_said(p.out_text, last);
    cJSON_Delete(wrapper);
    free(text);
}

TEST_IN(programs, each_step_says_what_became_of_it) {
    expect_skipped_steps("dp_train --devices 2");
    expect_skipped_steps("ddp_train --spawn 2");
    expect_skipped_steps("ddp_train --spawn 2 --compress fp16");
}

/* --- options without effect, and impossible ones ------------------------------------------------------------------ */

TEST_IN(programs, options_without_effect_are_noted_once) {
    static const char *const notes[] = {
        "--init-scale has no effect: ",      "--growth-interval has no effect: ",
        "--lr-min has no effect: ",          "--lr-decay has no effect: ",
        "--lr-decay-epochs has no effect: ", "--accumulate 40 is more than the 32 samples of a device in a step",
        "--prefetch has no effect: ",        "--normalize has no effect: ",
        "--allreduce has no effect: ",       "--bucket-cap-mb has no effect: ",
        "--schedule has no effect: ",
    };
    expect_run(
        "ddp_train --spawn 2 --steps 1 --no-evaluate --init-scale 4 --growth-interval 3 --lr-min 1e-4 --lr-decay "
        "0.5 --lr-decay-epochs 2 --accumulate 40 --compress fp16 --workers 0 --prefetch 2 --data random:1 --normalize "
        "none "
        "--shard-state 3 --allreduce ring --bucket-cap-mb 1 --schedule gpipe");
    for (size_t i = 0; i < COUNT_OF(notes); i++) expect_said(p.err_text, notes[i]);
    assert_int_equal(count_lines(p.err_text), COUNT_OF(notes));
    expect_run("ddp_train --steps 1 --no-evaluate --compress bf16");
    expect_said(p.err_text, "--compress bf16 only rounds the gradients: with one rank nothing is sent");
    assert_int_equal(count_lines(p.err_text), 1);
    expect_run("ddp_train --spawn 4 --steps 1 --no-evaluate --compress topk:0.25 --allreduce ring");
    expect_said(p.err_text, "--compress topk:0.25 saves no bytes with 4 ranks: ");
    expect_said(p.err_text, "--allreduce has no effect: with --compress topk lists are gathered");
    assert_int_equal(count_lines(p.err_text), 2);
    expect_run("ddp_train --spawn 4 --steps 1 --no-evaluate --compress topk:0.24");
    assert_string_equal(p.err_text, "");
    expect_run(
        "dp_train --single --steps 4 --no-evaluate --precision fp16 --init-scale 4 --growth-interval 3 --lr-schedule "
        "cosine --lr-min 1e-4 --accumulate 64");
    assert_string_equal(p.err_text, "");
    expect_run("dp_train --single --steps 1 --no-evaluate --lr-schedule step --lr-decay 0.5 --lr-decay-epochs 2");
    assert_string_equal(p.err_text, "");
}

/* One line, before anything is written or started. */
TEST_IN(programs, options_that_cannot_be_are_refused) {
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"--lr-schedule cosine --data stream:data/digits", "give --steps"},
        {"--warmup-steps 30 --steps 20", "--warmup-steps 30 exceeds the run's 20 steps"},
        {"--warmup-steps 20 --steps 20 --lr-schedule cosine", "--warmup-steps 20 leaves"},
        {"--save-every 3", "--save-every needs --save"},
        {"--save-module-prefix --save none", "--save-module-prefix needs --save-weights"},
        {"--metrics same --dump-losses ./same", "--metrics and --dump-losses name the same file"},
        {"--save same --save-weights same", "--save and --save-weights name the same file"},
        {"--save-weights none/here", "none"},
        {"--accumulate 0", "--accumulate"},
        {"--clip-norm 1e-300", "the norm to clip at"},
        {"--precision fp16 --init-scale 1e300", "--init-scale"},
        {"--lr-min nan", "--lr-min"},
        {"--precision fp8", "--precision"},
    };
    static const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *line = programs[i % 2];
        program_run(&p, "%s %s", line, cases[i].line);
        if (p.status == 0 || count_lines(p.err_text) != 1 || !strstr(p.err_text, cases[i].said) || p.out_text[0])
            fail_msg("%s %s: status %d, %s%s", line, cases[i].line, p.status, p.out_text, p.err_text);
    }
    assert_int_equal(scratch_file_count(), 0);
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
