/* Regression: targets instead of labels. The one model that has them is large, so this is one step on two devices, by the cheapest
 * rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "tests/parallel/plan.h"

static void dp_and_ddp_share_out_targets(void **state) {
    (void)state;
    struct plan plan = {.mode = MODE_DP, .devices = 2, .model = "wide", .batch = 8, .steps = 1, .samples = 16};
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    struct outcome *outcomes = shared_alloc(3 * sizeof *outcomes), *ddp = outcomes + 1;
    assert_non_null(outcomes);
    run_plan(&plan, outcomes, NULL);
    plan.mode = MODE_DDP;
    run_plan(&plan, ddp, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(outcomes[i].status, LS_OK);
        assert_true(outcomes[i].weights[0] == outcomes[0].weights[0]);
    }
    double loss = outcomes[0].losses[0];
    assert_true(fabs(global_loss(&plan, ddp, 0) - loss) <= 1e-6 * loss);
    shared_free(outcomes, 3 * sizeof *outcomes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(dp_and_ddp_share_out_targets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
