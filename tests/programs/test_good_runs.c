/* Runs with a valid command line: results on stdout, logs on stderr, and the files that the programs write. */
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/checkpoint/content.h"
#include "tests/programs/program.h"
#include "tests/programs/small_images.h"

#define SMALL "--model mlp:784,32,10"

/* Runs the command; stderr must stay empty. */
static void expect_success(program *p, const char *line) {
    if (program_run(p, "%s", line) != 0 || p->err_text[0] != '\0')
        fail_msg("%s: status %d, stderr: %s", line, p->status, p->err_text);
}

/* --- --help ----------------------------------------------------------------------------------------------------------- */

/* The page has a row for the option, which shows its default. */
static void expect_option(const program *page, const char *name) {
    char begin[64];
    snprintf(begin, sizeof begin, "\n  --%s", name);
    const char *row = strstr(page->out_text, begin);
    if (!row) fail_msg("--help does not list --%s", name);
    const char *next = strstr(row + 1, "\n  --"), *shown = strstr(row, "(default:");
    if (!shown || (next && shown > next)) fail_msg("--help does not show the default of --%s", name);
}

TEST_IN(programs, test_help) {
    static const char *const common[] = {"device-kind=",
                                         "model=",
                                         "data=",
                                         "normalize=",
                                         "init=",
                                         "save=",
                                         "save-every=",
                                         "resume=",
                                         "save-weights=",
                                         "save-module-prefix ",
                                         "epochs=",
                                         "steps=",
                                         "batch-size=",
                                         "per-device-batch=",
                                         "accumulate=",
                                         "resident-batches=",
                                         "[no-]shuffle ",
                                         "[no-]set-epoch ",
                                         "drop-last ",
                                         "seed=",
                                         "prefetch=",
                                         "optimizer=",
                                         "lr=",
                                         "momentum=",
                                         "nesterov ",
                                         "weight-decay=",
                                         "clip-norm=",
                                         "lr-scale=",
                                         "warmup-steps=",
                                         "lr-schedule=",
                                         "lr-min=",
                                         "lr-decay=",
                                         "lr-decay-epochs=",
                                         "precision=",
                                         "init-scale=",
                                         "growth-interval=",
                                         "timeout=",
                                         "device-memory=",
                                         "metrics=",
                                         "summary=",
                                         "dump-losses=",
                                         "[no-]evaluate ",
                                         "quiet ",
                                         "tf32 ",
                                         "cuda-graph ",
                                         "[no-]pin-memory ",
                                         "debug-launches ",
                                         "verbose "};
    static const char *const of_dp[] = {"devices=", "device-ids=", "output-device=", "replicate=", "single "};
    static const char *const of_ddp[] = {
        "spawn=",        "device-ids=",  "shard=",       "backend=", "allreduce=", "bucket-cap-mb=", "compress=",
        "[no-]overlap ", "find-unused ", "debug-ranks ", "uneven ",  "join ",      "join-divide=",   "join-throw "};
    static program dp, ddp;
    expect_success(&dp, "dp_train --help");
    expect_success(&ddp, "ddp_train --help");
    for (size_t i = 0; i < COUNT_OF(common); i++) {
        expect_option(&dp, common[i]);
        expect_option(&ddp, common[i]);
    }
    for (size_t i = 0; i < COUNT_OF(of_dp); i++) expect_option(&dp, of_dp[i]);
    for (size_t i = 0; i < COUNT_OF(of_ddp); i++) expect_option(&ddp, of_ddp[i]);
    assert_non_null(strstr(dp.out_text, "learning rate (default: 0.001)"));
    /* --help takes precedence over errors, even if a job would start */
    expect_success(&ddp, "ddp_train --spawn 2 --help --model nope");
    expect_success(&ddp, "ddprun --help");
    expect_option(&ddp, "nproc-per-node=");
}

