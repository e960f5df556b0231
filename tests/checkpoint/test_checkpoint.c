/* Checkpoints as files: their contents, and that loading restores them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/checkpoint/content.h"
#include "tests/train/small_run.h"

static const struct ls_position somewhere = {
    .step = 5, .epoch = 1, .epoch_steps = 2, .loss_sum = 1.0 / 3, .losses = 2, .last_loss = 0.1};

/* A run that is two steps into its second epoch; its checkpoint is FOLDER/a. */
static struct small_run trained(const ls_train_options *options) {
    struct small_run r = small_run_open(options);
    r.options.steps = 5;
    assert_int_equal(small_run_train(&r), LS_OK);
    r.checkpointed.options = &r.options;
    assert_int_equal(ls_checkpoint_save(&r.checkpointed, &somewhere, scratch_path("a")), LS_OK);
    return r;
}

static struct small_run fresh(const ls_train_options *options) {
    struct small_run r = small_run_open(options);
    assert_int_equal(ls_model_init(r.model, 7), LS_OK);
    return r;
}

static ls_status load(struct small_run *r, struct ls_position *position) {
    r->checkpointed.options = &r->options;
    r->checkpointed.steps_per_epoch = 3;
    return ls_checkpoint_load(&r->checkpointed, scratch_path("a"), position);
}

/* --- round trips ------------------------------------------------------------------------------------------------- */

static void expect_round_trip(const ls_train_options *options) {
    struct ls_position position = {0};
    struct small_run saved = trained(options), loaded = fresh(options);
    stderr_begin();
    loaded.options.steps = 5;
    assert_int_equal(load(&loaded, &position), LS_OK);
    stderr_end();
    assert_memory_equal(&position, &somewhere, sizeof position);
    assert_true(small_run_state(&loaded) == small_run_state(&saved));
    loaded.checkpointed.options = &saved.options;
    assert_int_equal(ls_checkpoint_save(&loaded.checkpointed, &position, scratch_path("b")), LS_OK);
    assert_true(same_files(scratch_path("a"), scratch_path("b")));
    assert_int_equal(scratch_file_count(), 2);
    small_run_close(&saved);
    small_run_close(&loaded);
}

TEST_IN(scratch, what_is_saved_is_loaded) {
    ls_train_options options = small_run_options();
    expect_round_trip(&options); /* Adam */
    options.precision = LS_FP16; /* and a loss scaler */
    options.growth_interval = 3;
    expect_round_trip(&options);
    options = small_run_options();
    options.optimizer = LS_SGD;
    expect_round_trip(&options);
    options.momentum = 0.9;
    options.model = "convnet"; /* with running statistics, and their counts */
    options.batch_size = 60;
    expect_round_trip(&options);
}

/* Parameters that were left out of an update have a lower count of updates. */
TEST_IN(scratch, each_parameter_may_count_its_own_updates) {
    static const bool skip[] = {false, true, false, false};
    ls_train_options options = small_run_options();
    struct small_run saved = small_run_open(&options), loaded = fresh(&options);
    struct ls_position position;
    assert_int_equal(ls_optimizer_step(saved.parallel->optimizer, skip), LS_OK);
    saved.checkpointed.options = &saved.options;
    assert_int_equal(ls_checkpoint_save(&saved.checkpointed, &somewhere, scratch_path("a")), LS_OK);
    struct content c = content_open(scratch_path("a"));
    assert_int_equal(content_find(&c, "optimizer.step")->shape[0], 4);
    assert_memory_equal(content_find(&c, "optimizer.step")->data, ((double[]){1, 0, 1, 1}), 4 * sizeof(double));
    ls_safetensors_close(c.file);
    stderr_begin();
    assert_int_equal(load(&loaded, &position), LS_OK);
    stderr_end();
    assert_int_equal(ls_optimizer_state_count(loaded.parallel->optimizer), 4);
    assert_true(small_run_state(&loaded) == small_run_state(&saved));
    small_run_close(&saved);
    small_run_close(&loaded);
}

