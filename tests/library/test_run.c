/* include/lockstep.h from outside: both modes train samples from memory to the same bits, ranks that the library starts
 * included; weights, callbacks and errors come back; nothing is printed. */
#include <lockstep.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/stderr_text.h"
#include "tests/base/test.h"

enum { COUNT = 128, INPUTS = 4, CLASSES = 3, EPOCHS = 2, STEPS = EPOCHS * COUNT / 32 };

static float inputs[COUNT * INPUTS], targets[COUNT * CLASSES];
static int64_t labels[COUNT];

static ls_samples make_samples(bool with_labels) {
    for (int i = 0; i < COUNT; i++) {
        labels[i] = i * 7 % CLASSES;
        for (int k = 0; k < INPUTS; k++) inputs[i * INPUTS + k] = sinf((float)(i * INPUTS + k)) + (float)labels[i];
        for (int k = 0; k < CLASSES; k++) targets[i * CLASSES + k] = labels[i] == k ? 1.0f : 0.0f;
    }
    ls_samples samples = {.count = COUNT, .channels = INPUTS, .height = 1, .width = 1, .inputs = inputs};
    samples.classes = with_labels ? CLASSES : 0;
    samples.labels = with_labels ? labels : NULL;
    samples.target_count = with_labels ? 0 : CLASSES;
    samples.targets = with_labels ? NULL : targets;
    return samples;
}

#define COMMON "--model=mlp:4,8,3", "--epochs=2", "--batch-size=32", "--device-kind=cpu"
static const char *const dp_options[] = {COMMON, "--devices=2", NULL};
static const char *const ddp_options[] = {COMMON, "--spawn=2", "--shard=contiguous", "--allreduce=naive", NULL};
static const char *const alone_options[] = {COMMON, NULL};

struct seen {
    int steps, messages;
    double last_loss;
    char message[256];
};

static void note_step(void *context, const ls_run_step *step) {
    struct seen *seen = context;
    assert_int_equal(step->step, seen->steps);
    seen->steps++;
    seen->last_loss = step->loss;
}

static void note_message(void *context, const char *line) {
    struct seen *seen = context;
    if (seen->messages++ == 0) snprintf(seen->message, sizeof seen->message, "%s", line);
}

/* A run that has trained; the caller destroys it. */
static ls_run *train(ls_mode_kind mode, const char *const *options, ls_run_result *result, struct seen *seen) {
    ls_run *run;
    ls_samples samples = make_samples(true);
    assert_int_equal(ls_run_create(&run, mode, options), 0);
    assert_int_equal(ls_run_set_samples(run, &samples, &samples), 0);
    if (seen) ls_run_on_step(run, note_step, seen);
    int status = ls_run_train(run, result);
    assert_string_equal(ls_run_error(run), "");
    assert_int_equal(status, 0);
    return run;
}

TEST(both_modes_train_to_the_same_bits_and_give_them_back) {
    ls_run_result of_dp, of_ddp;
    ls_run *dp = train(LS_MODE_DP, dp_options, &of_dp, NULL), *ddp = train(LS_MODE_DDP, ddp_options, &of_ddp, NULL);
    assert_int_equal(of_dp.weights_hash, of_ddp.weights_hash);
    assert_int_equal(of_dp.steps, STEPS);
    assert_int_equal(of_ddp.steps, STEPS);
    assert_true(of_dp.test_accuracy > 0.3 && of_dp.test_accuracy == of_ddp.test_accuracy);
    assert_true(fabs(of_dp.final_loss - of_ddp.final_loss) <= 1e-6);
    assert_int_equal(ls_run_tensor_count(dp), 4);
    assert_int_equal(ls_run_tensor_count(ddp), 4);
    for (size_t i = 0; i < 4; i++) {
        ls_run_tensor a, b;
        assert_true(ls_run_get_tensor(dp, i, &a) && ls_run_get_tensor(ddp, i, &b));
        assert_string_equal(a.name, b.name);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.values, b.values, a.count * sizeof(float));
    }
    ls_run_tensor none;
    assert_false(ls_run_get_tensor(dp, 4, &none));
    ls_run_destroy(dp);
    ls_run_destroy(ddp);
}

TEST(a_callback_sees_each_step_in_order) {
    struct seen seen = {0};
    ls_run_result result;
    ls_run_destroy(train(LS_MODE_DP, dp_options, &result, &seen));
    assert_int_equal(seen.steps, STEPS);
    assert_true(seen.last_loss == result.final_loss);
}

TEST(a_run_trains_again_and_alone_as_a_rank) {
    ls_run_result first, again;
    ls_run *run = train(LS_MODE_DDP, alone_options, &first, NULL);
    assert_int_equal(ls_run_train(run, &again), 0);
    assert_int_equal(first.weights_hash, again.weights_hash);
    assert_int_equal(ls_run_tensor_count(run), 4);
    ls_run_destroy(run);
}

TEST(target_vectors_are_trained_on) {
    const char *options[] = {"--model=wide:4,8,3", "--epochs=1", "--device-kind=cpu", "--devices=1", NULL};
    ls_samples samples = make_samples(false);
    ls_run_result result;
    ls_run *run;
    assert_int_equal(ls_run_create(&run, LS_MODE_DP, options), 0);
    assert_int_equal(ls_run_set_samples(run, &samples, NULL), 0);
    assert_int_equal(ls_run_train(run, &result), 0);
    assert_true(isfinite(result.final_loss) && isnan(result.test_accuracy));
    ls_run_destroy(run);
}

