/* Checkpoints that are refused: each in one line that names the file and the reason, and the run is unchanged. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/weights.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/checkpoint/content.h"
#include "tests/train/small_run.h"

/* The run that is to resume, and a checkpoint from which it could: FOLDER/good. */
struct fixture {
    struct small_run run;
    uint64_t before;
};

static const struct ls_position somewhere = {
    .step = 5, .epoch = 1, .epoch_steps = 2, .loss_sum = 4.5, .losses = 2, .last_loss = 2.25};

static void begin_with(struct fixture *f, const char *model, const char *data) {
    ls_train_options options = small_run_options();
    options.model = model;
    options.data = data;
    options.precision = LS_FP16; /* with a loss scaler */
    f->run = small_run_open(&options);
    struct small_run *r = &f->run;
    r->checkpointed = (struct ls_checkpointed){.parallel = r->parallel,
                                               .options = &r->options,
                                               .sharing = {.shard = LS_SHARD_CONTIGUOUS},
                                               .steps_per_epoch = 3};
    assert_int_equal(ls_checkpoint_save(&r->checkpointed, &somewhere, scratch_path("good")), LS_OK);
    assert_int_equal(ls_model_init(r->model, 5), LS_OK);
    f->before = small_run_state(r);
}

static void begin(struct fixture *f) { begin_with(f, small_run_options().model, small_run_options().data); }

/* A small network, for tests with as many files as the header has bytes or bits. */
static void begin_small(struct fixture *f) { begin_with(f, "mlp:8,2,10", "random:0"); }

static ls_status load(struct fixture *f, const char *path) {
    struct ls_position position;
    stderr_begin();
    ls_status status = ls_checkpoint_load(&f->run.checkpointed, path, &position);
    stderr_end();
    return status;
}

static void expect_refusal(struct fixture *f, const char *words) {
    ls_status status = load(f, scratch_path("bad"));
    if (status == LS_OK) fail_msg("it was taken, though '%s'", words);
    scratch_expect_error("/bad", words);
    if (small_run_state(&f->run) != f->before) fail_msg("'%s', and something has changed", words);
}

/* --- tensors ----------------------------------------------------------------------------------------------------- */

static void drop_moment(struct content *c) { content_drop(c, "optimizer.exp_avg_sq.fc2.bias"); }
static void drop_weight(struct content *c) { content_drop(c, "fc1.bias"); }
static void drop_scale(struct content *c) { content_drop(c, "scaler.scale"); }
static void drop_steps(struct content *c) { content_drop(c, "optimizer.step"); }

static void add(struct content *c) {
    c->tensors[c->count] = *content_find(c, "fc1.bias");
    c->tensors[c->count++].name = "optimizer.exp_avg.fc3.bias";
}

static void add_memory(struct content *c) {
    c->tensors[c->count] = *content_find(c, "scaler.skipped");
    c->tensors[c->count++].name = "mode.memory";
}

static void transpose(struct content *c) {
    ls_safetensor *weight = content_find(c, "optimizer.exp_avg.fc1.weight");
    weight->shape[0] = 784;
    weight->shape[1] = 16;
}

static void retype_weight(struct content *c) { content_find(c, "fc1.bias")->dtype = LS_SAFETENSOR_I32; }
static void retype_steps(struct content *c) { content_find(c, "optimizer.step")->dtype = LS_SAFETENSOR_I64; }

/* --init converts types, but a checkpoint's types must match. */
static void halve(struct content *c) {
    ls_safetensor *bias = content_find(c, "fc1.bias");
    bias->dtype = LS_SAFETENSOR_BF16;
    bias->nbytes /= 2;
}

static void two_states(struct content *c) {
    static const double two[2];
    *content_find(c, "optimizer.step") = (ls_safetensor){"optimizer.step", LS_SAFETENSOR_F64, 1, {2}, two, sizeof two};
}

static void flat_states(struct content *c) { content_find(c, "optimizer.step")->ndim = 0; }

static void set_real(struct content *c, const char *name, double value) {
    static double memory;
    memory = value;
    content_find(c, name)->data = &memory;
}

static void half_a_step(struct content *c) { set_real(c, "optimizer.step", 2.5); }
static void negative_step(struct content *c) { set_real(c, "optimizer.step", -1); }
static void no_step(struct content *c) { set_real(c, "optimizer.step", NAN); }
static void no_rate(struct content *c) { set_real(c, "optimizer.lr", INFINITY); }

static void zero_scale(struct content *c) {
    static const float zero;
    content_find(c, "scaler.scale")->data = &zero;
}

static void large_tracker(struct content *c) {
    static const int64_t large = INT64_C(1) << 40;
    content_find(c, "scaler.growth_tracker")->data = &large;
}