TEST_IN(scratch, names_and_numbers_are_pytorchs) {
    ls_train_options options = small_run_options();
    options.precision = LS_FP16;
    options.growth_interval = 3;
    struct small_run r = trained(&options);
    const ls_optimizer *optimizer = r.parallel->optimizer;
    struct content c = content_open(scratch_path("a"));
    assert_int_equal(c.count, 4 + 8 + 2 + 3);
    const ls_safetensor *weight = content_find(&c, "fc1.weight"),
                        *mean = content_find(&c, "optimizer.exp_avg.fc2.bias"),
                        *square = content_find(&c, "optimizer.exp_avg_sq.fc1.weight");
    assert_memory_equal(weight->data, ls_model_parameter(r.model, 0)->data, weight->nbytes);
    assert_memory_equal(mean->data, ls_optimizer_moment(optimizer, 0, 3), 10 * sizeof(float));
    assert_memory_equal(square->data, ls_optimizer_moment(optimizer, 1, 0), square->nbytes);
    assert_true(square->ndim == 2 && square->shape[0] == 16 && square->shape[1] == 784);
    assert_memory_equal(content_find(&c, "optimizer.step")->data, &(double){5}, sizeof(double));
    assert_memory_equal(content_find(&c, "optimizer.lr")->data, &(double){1e-3}, sizeof(double));
    /* the scale grew after three updates; two more followed */
    assert_memory_equal(content_find(&c, "scaler.scale")->data, &(float){131072}, sizeof(float));
    assert_memory_equal(content_find(&c, "scaler.growth_tracker")->data, &(int64_t){2}, sizeof(int64_t));
    assert_memory_equal(content_find(&c, "scaler.skipped")->data, &(int64_t){0}, sizeof(int64_t));
    assert_string_equal(*content_line(&c, "format"), "pt");
    assert_string_equal(*content_line(&c, "lockstep.model"), "mlp:784,16,10");
    assert_string_equal(*content_line(&c, "lockstep.loss_sum"), "0.3333333333333333");
    assert_string_equal(*content_line(&c, "lockstep.epoch_steps"), "2");
    ls_safetensors_close(c.file);
    small_run_close(&r);
}

TEST_IN(scratch, a_nan_is_data) {
    ls_train_options options = small_run_options();
    struct small_run saved = small_run_open(&options), loaded = fresh(&options);
    struct ls_position position;
    ls_model_parameter(saved.model, 2)->data[3] = NAN;
    saved.checkpointed.options = &saved.options;
    assert_int_equal(
        ls_checkpoint_save(&saved.checkpointed, &(struct ls_position){.last_loss = NAN}, scratch_path("a")), LS_OK);
    stderr_begin();
    assert_int_equal(load(&loaded, &position), LS_OK);
    stderr_end();
    assert_true(isnan(ls_model_parameter(loaded.model, 2)->data[3]) && isnan(position.last_loss));
    assert_true(small_run_state(&loaded) == small_run_state(&saved));
    small_run_close(&saved);
    small_run_close(&loaded);
}

/* --- state of the mode ------------------------------------------------------------------------------------------- */

static const int64_t own_memory[] = {3, 1, 2};
static int64_t given_memory[3];
static size_t given_count;

static void get_resume_state(const ls_parallel *p, const int64_t **values, size_t *count) {
    (void)p;
    *values = own_memory;
    *count = 3;
}

static ls_status set_resume_state(ls_parallel *p, const int64_t *values, size_t count) {
    (void)p;
    given_count = count;
    if (count != 3) return LS_ERR_INVALID;
    memcpy(given_memory, values, sizeof given_memory);
    return LS_OK;
}

static ls_status refuse_resume_state(ls_parallel *p, const int64_t *values, size_t count) {
    (void)p, (void)values, (void)count;
    return ls_fail(LS_ERR_INVALID, "these are not mine");
}

