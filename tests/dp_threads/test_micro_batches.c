/* The order of work between two micro-batches of a step, where no update of the parameters makes all replicas wait.
 * tests/parallel checks that results and bytes are right. */
#include "dp_threads/dp.h"
#include "tests/base/test.h"
#include "tests/parallel/plan.h"

static ls_status do_nothing(const void *arguments) {
    (void)arguments;
    return LS_OK;
}

/* A replica's outputs may be written where another replica's gradient of the previous micro-batch is: that gradient is
 * read first, however far the other replica is behind. Random orders of whole steps hardly ever produce this case. */
TEST(outputs_do_not_overtake_the_gradients_before_them) {
    struct plan plan = {.mode = MODE_DP, .devices = 2, .model = "mlp:8,4", .batch = 8, .accumulate = 2};
    plan.output_device = 1;
    plan.streams = "shuffle:1";
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    struct session session;
    assert_int_equal(session_open(&session, &plan, NULL), LS_OK);
    struct dp *dp = dp_of(session.parallel);
    struct dp_replica *behind = &dp->replicas[0], *ahead = &dp->replicas[1];
    float outputs[4] = {5, 5, 5, 5};
    for (size_t i = 0; i < 16; i++) dp->gathered_outputs[i] = 1;
    behind->rows = 2;
    ls_event_record(dp->loss_taken, ahead->compute);
    for (int i = 0; i < 100; i++) {
        ls_stream_launch(behind->copy, "delay", do_nothing, "", 1);
    }
    float *gradient = dp_scatter_gradient(dp, behind);
    dp_end_backward(behind);
    dp_end_backward(ahead);
    dp->base.batch->index = 1;
    dp->active = 2;
    ahead->begin = ahead->rows = 1;
    ahead->y = outputs;
    dp_gather_outputs(dp, ahead);
    assert_int_equal(session_synchronize(&session), LS_OK);
    for (size_t i = 0; i < 8; i++) assert_true(gradient[i] == 1);
    assert_true(dp->gathered_outputs[4] == 5);
    session_close(&session);
}

/* 5 samples on 4 devices are 2 2 1, but 4 are 1 1 1 1: in a step with several micro-batches all replicas take part. */
TEST(every_replica_goes_through_every_micro_batch) {
    struct plan plan = {.mode = MODE_DP, .devices = 4, .model = "mlp:8,4", .batch = 9, .samples = 9, .steps = 1};
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    for (plan.accumulate = 1; plan.accumulate <= 2; plan.accumulate++) {
        struct session session;
        struct samples samples;
        assert_int_equal(session_open(&session, &plan, NULL), LS_OK);
        assert_true(samples_make(&samples, &plan, session.model, 0, 1));
        assert_int_equal(session_step(&session, samples.batches), LS_OK);
        const struct dp *dp = dp_of(session.parallel);
        assert_int_equal(dp->active, plan.accumulate == 1 ? 3 : 4);
        assert_int_equal(dp->replicas[3].rows, plan.accumulate == 1 ? 0 : 1);
        samples_free(&samples);
        session_close(&session);
    }
}