/* --- a run -------------------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_bare_programs_train) {
    static const char *const lines[] = {
        "dp_train --steps 5",
        "dp_train --steps 5 --quiet",
        "dp_train " SMALL " --devices 9 --batch-size 9 --steps 3",
        "dp_train " SMALL " --device-ids 3,1 --output-device 1 --steps 3",
        "dp_train " SMALL " --single --steps 3",
        "ddp_train --steps 5",
        "ddp_train " SMALL
        " --spawn 3 --batch-size 9 --steps 3 --", /* "--" ends the options; the ranks get one more option before it */
        "ddprun --nproc-per-node 2 ddp_train " SMALL " --steps 3 --quiet",
    };
    static program p;
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        expect_success(&p, lines[i]);
        if (!strstr(p.out_text, "final loss ")) fail_msg("%s printed %s", lines[i], p.out_text);
        if (strchr(p.out_text, '\r') || strchr(p.out_text, '\033')) fail_msg("%s draws as if on a terminal", lines[i]);
    }
    assert_int_equal(scratch_file_count(), 0);
}

/* A sandbox that hides /sys: the cores are those of the affinity mask, without a message. */
TEST_IN(programs, test_a_machine_without_a_topology) {
    static program p;
    expect_success(&p, "HWLOC_FSROOT=/dev dp_train " SMALL " --devices 2 --steps 3");
    expect_success(&p, "HWLOC_FSROOT=/dev ddp_train " SMALL " --spawn 2 --steps 3");
}

/* One process reports the choices and their reasons, and only with --verbose. */
TEST_IN(programs, test_verbose) {
    static program p;
    program_run(&p, "dp_train --steps 2 --verbose");
    assert_int_equal(p.status, 0);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "dp_train: device-kind auto takes the CPU: "));
    program_run(&p, "ddp_train " SMALL " --spawn 3 --batch-size 9 --steps 2 --verbose");
    assert_int_equal(p.status, 0);
    assert_int_equal(count_lines(p.err_text), 2);
    assert_non_null(strstr(p.err_text, "ddp_train[rank 0]: device-kind auto takes the CPU: "));
    assert_non_null(strstr(p.err_text, "ddp_train[rank 0]: backend: shm\n"));
    expect_success(&p, "dp_train --steps 2 --verbose --quiet");
    expect_success(&p, "dp_train --steps 2 --verbose --device-kind cpu");
    program_run(&p, "ddp_train --spawn 2 --steps 2 --tf32");
    assert_string_equal(p.err_text, "ddp_train[rank 0]: --tf32 has no effect: CPU devices compute in fp32\n");
}

/* The schedule is printed first, once for all ranks, and nothing is trained. */
TEST_IN(programs, test_shown_schedules) {
    static program p;
    expect_success(&p, "ddprun --nproc-per-node 2 ddp_train --pipeline 4 --accumulate 8 --show-schedule");
    assert_int_equal(strncmp(p.out_text, "bubble: stages are idle for 27.3 % of a step ", 45), 0);
    assert_non_null(strstr(p.out_text, "\nin flight at most, stage by stage: 4 3 2 1 (1f1b, "));
    assert_int_equal(count_lines(p.out_text), 15);
    expect_success(&p, "ddp_train --spawn 4 --pipeline 4 --accumulate 8 --show-schedule --schedule gpipe");
    assert_non_null(strstr(p.out_text, "\nin flight at most, stage by stage: 8 8 8 8 (gpipe, "));
    assert_int_equal(count_lines(p.out_text), 15);
}

/* --- files -------------------------------------------------------------------------------------------------- */

static double accuracy_of(const program *p) {
    const char *at = strstr(p->out_text, "test accuracy ");
    assert_non_null(at);
    return atof(at + strlen("test accuracy "));
}

TEST_IN(programs, test_saved_weights_continue) {
    static const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    static program trained, loaded;
    for (size_t i = 0; i < COUNT_OF(programs); i++) {
        const char *weights = scratch_path("weights"), *again = scratch_path("again");
        char *before, *after;
        size_t before_nbytes, after_nbytes;
        program_run(&trained, "%s " SMALL " --epochs 3 --lr 0.01 --save-weights %s", programs[i], weights);
        assert_int_equal(trained.status, 0);
        assert_true(accuracy_of(&trained) > 50);
        before = scratch_read(weights, &before_nbytes);
        /* a learning rate of 0 leaves the weights unchanged, so accuracy and saved file are those of the weights */
        program_run(&loaded, "%s " SMALL " --steps 1 --optimizer sgd --lr 0 --init %s --save-weights %s", programs[i],
                    weights, again);
        assert_int_equal(loaded.status, 0);
        after = scratch_read(again, &after_nbytes);
        assert_int_equal(after_nbytes, before_nbytes);
        assert_memory_equal(after, before, before_nbytes);
        const char *last = strstr(trained.out_text, "final loss");
        assert_non_null(last);
        assert_non_null(
            strstr(loaded.out_text, strstr(last, "test accuracy"))); /* the end of the line: accuracy and hash */
        free(before);
        free(after);
        unlink(again);
        assert_int_equal(scratch_file_count(), 1);
    }
}