TEST_IN(scratch, a_modes_memory_comes_back) {
    ls_train_options options = small_run_options();
    struct small_run r = small_run_open(&options), other = fresh(&options);
    struct ls_position position;
    struct ls_process_ops own = {.get_resume_state = get_resume_state, .set_resume_state = set_resume_state};
    struct ls_mode another = *other.parallel->mode;
    r.parallel->process = other.parallel->process = &own;
    r.checkpointed.options = &r.options;
    assert_int_equal(ls_checkpoint_save(&r.checkpointed, &somewhere, scratch_path("a")), LS_OK);
    stderr_begin();
    assert_int_equal(load(&r, &position), LS_OK);
    assert_int_equal(given_count, 3);
    assert_memory_equal(given_memory, own_memory, sizeof own_memory);
    given_count = 0; /* another mode does not use it */
    another.name = "something else";
    other.parallel->mode = &another;
    assert_int_equal(load(&other, &position), LS_OK);
    assert_non_null(strstr(stderr_end(), "mode something else (was single device)"));
    assert_int_equal(given_count, 0);
    /* refused states change nothing */
    assert_int_equal(ls_model_init(r.model, 9), LS_OK);
    uint64_t before = small_run_state(&r);
    own.set_resume_state = refuse_resume_state;
    assert_int_equal(load(&r, &position), LS_ERR_INVALID);
    scratch_expect_error("/a: mode.memory", "these are not mine");
    assert_true(small_run_state(&r) == before);
    small_run_close(&r);
    small_run_close(&other);
}

/* --- differences that are allowed -------------------------------------------------------------------------------- */

TEST_IN(scratch, what_else_is_different_is_noted_once) {
    ls_train_options options = small_run_options();
    options.precision = LS_FP16;
    struct small_run saved = trained(&options), loaded;
    struct ls_position position;
    options.precision = LS_FP32; /* without a loss scaler */
    options.seed = 4;
    options.shuffle = false;
    loaded = fresh(&options);
    stderr_begin();
    assert_int_equal(load(&loaded, &position), LS_OK);
    const char *said = stderr_end();
    assert_non_null(strstr(said, "/a: going on after step 5, in epoch 2; other than before: precision fp32 (was fp16), "
                                 "seed 4 (was 0), shuffling off (was on)\n"));
    assert_ptr_equal(strchr(said, '\n'), strrchr(said, '\n'));
    loaded.parallel->rank = 1; /* rank 1, which leaves the note to rank 0 */
    stderr_begin();
    assert_int_equal(load(&loaded, &position), LS_OK);
    assert_string_equal(stderr_end(), "");
    loaded.parallel->rank = 0;
    small_run_close(&saved);
    small_run_close(&loaded);
}

/* Each of these options affects the next steps. */
TEST_IN(scratch, another_recipe_is_noted) {
    ls_train_options options = small_run_options();
    options.optimizer = LS_SGD;
    options.momentum = 0.9;
    struct small_run saved = trained(&options), loaded;
    struct ls_position position;
    options.learning_rate = 0.1;
    options.lr_scale = LS_RATE_SQRT;
    options.momentum = 0.5;
    options.nesterov = true;
    options.weight_decay = 1e-4;
    options.clip_norm = 2.5;
    options.growth_interval = 7;
    options.sync_bn = options.tf32 = true;
    loaded = fresh(&options);
    loaded.parallel->sent_as = LS_BF16;
    loaded.parallel->join_rule = "dividing by initial ranks";
    stderr_begin();
    assert_int_equal(load(&loaded, &position), LS_OK);
    assert_non_null(strstr(stderr_end(),
                           "; other than before: learning rate 0.1 (was 0.001), scaling of the learning rate sqrt "
                           "(was none), momentum 0.5 (was 0.9), Nesterov's momentum on (was off), weight decay 0.0001 "
                           "(was 0), clipping 2.5 (was none), growth interval of the loss scale 7 (was 2000), "
                           "synchronised batch norm on (was off), compression of gradients bf16 (was none), joining of "
                           "ranks dividing by initial ranks (was off), TF32 on (was off)\n"));
    small_run_close(&saved);
    small_run_close(&loaded);
}

/* A missing line is neither a difference nor damage. */
static void drop_line(struct content *c, const char *key) {
    const char **value = content_line(c, key);
    ls_safetensors_text *line = (ls_safetensors_text *)((char *)value - offsetof(ls_safetensors_text, value));
    *line = c->lines[--c->line_count];
}

