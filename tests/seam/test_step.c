/* The driver of a step: which calls of a mode it makes, and in which order; where a failure ends the step; and that a
 * caller can read results between micro-batches, and between gradients and update. */
#include <string.h>

#include "common/seam/step.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/train/small_run.h"

enum { MICRO_BATCHES = 3 };

static char calls[64];
static size_t rows;  /* prepared so far */
static char failing; /* the call that fails; '\0': none */

static ls_status note(char call) {
    calls[strlen(calls)] = call;
    return call == failing ? LS_ERR_IO : LS_OK;
}

static void prepare(ls_parallel *p, const ls_batch *batch) {
    rows += batch->count;
    ls_device_fail(p->devices[0], note('p'));
}
static ls_status forward_backward(ls_parallel *p) { return (void)p, note('f'); }
static ls_status reduce(ls_parallel *p) { return (void)p, note('r'); }
static ls_status apply(ls_parallel *p) { return (void)p, note('a'); }

static const struct ls_parallel_ops noting = {
    .prepare = prepare, .forward_backward = forward_backward, .reduce = reduce, .apply = apply};

static float inputs[7 * 784];
static int64_t labels[7];
static const ls_batch seven = {.inputs = inputs, .labels = labels, .count = 7, .global_count = 7};

static struct small_run open_run(void) {
    ls_train_options options = small_run_options();
    struct small_run r = small_run_open(&options);
    r.parallel->ops = &noting;
    r.parallel->micro_batches = MICRO_BATCHES;
    rows = 0;
    failing = '\0';
    memset(calls, 0, sizeof calls);
    return r;
}

static void expect_calls(const char *wanted) {
    assert_string_equal(calls, wanted);
    memset(calls, 0, sizeof calls);
}

static void close_run(struct small_run *r) {
    (void)ls_device_synchronize(r->device); /* clears the failed device */
    r->parallel->ops = &r->ops;
    small_run_close(r);
}

TEST_IN(scratch, a_step_is_its_two_halves) {
    struct small_run r = open_run();
    assert_int_equal(ls_step(r.parallel, &seven), LS_OK);
    expect_calls("pfpfpfra");
    assert_int_equal(rows, 7);
    assert_int_equal(ls_step_gradients(r.parallel, &seven), LS_OK);
    expect_calls("pfpfpfr");
    assert_int_equal(ls_step_update(r.parallel), LS_OK);
    expect_calls("a");
    r.parallel->no_sync = true;
    assert_int_equal(ls_step_gradients(r.parallel, &seven), LS_OK);
    expect_calls("pfpfpf");
    close_run(&r);
}

static ls_batch give(void *context, int index) {
    (void)note((char)('0' + index));
    return *(const ls_batch *)context;
}

TEST_IN(scratch, micro_batches_are_asked_for_one_by_one) {
    struct small_run r = open_run();
    ls_batch each = seven;
    assert_int_equal(ls_step_gradients_of(r.parallel, give, &each), LS_OK);
    expect_calls("0pf1pf2pfr");
    assert_int_equal(rows, 21);
    close_run(&r);
}

TEST_IN(scratch, nothing_is_called_behind_a_failure) {
    static const struct {
        char call;
        const char *calls;
    } cases[] = {{'p', "p"}, {'f', "pf"}, {'r', "pfpfpfr"}, {'a', "pfpfpfra"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct small_run r = open_run();
        failing = cases[c].call;
        assert_int_equal(ls_step(r.parallel, &seven), LS_ERR_IO);
        expect_calls(cases[c].calls);
        close_run(&r);
    }
}
