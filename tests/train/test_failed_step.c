/* The calls of a mode return before their enqueued work ends: a failure sticks to the device, and the driver must check
 * it after each call. */
#define _GNU_SOURCE

#include "common/seam/step.h"
#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/train/small_run.h"

enum call { PREPARE, FORWARD_BACKWARD, REDUCE, APPLY, CALLS };
enum { FAILING_STEP = 2 };

static struct ls_parallel_ops real;
static enum call failing;
static int late; /* calls after the one that failed */

static void note(ls_parallel *p, enum call call) {
    if (p->step > FAILING_STEP || (p->step == FAILING_STEP && call > failing)) late++;
    if (p->step == FAILING_STEP && call == failing) ls_device_fail(p->devices[0], LS_ERR_IO);
}

static void prepare(ls_parallel *p, const ls_batch *batch) {
    real.prepare(p, batch);
    note(p, PREPARE);
}

static ls_status forward_backward(ls_parallel *p) {
    ls_status status = real.forward_backward(p);
    note(p, FORWARD_BACKWARD);
    return status;
}

static ls_status reduce(ls_parallel *p) {
    ls_status status = real.reduce(p);
    note(p, REDUCE);
    return status;
}

static ls_status apply(ls_parallel *p) {
    ls_status status = real.apply(p);
    note(p, APPLY);
    return status;
}

TEST_IN(scratch, a_failure_ends_the_run_behind_the_call_that_met_it) {
    for (failing = PREPARE; failing < CALLS; failing++) {
        ls_train_options options = small_run_options();
        struct small_run r = small_run_open(&options);
        real = r.ops;
        r.ops.prepare = prepare;
        r.ops.forward_backward = forward_backward;
        r.ops.reduce = reduce;
        r.ops.apply = apply;
        r.parallel->ops = &r.ops;
        late = 0;
        assert_int_equal(small_run_train(&r), LS_ERR_IO);
        assert_int_equal(r.parallel->step, FAILING_STEP);
        assert_int_equal(late, 0);
        small_run_close(&r);
    }
}

TEST_IN(scratch, nothing_is_updated_behind_a_failure) {
    ls_train_options options = small_run_options();
    struct small_run r = small_run_open(&options);
    uint64_t before, after;
    float *gradients;
    size_t count;
    ls_model_gradients(r.model, &gradients, &count);
    ls_fill(ls_device_stream(r.device, LS_STREAM_COMPUTE), gradients, 1, count);
    assert_int_equal(ls_model_hash(r.model, &before), LS_OK);
    ls_device_fail(r.device, LS_ERR_IO);
    assert_int_equal(ls_step_update(r.parallel), LS_ERR_IO);
    assert_int_equal(ls_device_synchronize(r.device), LS_ERR_IO);
    assert_int_equal(ls_model_hash(r.model, &after), LS_OK);
    assert_true(before == after);
    assert_int_equal(ls_step_update(r.parallel), LS_OK);
    assert_int_equal(ls_model_hash(r.model, &after), LS_OK);
    assert_true(before != after); /* and the device works again */
    small_run_close(&r);
}

static ls_device *beside;

static ls_status apply_and_fail_beside(ls_parallel *p) {
    if (p->step == FAILING_STEP) ls_device_fail(beside, LS_ERR_IO);
    return real.apply(p);
}

/* As if a replica's gradients did not arrive: its device is checked at the next hand-off, and the last step has
 * none. */
TEST_IN(scratch, nothing_is_saved_behind_a_failure_of_any_device) {
    ls_train_options options = small_run_options();
    options.steps = FAILING_STEP + 1;
    options.save = scratch_path("a");
    struct small_run r = small_run_open(&options);
    beside = open_device(1);
    r.parallel->devices[1] = beside;
    r.parallel->local_device_count = r.parallel->device_count = 2;
    ls_phase_begin(&r.parallel->clocks[1], beside);
    real = r.ops;
    r.ops.apply = apply_and_fail_beside;
    r.parallel->ops = &r.ops;
    assert_int_equal(small_run_train(&r), LS_ERR_IO);
    assert_int_equal(scratch_file_count(), 0);
    r.parallel->local_device_count = r.parallel->device_count = 1;
    close_empty_device(beside);
    small_run_close(&r);
}