TEST_IN(scratch, files_of_earlier_versions_are_read) {
    static const char *const later[] = {"lr",      "lr_scale", "momentum", "nesterov", "weight_decay",   "clip_norm",
                                        "sync_bn", "compress", "join",     "tf32",     "growth_interval"};
    ls_train_options options = small_run_options();
    struct small_run saved = trained(&options), loaded = fresh(&options);
    struct ls_position position;
    struct content c = content_open(scratch_path("a"));
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        char key[60];
        snprintf(key, sizeof key, "lockstep.%s", later[i]);
        drop_line(&c, key);
    }
    drop_line(&c, LS_SAFETENSORS_CRC32);
    content_close(&c, scratch_path("a"));
    stderr_begin();
    assert_int_equal(load(&loaded, &position), LS_OK);
    assert_null(strstr(stderr_end(), "other than before"));
    assert_true(small_run_state(&loaded) == small_run_state(&saved));
    small_run_close(&saved);
    small_run_close(&loaded);
}

/* A file may also be of the order of --no-set-epoch. */
TEST_IN(scratch, a_forgotten_epoch_is_noted) {
    ls_train_options options = small_run_options();
    options.shuffle = true;
    options.set_epoch = false;
    struct small_run saved = trained(&options), same = fresh(&options), other;
    struct ls_position position;
    stderr_begin();
    assert_int_equal(load(&same, &position), LS_OK);
    assert_null(strstr(stderr_end(), "other than before"));
    options.set_epoch = true;
    other = fresh(&options);
    stderr_begin();
    assert_int_equal(load(&other, &position), LS_OK);
    assert_non_null(strstr(stderr_end(), "; other than before: shuffling on (was on without set_epoch)\n"));
    small_run_close(&saved);
    small_run_close(&same);
    small_run_close(&other);
}

/* --- several ranks ----------------------------------------------------------------------------------------------- */

static double other_hash; /* the difference of rank 1's hash */

static ls_status gather(ls_parallel *p, const double *values, size_t count, double *all) {
    for (size_t i = 0; i < count; i++) all[i] = all[count + i] = values[i];
    all[2 * count - 1] += other_hash;
    return p->world_size == 2 ? LS_OK : LS_ERR_INVALID;
}

TEST_IN(scratch, ranks_that_read_different_files_find_out) {
    ls_train_options options = small_run_options();
    struct small_run r = trained(&options);
    struct ls_position position;
    r.parallel->world_size = 2;
    r.parallel->process = &(struct ls_process_ops){.gather_from_ranks = gather};
    other_hash = 0;
    stderr_begin();
    assert_int_equal(load(&r, &position), LS_OK);
    stderr_end();
    other_hash = 1;
    assert_int_equal(ls_model_init(r.model, 9), LS_OK);
    uint64_t before = small_run_state(&r);
    assert_int_equal(load(&r, &position), LS_ERR_INVALID);
    scratch_expect_error("rank 0 and rank 1 have read different files", "/a");
    assert_true(small_run_state(&r) == before);
    r.parallel->world_size = 1;
    small_run_close(&r);
}

/* One bit of the header, of the data and of the end: the hash covers the whole file. */
TEST_IN(scratch, the_hash_is_of_the_whole_file) {
    ls_safetensors *file;
    const float data[] = {1, 2, 3};
    ls_safetensor tensor = {"w", LS_SAFETENSOR_F32, 1, {3}, data, sizeof data};
    uint64_t hashes[4];
    for (int i = 0; i < 4; i++) {
        const float changed[] = {i == 1 ? 4 : 1, 2, i == 2 ? 4 : 3};
        const ls_safetensors_text line = {"k", i == 3 ? "w" : "v"};
        tensor.data = changed;
        assert_int_equal(ls_safetensors_write(scratch_path("h"), &tensor, 1, &line, 1), LS_OK);
        assert_int_equal(ls_safetensors_open(&file, scratch_path("h")), LS_OK);
        hashes[i] = ls_safetensors_hash(file);
        assert_true(i == 0 || hashes[i] != hashes[0]);
        ls_safetensors_close(file);
    }
}