/* Reads the file into a run whose learning rate of 0 leaves the weights unchanged (but not batch norm's statistics). */
static void expect_read_back(struct content *written, const char *path) {
    static program p;
    program_run(
        &p,
        "dp_train --single --steps 1 --no-evaluate --optimizer sgd --lr 0 --model convnet --data %s/images --init %s "
        "--save-weights %s",
        scratch_folder(), path, scratch_path("again"));
    assert_int_equal(p.status, 0);
    assert_non_null(strstr(p.err_text, "16 names without their \"module.\""));
    struct content read = content_open(scratch_path("again"));
    static const char *const names[] = {"conv1.weight", "bn2.bias", "conv2.weight", "fc.bias"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const ls_safetensor *ours = content_find(&read, names[i]), *first = content_find(written, names[i]);
        assert_int_equal(ours->nbytes, first->nbytes);
        assert_memory_equal(ours->data, first->data, first->nbytes);
    }
    content_close(&read, scratch_path("again"));
}

/* Names as in PyTorch's wrappers; all else is the same. */
TEST_IN(programs, test_module_names) {
    static const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    static program p;
    (void)small_images("images", 64, 1);
    for (size_t i = 0; i < COUNT_OF(programs); i++) {
        char line[700];
        snprintf(line, sizeof line, "%s --model convnet --steps 3 --no-evaluate --data %s/images", programs[i],
                 scratch_folder());
        program_run(&p, "%s --save-weights %s", line, scratch_path("plain"));
        assert_int_equal(p.status, 0);
        program_run(&p, "%s --save-weights %s --save-module-prefix", line, scratch_path("wrapped"));
        assert_int_equal(p.status, 0);
        struct content plain = content_open(scratch_path("plain")), wrapped = content_open(scratch_path("wrapped"));
        assert_int_equal(plain.count, 16);
        assert_int_equal(wrapped.count, plain.count);
        for (size_t t = 0; t < plain.count; t++) {
            char name[100];
            snprintf(name, sizeof name, "module.%s", plain.tensors[t].name);
            const ls_safetensor *tensor = content_find(&wrapped, name);
            assert_int_equal(tensor->nbytes, plain.tensors[t].nbytes);
            assert_memory_equal(tensor->data, plain.tensors[t].data, tensor->nbytes);
        }
        expect_read_back(&plain, scratch_path("wrapped"));
        content_close(&plain, scratch_path("plain"));
        content_close(&wrapped, scratch_path("wrapped"));
    }
}

static void expect_numbers(const cJSON *object, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(object, names[i]);
        if (!cJSON_IsNumber(number) || !isfinite(number->valuedouble)) fail_msg("%s is no number", names[i]);
    }
}

static void check_summary(const cJSON *summary) {
    static const char *const numbers[] = {
        "devices",        "batch_size",        "seed",          "lr",           "steps",
        "epochs",         "lr_effective",      "accumulate",    "warmup_steps", "skipped_steps",
        "timed_steps",    "median_step_ms",    "samples_per_s", "final_loss",   "test_accuracy",
        "loader_wait_ms", "loader_wait_share", "host_lock_us"};
    static const char *const texts[] = {"mode",     "model",     "data",     "device_kind",   "how",
                                        "schedule", "precision", "compress", "parameter_hash"};
    expect_numbers(summary, numbers, COUNT_OF(numbers));
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        assert_true(cJSON_IsString(cJSON_GetObjectItemCaseSensitive(summary, texts[i])));
    const cJSON *devices = cJSON_GetObjectItemCaseSensitive(summary, "device_table");
    assert_int_equal(cJSON_GetArraySize(devices), 2); /* those of all ranks */
    assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(cJSON_GetArrayItem(devices, 1), "device")) == 1);
    const cJSON *device = cJSON_GetArrayItem(devices, 0);
    static const char *const shares[] = {"rank", "device", "busy_share", "communication_share", "current_bytes"};
    expect_numbers(device, shares, COUNT_OF(shares));
    assert_true(cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(device, "ms_per_step_by_phase")));
    assert_true(cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(device, "bytes_per_step_by_phase")));
    const cJSON *peak = cJSON_GetObjectItemCaseSensitive(device, "peak_bytes");
    assert_true(cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(peak, "parameter")) == 101824);
}

