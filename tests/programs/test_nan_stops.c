/* A loss that is not finite stops a run in any mode: one line with step and place, exit status 1, and closed files with
 * the steps before. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/checkpoint/safetensors.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"
#include "tests/programs/small_images.h"

struct mode {
    const char *line;
    int ranks; /* that print a line of their own; a launcher adds its line */
    bool launcher;
};

static const struct mode modes[] = {
    {"dp_train --single", 1, false},
    {"dp_train --devices 2", 1, false},
    {"dp_train --devices 2 --offload optimizer", 1, false},
    {"ddp_train", 1, false},
    {"ddp_train --spawn 2", 2, true},
    {"ddp_train --spawn 2 --compress topk:0.1", 2, true},
    {"ddp_train --spawn 2 --shard-state 2", 2, true},
    {"ddp_train --spawn 2 --shard-state 3", 2, true},
    {"ddprun --nproc-per-node 2 ddp_train", 2, true},
};

/* One rank reports it, the others quote the report, and the launcher repeats it. */
static void expect_stop(const struct mode *mode, program *p, const char *text) {
    int own = 0, failed = program_take_failures(p);
    char begin[256];
    snprintf(begin, sizeof begin, "error: %s", text);
    own = count_text(p->err_text, begin);
    bool right = failed == (mode->launcher ? mode->ranks : 0);
    right = right && p->status == 1 && count_lines(p->err_text) == mode->ranks + mode->launcher && own == 1;
    right = right && count_text(p->err_text, text) == mode->ranks + mode->launcher;
    right = right && count_text(p->err_text, " has given up: step ") == mode->ranks - 1;
    if (mode->launcher) right = right && count_text(p->err_text, "exited with status 1: step ") == 1;
    if (!right) fail_msg("%s ended with %d and said: %s", mode->line, p->status, p->err_text);
    if (strstr(p->out_text, "final loss")) fail_msg("%s printed %s", mode->line, p->out_text);
}

static void expect_lines(const char *path, int lines, bool json) {
    size_t nbytes;
    char *text = scratch_read(path, &nbytes), *rest = text;
    if (count_lines(text) != lines || (nbytes > 0 && text[nbytes - 1] != '\n'))
        fail_msg("%s should have %d lines and has: %s", path, lines, text);
    for (int i = 0; i < lines; i++) {
        char *end = strchr(rest, '\n');
        *end = '\0';
        cJSON *object = json ? cJSON_Parse(rest) : NULL;
        double loss = json ? cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, "loss")) : atof(rest);
        if (!isfinite(loss)) fail_msg("line %d of %s is %s", i, path, rest);
        cJSON_Delete(object);
        rest = end + 1;
    }
    free(text);
}

/* A learning rate of 1e30: the first step is fine, the second is not. */
TEST_IN(programs, test_a_learning_rate_that_is_too_high) {
    static const char *const places[] = {"the output of fc2", "the output of conv2"};
    static program p;
    char convnet[700];
    snprintf(convnet, sizeof convnet, "convnet --batch-size 16 --data %s/images", scratch_folder());
    const char *const models[] = {"mlp:784,8,10", convnet};
    (void)small_images("images", 32, 1);
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        for (int i = 0; i < 2; i++) {
            const char *metrics = scratch_path("metrics"), *losses = scratch_path("losses");
            char text[256];
            program_run(&p, "%s --model %s --lr 1e30 --metrics %s --dump-losses %s --save %s", modes[m].line, models[i],
                        metrics, losses, scratch_path("weights"));
            snprintf(text, sizeof text,
                     "step 1 (epoch 0): the loss is nan; the first value that is not finite is in %s", places[i]);
            expect_stop(&modes[m], &p, text);
            assert_non_null(strstr(p.err_text, "; lower --lr, or look at the data\n"));
            expect_lines(metrics, 1, true);
            expect_lines(losses, 1, false);
            assert_int_equal(scratch_file_count(), 3); /* with the images, and no weights */
        }
    }
}