static void negative_skips(struct content *c) {
    static const int64_t minus_one = -1;
    content_find(c, "scaler.skipped")->data = &minus_one;
}

/* --- lines of the metadata --------------------------------------------------------------------------------------- */

#define SET(function, key, value)                                                                                      \
    static void function(struct content *c) { *content_line(c, "lockstep." key) = value; }
SET(next_format, "format", "2")
SET(other_model, "model", "mlp:784,32,10")
SET(other_rule, "optimizer", "sgd with momentum")
SET(other_batch, "batch_size", "300")
SET(other_precision, "precision", "fp32")
SET(negative_position, "step", "-5")
SET(hexadecimal, "step", "0x5")
SET(overflowing, "step", "99999999999999999999")
SET(enormous, "step", "9007199254740993")
SET(empty, "epoch", "")
SET(too_many_steps, "epoch_steps", "6")
SET(epochs_without_steps, "epoch", "4")
SET(too_many_losses, "losses", "3")
SET(infinite_sum, "loss_sum", "inf")
SET(no_sum, "loss_sum", "nan")
SET(words, "last_loss", "2.25 or so")

static void beyond_the_epoch(struct content *c) {
    *content_line(c, "lockstep.step") = "7";
    *content_line(c, "lockstep.epoch_steps") = "4";
}

static void drop_line(struct content *c) {
    *content_line(c, "lockstep.last_loss") = "";
    for (size_t k = 0; k < c->line_count; k++) {
        if (c->lines[k].value[0] == '\0') c->lines[k] = c->lines[--c->line_count];
    }
}

static void drop_all_lines(struct content *c) { c->line_count = 1; }

static const struct misfit {
    void (*change)(struct content *c);
    const char *words;
} misfits[] = {
    {drop_moment, "has no tensor optimizer.exp_avg_sq.fc2.bias, which this run needs"},
    {drop_weight, "has no tensor fc1.bias, which this run needs"},
    {drop_scale, "has no tensor scaler.scale, which this run needs"},
    {drop_steps, "has no tensor optimizer.step, which this run needs"},
    {add, "has a tensor optimizer.exp_avg.fc3.bias, which this run does not have"},
    {add_memory, "has a tensor mode.memory, which this run does not have"},
    {transpose, "optimizer.exp_avg.fc1.weight has shape [784, 16]; this run needs [16, 784]"},
    {retype_weight, "fc1.bias has type I32; this run needs F32"},
    {retype_steps, "optimizer.step has type I64; this run needs F64"},
    {halve, "fc1.bias has type BF16; this run needs F32"},
    {two_states, "optimizer.step has shape [2]; this run needs [1]"},
    {flat_states, "optimizer.step has shape []; this run needs [1]"},
    {half_a_step, "optimizer.step is 2.5"},
    {negative_step, "optimizer.step is -1"},
    {no_step, "optimizer.step is nan"},
    {no_rate, "optimizer.lr is inf"},
    {zero_scale, "scaler.scale is 0"},
    {large_tracker, "scaler.growth_tracker is 1099511627776"},
    {negative_skips, "scaler.skipped is -1"},
    {next_format, "format '2'; this program reads format 1"},
    {other_model, "was written by a run with model mlp:784,32,10; this run has mlp:784,16,10"},
    {other_rule, "was written by a run with optimizer sgd with momentum; this run has adam"},
    {other_batch, "was written by a run with batch size 300; this run has 600, which would change"},
    {negative_position, "lockstep.step is '-5'"},
    {hexadecimal, "lockstep.step is '0x5'"},
    {overflowing, "lockstep.step is '99999999999999999999'"},
    {enormous, "lockstep.step is '9007199254740993'"},
    {empty, "lockstep.epoch is ''"},
    {too_many_steps, "step 5 does not fit 6 steps"},
    {epochs_without_steps, "step 5 does not fit 2 steps and 2 losses of epoch 4"},
    {too_many_losses, "does not fit 2 steps and 3 losses"},
    {infinite_sum, "lockstep.loss_sum is 'inf'"},
    {no_sum, "lockstep.loss_sum is 'nan'"},
    {words, "lockstep.last_loss is '2.25 or so'"},
    {beyond_the_epoch, "after 4 steps of an epoch, but an epoch of this run has 3"},
    {drop_line, "its metadata has no lockstep.last_loss"},
    {drop_all_lines, "is not a checkpoint: its metadata has no lockstep.format; give --init"},
};

