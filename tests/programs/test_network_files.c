/* Programs with a network in a file: every mode trains it, with the bits and losses that are documented for the modes,
 * and its losses are PyTorch's (tests/pytorch/check_networks.py). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

/* examples/resnet18.net with a sixteenth of its channels, as narrow.net in the test's folder. */
static const char *narrow_resnet(void) {
    char narrow[8000];
    size_t nbytes, length = 0;
    char *text = scratch_read("examples/resnet18.net", &nbytes), *rest = text;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        int channels, words = 0;
        bool conv = sscanf(line, "conv %d%n", &channels, &words) == 1;
        length += (size_t)(conv ? snprintf(narrow + length, sizeof narrow - length, "conv %d%s\n", channels / 16,
                                           line + words)
                                : snprintf(narrow + length, sizeof narrow - length, "%s\n", line));
        assert_true(length < sizeof narrow);
    }
    free(text);
    scratch_write("narrow.net", narrow, length);
    return scratch_path("narrow.net");
}

static void run(program *p, const char *line, const char *model) {
    program_run(p, "%s --model %s --device-kind cpu --no-evaluate --batch-size 16 --steps 4", line, model);
    if (p->status != 0 || p->err_text[0]) fail_msg("%s: status %d, %s", line, p->status, p->err_text);
}

TEST_IN(programs, modes_have_the_same_bits) {
    static const char *const rows[][4] = {
        {"dp_train --devices 2", "ddp_train --spawn 2 --shard contiguous",
         "ddp_train --spawn 2 --shard contiguous --shard-state 1",
         "ddp_train --spawn 2 --shard contiguous --shard-state 3"},
        {"dp_train --single", "dp_train --single --checkpoint-activations sqrt",
         "dp_train --single --checkpoint-activations 1"},
        {"dp_train --single --accumulate 2", "ddp_train --spawn 2 --pipeline 2 --accumulate 2"},
        {"dp_train --devices 2 --precision bf16", "ddp_train --spawn 2 --shard contiguous --precision bf16"},
    };
    char model[600];
    snprintf(model, sizeof model, "%s", narrow_resnet());
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        char first[PROGRAM_HASH + 1], hash[PROGRAM_HASH + 1];
        for (size_t i = 0; i < COUNT_OF(rows[r]) && rows[r][i]; i++) {
            static program p;
            run(&p, rows[r][i], model);
            program_read_hash(&p, i == 0 ? first : hash);
            if (i > 0 && strcmp(first, hash) != 0) fail_msg("%s: %s, not %s", rows[r][i], hash, first);
        }
    }
}

/* The first two have a small tolerance: see check_networks.py. */
static void expect_losses(const cJSON *golden, const char *line, const char *model) {
    static program p;
    char options[300], *rest;
    snprintf(options, sizeof options, "%s --no-shuffle --optimizer sgd --lr 0.01 --dump-losses %s", line,
             scratch_path("losses"));
    run(&p, options, model);
    char *text = scratch_read_text("losses");
    rest = text;
    for (int step = 0; step < 4; step++) {
        double loss = strtod(rest, &rest), wanted = cJSON_GetArrayItem(golden, step)->valuedouble;
        if (!(fabs(loss - wanted) <= (step < 2 ? 1e-5 : 2e-2) * wanted))
            fail_msg("%s: loss %d is %.9g, in PyTorch %.9g", line, step, loss, wanted);
    }
    free(text);
}

TEST_IN(programs, losses_are_pytorchs) {
    char model[600];
    snprintf(model, sizeof model, "%s", narrow_resnet());
    cJSON *golden = golden_json("networks.json");
    expect_losses(cJSON_GetObjectItem(golden, "single"), "dp_train --single", model);
    expect_losses(cJSON_GetObjectItem(golden, "two_devices"), "dp_train --devices 2", model);
    expect_losses(cJSON_GetObjectItem(golden, "two_devices"), "ddp_train --spawn 2 --shard contiguous", model);
    cJSON_Delete(golden);
}

TEST_IN(programs, what_it_would_take_is_counted) {
    static program p;
    program_run(
        &p,
        "dp_train --model examples/resnet18.net:3x32x32,10 --data random:1 --device-kind meta --devices 2 --steps 2");
    assert_int_equal(p.status, 0);
    program_expect_text(&p, "replicate 44695872 (parameters)"); /* 4 x 11,173,962, aligned */
}

TEST_IN(programs, a_network_is_shown) {
    static program p;
    assert_int_equal(program_run(&p, "dp_train --model convnet --show-model"), 0);
    program_expect_text(&p, "# convnet: 29034 parameters in 10 tensors, 3 blocks\ninput 1x28x28\n");
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 2 ddp_train --model %s --show-pytorch", narrow_resnet()),
                     0);
    assert_int_equal(count_text(p.out_text, "def make():"), 1);
    program_expect_text(&p, "self.put(\"layer4.1.bn2\", nn.BatchNorm2d(32))");
    assert_int_equal(program_run(&p, "dp_train --model gpt --show-model"), 2);
}

/* Each error is one line, before anything has begun. */
TEST_IN(programs, what_is_wrong_is_said) {
    static const struct {
        const char *options, *message;
        int status;
    } cases[] = {
        {"--model narrow", "unknown model \"narrow\"", 2},
        {"--model /no/such.net", "/no/such.net", 1},
        {"--model convnet:3x3x3,10 --data random:1", "convnet:8: maxpool 2: a window of 2x2 does not fit 32x1x1", 2},
        {"--model examples/resnet18.net --data random:1", "takes its input's shape from the data, which has none", 2},
        {"--model examples/resnet18.net:3x32x32,10", "the model takes 3072", 1},
    };
    static program p;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        program_run(&p, "dp_train --single --steps 1 %s", cases[i].options);
        if (p.status != cases[i].status || count_lines(p.err_text) != 1 || !strstr(p.err_text, cases[i].message))
            fail_msg("%s: status %d, %s", cases[i].options, p.status, p.err_text);
    }
}

/* The run keeps the network's description: a checkpoint can be resumed, and the file itself is never overwritten. */
TEST_IN(programs, a_run_goes_on_from_its_checkpoint) {
    char model[600], checkpoint[600], options[1800], whole[PROGRAM_HASH + 1], hash[PROGRAM_HASH + 1];
    static program p;
    snprintf(model, sizeof model, "%s", narrow_resnet());
    snprintf(checkpoint, sizeof checkpoint, "%s", scratch_path("checkpoint"));
    run(&p, "dp_train --single", model);
    program_read_hash(&p, whole);
    program_run(&p, "dp_train --single --model %s --no-evaluate --batch-size 16 --steps 2 --save %s", model,
                checkpoint);
    assert_int_equal(p.status, 0);
    snprintf(options, sizeof options, "dp_train --single --quiet --resume %s", checkpoint);
    run(&p, options, model);
    program_read_hash(&p, hash);
    assert_string_equal(hash, whole);
    program_run(&p, "dp_train --model %s --save-weights %s", model, model);
    assert_int_equal(p.status, 2);
    assert_non_null(strstr(p.err_text, "--model"));
}
