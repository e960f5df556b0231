/* The loop, interrupted and resumed on one device, gives the same bits as without an interruption. Runs of several
 * devices and processes: tests/programs/test_resume.c. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/checkpoint/weights.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/checkpoint/content.h"
#include "tests/train/small_run.h"

/* Trains to the end: FOLDER/NAME is the checkpoint at the end, FOLDER/NAME.losses the losses. */
static void run_whole(const ls_train_options *options, const char *name, const char *resume) {
    char losses[64];
    snprintf(losses, sizeof losses, "%s.losses", name);
    remove(scratch_path(losses)); /* --resume would refuse to overwrite it */
    struct small_run r = small_run_open(options);
    if (resume) assert_int_equal(ls_model_init(r.model, 9), LS_OK); /* none of these weights may remain */
    r.options.save = scratch_path(name);
    r.options.dump_losses = scratch_path(losses);
    r.options.resume = resume;
    stderr_begin();
    assert_int_equal(small_run_train(&r), LS_OK);
    stderr_end();
    small_run_close(&r);
}

/* Trains with a checkpoint every `every` steps to FOLDER/part, and dies at the beginning of step `end`. */
static void run_until(const ls_train_options *options, int64_t every, uint64_t end) {
    struct small_run r = small_run_open(options);
    r.options.save = scratch_path("part");
    r.options.save_every = every;
    small_run_die_at(&r, end);
    assert_int_equal(small_run_train(&r), LS_ERR_SYSTEM);
    small_run_close(&r);
}

/* FOLDER/some.losses equals FOLDER/all.losses from that line on. */
static void expect_tail(const char *all, const char *some, int64_t line) {
    size_t nbytes;
    char *whole = scratch_read(scratch_path(all), &nbytes), *tail = scratch_read(scratch_path(some), &nbytes);
    const char *at = whole;
    for (int64_t i = 0; i < line; i++) at = strchr(at, '\n') + 1;
    assert_string_equal(at, tail);
    free(whole);
    free(tail);
}

/* The checkpoint at the end covers everything: weights, moments, scaler, sums of losses and position. */
static void expect_resumable(const ls_train_options *options, int64_t every, uint64_t end) {
    run_whole(options, "whole", NULL);
    run_until(options, every, end);
    run_whole(options, "again", scratch_path("part"));
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
    expect_tail("whole.losses", "again.losses", (int64_t)end / every * every);
}

TEST_IN(scratch, within_and_between_epochs) {
    ls_train_options options = small_run_options(); /* two epochs of three steps */
    for (int64_t every = 1; every <= 5; every++) expect_resumable(&options, every, 5);
    options.steps = 7; /* in the middle of the third epoch */
    expect_resumable(&options, 4, 6);
}

TEST_IN(scratch, under_each_recipe) {
    ls_train_options options = small_run_options();
    options.batch_size = 200;
    options.lr_schedule = LS_SCHEDULE_COSINE; /* a schedule that depends on the length of the run */
    options.warmup_steps = 6;
    expect_resumable(&options, 4, 6); /* in the middle of the warm-up */
    options.accumulate = 3;
    options.clip_norm = 0.5;
    options.precision = LS_FP16;
    options.init_scale = 1e12; /* the first steps are skipped, then the scale grows */
    options.growth_interval = 3;
    expect_resumable(&options, 7, 11);
    options.precision = LS_BF16;
    options.lr_schedule = LS_SCHEDULE_STEP;
    options.decay_epochs = 1;
    options.optimizer = LS_SGD;
    options.momentum = 0.9;
    expect_resumable(&options, 11, 12);
}

TEST_IN(scratch, whoever_loads_the_data) {
    ls_train_options options = small_run_options();
    for (int workers = 0; workers <= 3; workers += 3) {
        options.workers = workers;
        options.data = "data/digits";
        expect_resumable(&options, 2, 5);
        options.data = "stream:data/digits";
        expect_resumable(&options, 2, 5);
    }
}

/* Training with checkpoints gives the same results as without. */
TEST_IN(scratch, checkpoints_change_nothing) {
    ls_train_options options = small_run_options();
    options.model = "convnet";
    options.batch_size = 30;
    options.steps = 6;
    run_whole(&options, "whole", NULL);
    options.save_every = 1;
    run_whole(&options, "often", NULL);
    assert_true(same_files(scratch_path("whole"), scratch_path("often")));
    expect_tail("whole.losses", "often.losses", 0);
}

/* --- runs that are complete -------------------------------------------------------------------------------------- */

static const char *said_by(const ls_train_options *options, const char *name, const char *resume) {
    struct small_run r = small_run_open(options);
    r.options.save = scratch_path(name);
    r.options.resume = resume;
    stderr_begin();
    assert_int_equal(small_run_train(&r), LS_OK);
    small_run_close(&r);
    return stderr_end();
}

TEST_IN(scratch, a_finished_run_says_so) {
    ls_train_options options = small_run_options();
    run_whole(&options, "whole", NULL);
    assert_non_null(strstr(said_by(&options, "again", scratch_path("whole")),
                           "nothing is left to train: --epochs 2 was reached when "));
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
    options.steps = 5;
    run_whole(&options, "whole", NULL);
    assert_non_null(strstr(said_by(&options, "again", scratch_path("whole")), "--steps 5 was reached when "));
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
}

static void expect_position(const char *name, const char *step, const char *epoch) {
    struct content c = content_open(scratch_path(name));
    assert_string_equal(*content_line(&c, "lockstep.step"), step);
    assert_string_equal(*content_line(&c, "lockstep.epoch"), epoch);
    ls_safetensors_close(c.file);
}