TEST_IN(scratch, what_does_not_fit_is_named_and_nothing_changes) {
    struct fixture f;
    begin(&f);
    for (size_t m = 0; m < sizeof misfits / sizeof *misfits; m++) {
        struct content c = content_open(scratch_path("good"));
        misfits[m].change(&c);
        content_close(&c, scratch_path("bad"));
        expect_refusal(&f, misfits[m].words);
    }
    assert_int_equal(load(&f, scratch_path("good")), LS_OK); /* unless it is changed, the checkpoint is accepted */
    assert_true(small_run_state(&f.run) != f.before);
    small_run_close(&f.run);
}

/* At the end of an epoch the next batch is the first, whatever its size. Without loss scaling, the scaler's state is
 * ignored. */
TEST_IN(scratch, what_may_be_otherwise) {
    struct fixture f;
    begin(&f);
    struct content c = content_open(scratch_path("good"));
    other_batch(&c);
    *content_line(&c, "lockstep.epoch_steps") = *content_line(&c, "lockstep.losses") = "0";
    content_close(&c, scratch_path("bad"));
    assert_int_equal(load(&f, scratch_path("bad")), LS_OK);
    c = content_open(scratch_path("good"));
    other_precision(&c);
    drop_scale(&c);
    content_close(&c, scratch_path("bad"));
    assert_int_equal(load(&f, scratch_path("bad")), LS_OK);
    small_run_close(&f.run);
}

/* --- damage ------------------------------------------------------------------------------------------------------ */

/* The file may be accepted, if the damage is in a number or in a name that is not a weight's, or refused; then nothing
 * has changed. */
static void expect_no_harm(struct fixture *f, const char *bytes, size_t nbytes, bool *taken) {
    unlink(scratch_path("bad")); /* some file systems flush a file to disk that is truncated and rewritten */
    scratch_write("bad", bytes, nbytes);
    *taken = load(f, scratch_path("bad")) == LS_OK;
    if (*taken) {
        f->before = small_run_state(&f->run);
    } else {
        scratch_expect_error("/bad", NULL);
        assert_true(small_run_state(&f->run) == f->before);
    }
}

TEST_IN(scratch, files_that_are_cut_short) {
    struct fixture f;
    begin_small(&f);
    size_t nbytes, header = 0;
    bool taken;
    unsigned char *bytes = scratch_read(scratch_path("good"), &nbytes);
    for (int i = 7; i >= 0; i--) header = header << 8 | bytes[i];
    assert_in_range(header, 1000, 4000);
    for (size_t length = 0; length < nbytes; length += length < header + 16 ? 1 : 53) {
        expect_no_harm(&f, (char *)bytes, length, &taken);
        assert_false(taken);
    }
    expect_no_harm(&f, (char *)bytes, nbytes - 1, &taken);
    assert_false(taken);
    expect_no_harm(&f, (char *)bytes, nbytes, &taken);
    assert_true(taken);
    free(bytes);
    small_run_close(&f.run);
}

/* Each bit of the header, and samples of the data: all these files are refused. */
TEST_IN(scratch, files_with_a_wrong_bit) {
    struct fixture f;
    begin_small(&f);
    size_t nbytes, header = 0;
    char *bytes = scratch_read(scratch_path("good"), &nbytes);
    for (int i = 7; i >= 0; i--) header = header << 8 | (unsigned char)bytes[i];
    for (size_t at = 0; at < nbytes; at += at < header + 16 ? 1 : 29) {
        for (int bit = 0; bit < 8; bit++) {
            bool taken;
            bytes[at] ^= (char)(1u << bit);
            expect_no_harm(&f, bytes, nbytes, &taken);
            bytes[at] ^= (char)(1u << bit);
            if (taken) fail_msg("bit %d of byte %zu of %zu was another, and the file was taken", bit, at, nbytes);
        }
    }
    free(bytes);
    small_run_close(&f.run);
}

/* --init reads checkpoints, too: damage in the name of the checksum or of the format, and in the weights. */
TEST_IN(scratch, weights_of_a_damaged_checkpoint_are_not_taken) {
    struct fixture f;
    begin(&f);
    size_t nbytes;
    char *bytes = scratch_read(scratch_path("good"), &nbytes);
    assert_int_equal(ls_weights_load(f.run.model, scratch_path("good"), false), LS_OK);
    static const char *const names[] = {LS_SAFETENSORS_CRC32, "lockstep.format"};
    for (size_t n = 0; n < 3; n++) {
        char *at = n < 2 ? memmem(bytes, nbytes, names[n], strlen(names[n])) : bytes + nbytes - 20;
        assert_non_null(at);
        *at ^= 1;
        scratch_write("bad", bytes, nbytes);
        *at ^= 1;
        assert_int_not_equal(ls_weights_load(f.run.model, scratch_path("bad"), false), LS_OK);
        scratch_expect_error("/bad", NULL);
    }
    free(bytes);
    small_run_close(&f.run);
}
