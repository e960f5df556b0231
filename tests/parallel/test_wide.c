/* Regression: targets instead of labels. */
#include <math.h>

#include "tests/base/test.h"
#include "tests/parallel/plan.h"

TEST(dp_and_ddp_share_out_targets) {
    struct plan plan = {
        .mode = MODE_DP, .devices = 2, .model = "wide:64,128,48", .batch = 8, .steps = 4, .samples = 32};
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    struct outcome *outcomes = shared_alloc(3 * sizeof *outcomes), *ddp = outcomes + 1;
    assert_non_null(outcomes);
    run_plan(&plan, outcomes, NULL);
    plan.mode = MODE_DDP;
    run_plan(&plan, ddp, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(outcomes[i].status, LS_OK);
        assert_int_equal(first_difference(&outcomes[i], &outcomes[0], plan.steps), -1);
    }
    for (size_t step = 0; step < plan.steps; step++) {
        double loss = outcomes[0].losses[step];
        assert_true(fabs(global_loss(&plan, ddp, step) - loss) <= 1e-6 * loss);
    }
    shared_free(outcomes, 3 * sizeof *outcomes);
}