static void check_metrics(const char *path, int steps) {
    static const char *const numbers[] = {"step",    "epoch",          "loss",          "lr",
                                          "step_ms", "loader_wait_ms", "samples_per_s", "grad_norm"};
    size_t nbytes;
    char *text = scratch_read(path, &nbytes), *rest = text;
    assert_int_equal(count_lines(text), steps + 1);
    for (int step = 0; step <= steps; step++) {
        char *line = strsep(&rest, "\n");
        cJSON *object = cJSON_Parse(line);
        if (!cJSON_IsObject(object)) fail_msg("not JSON: %s", line);
        if (step < steps) {
            expect_numbers(object, numbers, COUNT_OF(numbers));
            assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, "loss_scale"))); /* fp32 has none */
            assert_true(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(object, "skipped")));
            assert_true(cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, "step")) == step);
        } else {
            check_summary(cJSON_GetObjectItemCaseSensitive(object, "summary"));
        }
        cJSON_Delete(object);
    }
    assert_string_equal(rest, "");
    free(text);
}

TEST_IN(programs, test_metrics_and_summary) {
    static const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    static program p;
    for (size_t i = 0; i < COUNT_OF(programs); i++) {
        const char *metrics = scratch_path("metrics"), *summary = scratch_path("summary");
        size_t nbytes, summary_nbytes;
        program_run(&p, "%s " SMALL " --steps 30 --metrics %s --summary %s", programs[i], metrics, summary);
        assert_int_equal(p.status, 0);
        check_metrics(metrics, 30);
        char *lines = scratch_read(metrics, &nbytes), *alone = scratch_read(summary, &summary_nbytes);
        assert_non_null(strstr(lines, alone)); /* the same summary in both files */
        free(lines);
        free(alone);
    }
}

/* single, DP and DDP have the losses of the same training. */
TEST_IN(programs, test_dumped_losses) {
    enum { STEPS = 5, PROGRAMS = 4 };
    static const char *const programs[PROGRAMS] = {"dp_train --single", "dp_train --devices 2", "dp_train --devices 3",
                                                   "ddp_train --spawn 2 --shard contiguous --allreduce naive"};
    double losses[PROGRAMS][STEPS];
    static program p;
    for (int i = 0; i < PROGRAMS; i++) {
        size_t nbytes;
        const char *path = scratch_path("losses");
        program_run(&p, "%s " SMALL " --steps %d --optimizer sgd --lr 0.1 --dump-losses %s", programs[i], STEPS, path);
        assert_int_equal(p.status, 0);
        char *text = scratch_read(path, &nbytes), *rest = text;
        assert_int_equal(count_lines(text), STEPS);
        for (int s = 0; s < STEPS; s++) {
            char *line = strsep(&rest, "\n"), again[40];
            losses[i][s] = strtod(line, NULL);
            snprintf(again, sizeof again, "%.9g", losses[i][s]);
            assert_string_equal(line, again);
            if (!(fabs(losses[i][s] - losses[0][s]) <= 1e-6 * fabs(losses[0][s])))
                fail_msg("%s: the loss of step %d is %.9g, not %.9g", programs[i], s, losses[i][s], losses[0][s]);
        }
        free(text);
    }
    assert_true(losses[0][STEPS - 1] < losses[0][0]);
}

/* If a program is started with closed standard streams, its results must not go into the first file that it opens. */
TEST_IN(programs, test_closed_streams) {
    static const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    static program p;
    for (size_t i = 0; i < COUNT_OF(programs); i++) {
        program_run(&p, "STREAMS=closed %s " SMALL " --steps 3 --metrics %s", programs[i], scratch_path("metrics"));
        assert_int_equal(p.status, 0);
        check_metrics(scratch_path("metrics"), 3);
        program_run(&p, "STREAMS=full %s " SMALL " --steps 3", programs[i]);
        assert_int_equal(p.status, 1);
        assert_non_null(strstr(p.err_text, "cannot write all of the results to standard output"));
    }
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