/* Weights with a NaN in one tensor. */
static void write_bad_weights(const char *path, const char *spoilt) {
    static float fc1_weight[32 * 784], fc1_bias[32], fc2_weight[10 * 32], fc2_bias[10];
    ls_safetensor tensors[] = {
        {.name = "fc1.weight",
         .dtype = LS_SAFETENSOR_F32,
         .ndim = 2,
         .shape = {32, 784},
         .data = fc1_weight,
         .nbytes = sizeof fc1_weight},
        {.name = "fc1.bias",
         .dtype = LS_SAFETENSOR_F32,
         .ndim = 1,
         .shape = {32},
         .data = fc1_bias,
         .nbytes = sizeof fc1_bias},
        {.name = "fc2.weight",
         .dtype = LS_SAFETENSOR_F32,
         .ndim = 2,
         .shape = {10, 32},
         .data = fc2_weight,
         .nbytes = sizeof fc2_weight},
        {.name = "fc2.bias",
         .dtype = LS_SAFETENSOR_F32,
         .ndim = 1,
         .shape = {10},
         .data = fc2_bias,
         .nbytes = sizeof fc2_bias},
    };
    for (int i = 0; i < 4; i++) {
        float *data = (float *)(uintptr_t)tensors[i].data;
        size_t count = tensors[i].nbytes / sizeof *data;
        for (size_t k = 0; k < count; k++) data[k] = 0.01f * (float)(k % 7);
        if (strcmp(tensors[i].name, spoilt) == 0) data[count / 2] = NAN;
    }
    assert_int_equal(ls_safetensors_write(path, tensors, 4, NULL, 0), LS_OK);
}

/* They are refused, with the file's name, before the first step. */
TEST_IN(programs, test_weights_with_a_nan) {
    static const char *const tensors[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
    static program p;
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        char text[700];
        const char *weights = scratch_path("init"), *losses = scratch_path("losses"), *tensor = tensors[m % 4];
        write_bad_weights(weights, tensor);
        program_run(&p, "%s --model mlp:784,32,10 --init %s --dump-losses %s", modes[m].line, weights, losses);
        snprintf(text, sizeof text, "%s: %s holds NaN at element ", weights, tensor);
        bool by_ddprun = strncmp(modes[m].line, "ddprun", 6) == 0; /* which then names the rank that failed */
        assert_int_equal(program_take_failures(&p) > 0, by_ddprun);
        if (p.status != 1 || count_lines(p.err_text) != 1 + by_ddprun || !strstr(p.err_text, text) || p.out_text[0])
            fail_msg("%s ended with %d and said: %s", modes[m].line, p.status, p.err_text);
        assert_int_equal(access(losses, F_OK), -1);
    }
}

/* With shuffled streams a loss is read late, and only the step is known. */
TEST_IN(programs, test_shuffled_streams_name_the_step) {
    static program p;
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        char line[128];
        snprintf(line, sizeof line, "LS_CPU_STREAMS=shuffle:%zu %s", m, modes[m].line);
        struct mode shuffled = {line, modes[m].ranks, modes[m].launcher};
        program_run(&p, "%s --model mlp:784,8,10 --lr 1e30 --dump-losses %s", line, scratch_path("losses"));
        expect_stop(&shuffled, &p, "step 1 (epoch 0): the loss is nan; lower --lr, or look at the data");
        expect_lines(scratch_path("losses"), 1, false);
    }
}

/* One process knows all its losses; several know them up to their last common check, here the first step's. Weight
 * decay multiplies the weights by -99 in each step, so they overflow after about twenty. */
TEST_IN(programs, test_steps_before_are_kept) {
    static program p;
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
        program_run(&p, "%s --model mlp:784,10 --optimizer sgd --weight-decay 1 --lr 100 --metrics %s --dump-losses %s",
                    modes[m].line, scratch_path("metrics"), scratch_path("losses"));
        const char *at = strstr(p.err_text, "error: step ");
        int step = at ? atoi(at + strlen("error: step ")) : 0;
        if (p.status != 1 || step < 10 || step > 30)
            fail_msg("%s ended with %d: %s", modes[m].line, p.status, p.err_text);
        expect_lines(scratch_path("metrics"), modes[m].ranks > 1 ? 1 : step, true);
        expect_lines(scratch_path("losses"), modes[m].ranks > 1 ? 1 : step, false);
    }
}

/* All ranks of a replica see the same loss at the same time: one reports it, and the other quotes it. */
TEST_IN(programs, test_ranks_that_share_layers) {
    static const struct mode shared = {"ddp_train --spawn 2 --tensor 2", 2, true};
    static program p;
    program_run(&p, "%s --model mlp:784,64,10 --optimizer sgd --lr 1e30 --no-evaluate", shared.line);
    expect_stop(&shared, &p, "step 1 (epoch 0): the loss is nan; the first value that is not finite is in ");
}