TEST(a_network_is_a_text) {
    static const char text[] = "linear 8\nrelu\nlinear 3\n", wrong[] = "linear 8\nsoftmix\n";
    ls_samples samples = make_samples(true);
    ls_run_result as_text, built_in;
    ls_run *run;
    assert_int_equal(ls_run_create(&run, LS_MODE_DP, dp_options), 0);
    assert_int_equal(ls_run_set_samples(run, &samples, &samples), 0);
    assert_int_equal(ls_run_set_network(run, text), 0);
    int status = ls_run_train(run, &as_text);
    assert_string_equal(ls_run_error(run), "");
    assert_int_equal(status, 0);
    ls_run_destroy(train(LS_MODE_DP, dp_options, &built_in, NULL));
    assert_int_equal(as_text.weights_hash, built_in.weights_hash); /* mlp:4,8,3 */
    assert_int_equal(ls_run_set_network(run, wrong), 0);
    assert_int_equal(ls_run_train(run, NULL), 1);
    assert_non_null(strstr(ls_run_error(run), "softmix"));
    ls_run_destroy(run);
}

/* The call's status, and that its error holds the text; frees the run. */
static void expect_error(ls_run *run, int status, int expected, const char *text) {
    if (!strstr(ls_run_error(run), text)) fail_msg("expected \"%s\" in \"%s\"", text, ls_run_error(run));
    assert_int_equal(status, expected);
    ls_run_destroy(run);
}

TEST(errors_come_back_as_status_and_text) {
    ls_run *run;
    const char *unknown[] = {"--lerning-rate=1", NULL}, *help[] = {"--help", NULL},
               *memory[] = {"--data=memory:", NULL};
    int status = ls_run_create(&run, LS_MODE_DP, unknown);
    expect_error(run, status, 2, "lerning-rate");
    status = ls_run_create(&run, LS_MODE_DDP, help);
    expect_error(run, status, 2, "--help");
    assert_int_equal(ls_run_create(&run, LS_MODE_DP, memory), 0);
    expect_error(run, ls_run_train(run, NULL), 2, "memory:");
    const char *missing[] = {"--data=no/such/folder", NULL};
    assert_int_equal(ls_run_create(&run, LS_MODE_DP, missing), 0);
    expect_error(run, ls_run_train(run, NULL), 1, "no/such/folder");
}

TEST(samples_are_checked) {
    static const struct {
        size_t count;
        int64_t label;
        float input;
        int classes;
        const char *text;
    } wrong[] = {{0, 0, 0, CLASSES, "at least 1"},
                 {COUNT, CLASSES, 0, CLASSES, "out of range"},
                 {COUNT, -1, 0, CLASSES, "out of range"},
                 {COUNT, 0, NAN, CLASSES, "input of sample 1 "},
                 {COUNT, 0, 0, 0, "either classes or target"}};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        ls_run *run;
        ls_samples samples = make_samples(true);
        samples.count = wrong[i].count;
        samples.classes = wrong[i].classes;
        labels[1] = wrong[i].label;
        inputs[INPUTS] = wrong[i].input;
        assert_int_equal(ls_run_create(&run, LS_MODE_DP, dp_options), 0);
        expect_error(run, ls_run_set_samples(run, &samples, NULL), 1, wrong[i].text);
    }
}

static void end_rank_0(void *context, const ls_run_step *step) {
    (void)context;
    (void)step;
    exit(7);
}

TEST(a_rank_that_dies_is_an_error_of_the_run_only) {
    ls_run *run;
    ls_samples samples = make_samples(true);
    struct seen seen = {0};
    assert_int_equal(ls_run_create(&run, LS_MODE_DDP, ddp_options), 0);
    assert_int_equal(ls_run_set_samples(run, &samples, NULL), 0);
    ls_run_on_step(run, end_rank_0, NULL);
    ls_run_on_message(run, note_message, &seen);
    assert_true(ls_run_train(run, NULL) != 0);
    assert_true(ls_run_error(run)[0] != '\0' && seen.messages > 0);
    assert_int_equal(ls_run_tensor_count(run), 0);
    ls_run_on_step(run, NULL, NULL);
    assert_int_equal(ls_run_train(run, NULL), 0); /* the next one does not suffer */
    ls_run_destroy(run);
}

TEST(nothing_is_printed) {
    stderr_begin();
    fflush(stdout);
    int saved = dup(STDOUT_FILENO), pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    dup2(pipe_ends[1], STDOUT_FILENO);
    ls_run_result result;
    ls_run_destroy(train(LS_MODE_DP, dp_options, &result, NULL));
    ls_run_destroy(train(LS_MODE_DDP, ddp_options, &result, NULL));
    ls_run *run;
    const char *unknown[] = {"--no-such-option", NULL};
    int status = ls_run_create(&run, LS_MODE_DP, unknown);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(pipe_ends[1]);
    char byte;
    ssize_t printed = read(pipe_ends[0], &byte, 1);
    close(pipe_ends[0]);
    assert_string_equal(stderr_end(), "");
    assert_int_equal(printed, 0);
    expect_error(run, status, 2, "no-such-option");
}