/* A run of one epoch is extended to two, though both options specify a length; the batch size may change, too. */
TEST_IN(scratch, more_epochs_go_on) {
    ls_train_options options = small_run_options();
    run_whole(&options, "whole", NULL);
    options.epochs = 1;
    run_whole(&options, "half", NULL);
    options.epochs = 2;
    run_whole(&options, "again", scratch_path("half"));
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
    expect_tail("whole.losses", "again.losses", 3);
    options.batch_size = 300;
    run_whole(&options, "other", scratch_path("half"));
    expect_position("other", "8", "2"); /* 3 steps and 5 */
    options.epochs = 1;
    run_whole(&options, "half", NULL);
    options.epochs = 2;
    options.batch_size = 600;
    run_whole(&options, "other", scratch_path("half"));
    expect_position("other", "8", "2"); /* 5 steps and 3 */
}

/* --- a checkpoint that cannot be written ------------------------------------------------------------------------- */

static ls_status (*apply)(ls_parallel *p);

static ls_status apply_and_remove_folder(ls_parallel *p) {
    (void)rmdir(scratch_path("folder"));
    return apply(p);
}

/* The folder is removed while the run trains. The trained weights are not lost with it. */
TEST_IN(scratch, the_rest_of_a_run_that_cannot_be_saved_stays) {
    char weights[700], checkpoint[700], summary[700]; /* the folder's paths become invalid */
    ls_train_options options = small_run_options();
    run_whole(&options, "whole", NULL);
    struct small_run r = small_run_open(&options), again = small_run_open(&options);
    snprintf(weights, sizeof weights, "%s", scratch_path("weights"));
    snprintf(checkpoint, sizeof checkpoint, "%s", scratch_path("folder/checkpoint"));
    snprintf(summary, sizeof summary, "%s", scratch_path("summary"));
    assert_int_equal(mkdir(scratch_path("folder"), 0755), 0);
    r.options.save = checkpoint;
    r.options.save_weights = weights;
    r.options.summary = summary;
    apply = r.ops.apply;
    r.ops.apply = apply_and_remove_folder;
    r.parallel->ops = &r.ops;
    assert_int_equal(small_run_train(&r), LS_ERR_IO);
    scratch_expect_error("/folder/checkpoint: No such file or directory", NULL);
    assert_int_equal(access(summary, F_OK), 0);
    assert_int_equal(ls_weights_load(again.model, weights, true), LS_OK);
    uint64_t left, right;
    assert_int_equal(ls_model_hash(r.model, &left), LS_OK);
    assert_int_equal(ls_model_hash(again.model, &right), LS_OK);
    assert_true(left == right);
    small_run_close(&r);
    small_run_close(&again);
}

/* --- files that may not exist yet --------------------------------------------------------------------------------- */

/* The same options each time, as a launcher passes them when it restarts a job: a run that dies, then one that
 * resumes. */
TEST_IN(scratch, a_job_that_is_started_again_goes_on) {
    char part[700];
    ls_train_options options = small_run_options();
    run_whole(&options, "whole", NULL);
    snprintf(part, sizeof part, "%s", scratch_path("part"));
    options.resume_if_present = part;
    stderr_begin();
    run_until(&options, 2, 5);
    assert_non_null(strstr(stderr_end(), "/part is not there yet: this run begins at step 0\n"));
    assert_int_equal(access(scratch_path("part"), F_OK), 0);
    run_whole(&options, "again", NULL);
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
    expect_tail("whole.losses", "again.losses", 4);
}

TEST_IN(scratch, a_run_that_begins_anew_says_so) {
    ls_train_options options = small_run_options();
    options.resume_if_present = scratch_path("none");
    assert_non_null(strstr(said_by(&options, "whole", NULL), "/none is not there yet: this run begins at step 0\n"));
    options.resume_if_present = scratch_path("whole"); /* now it exists */
    assert_non_null(strstr(said_by(&options, "again", NULL), "nothing is left to train"));
    scratch_write("damaged", "", 0);
    struct small_run r = small_run_open(&options);
    r.options.resume_if_present = scratch_path("damaged");
    assert_int_equal(small_run_train(&r), LS_ERR_FORMAT);
    scratch_expect_error("/damaged", NULL);
    r.options.resume_if_present = scratch_path("damaged/deeper"); /* the state of this path cannot be determined */
    assert_int_equal(small_run_train(&r), LS_ERR_IO);
    scratch_expect_error("/damaged/deeper", "Not a directory");
    small_run_close(&r);
}

static double finders; /* of two ranks */

static ls_status sum_finders(ls_parallel *p, double *values, size_t count) {
    assert_true(count == 1 && p->world_size == 2);
    *values = finders;
    return LS_OK;
}

/* All ranks fail, whether they have found it or not: otherwise they would train different models. */
TEST_IN(scratch, ranks_must_agree_on_what_is_there) {
    ls_train_options options = small_run_options();
    run_whole(&options, "whole", NULL);
    struct small_run r = small_run_open(&options);
    const char *const names[] = {"none", "whole"}, *path;
    r.parallel->process = &(struct ls_process_ops){.sum_over_ranks = sum_finders};
    r.parallel->world_size = 2;
    r.parallel->rank = 1; /* rank 1, which leaves notes to rank 0 */
    r.checkpointed.options = &r.options;
    for (int there = 0; there < 2; there++) {
        r.options.resume_if_present = scratch_path(names[there]);
        finders = 1;
        assert_int_equal(ls_checkpoint_find(&r.checkpointed, &path), LS_ERR_INVALID);
        scratch_expect_error("only 1 of 2 ranks find ", names[there]);
        finders = 2 * there;
        assert_int_equal(ls_checkpoint_find(&r.checkpointed, &path), LS_OK);
        assert_ptr_equal(path, there ? r.options.resume_if_present : NULL);
    }
    r.parallel->world_size = 1;
    small_run_close(&r);
}
