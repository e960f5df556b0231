/* How often the host reads the losses: the shorter the steps, the more of them between two reads. The test sets the
 * clock. */
#include "common/base/clock.h"
#include "common/report/deferred.h"
#include "tests/base/test.h"
#include "tests/train/small_run.h"

TEST(short_steps_are_looked_at_less_often) {
    enum { LEAST = 64, STEPS = 10 };
    static const struct {
        double elapsed_us; /* of ten steps; the time of the test itself is added */
        int64_t interval;
    } rows[] = {{-1e12, LS_LOSS_RING}, {1e12, LEAST}};
    ls_train_options options = small_run_options();
    struct small_run run = small_run_open(&options);
    ls_deferred deferred;
    assert_int_equal(ls_deferred_open(&deferred, run.parallel, &options, NULL, 0), LS_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run.parallel->step += STEPS;
        assert_true(ls_deferred_is_due(&deferred) == (i == 0));
        deferred.since_us = ls_now_us() - rows[i].elapsed_us;
        assert_int_equal(ls_deferred_read(&deferred), LS_OK);
        assert_int_equal(deferred.interval, rows[i].interval);
        assert_int_equal(deferred.next, (int64_t)run.parallel->step + rows[i].interval);
    }
    ls_deferred_close(&deferred);
    run.parallel->step = 0;
    small_run_close(&run);
}
