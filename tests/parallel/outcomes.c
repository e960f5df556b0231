#include "tests/parallel/outcomes.h"

#include <math.h>
#include <stdio.h>

#include "tests/base/test.h"

/* Text that identifies the plan in a message. */
static const char *text_of(const struct plan *plan) {
    static char text[256];
    snprintf(text, sizeof text, "%s by %s on %d devices, rule %d, %s, %zu micro-batches, %d blocks prefetched",
             plan->model, plan_modes[plan->mode].mode->name, plan->devices, (int)plan->optimizer.kind,
             ls_dtype_name(plan->precision), (size_t)plan->accumulate, plan->prefetch);
    return text;
}

struct outcome *outcomes_run(const struct plan *plan) {
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    run_plan(plan, outcomes, NULL);
    for (int r = 0; r < plan_ranks(plan); r++) {
        const struct outcome *o = &outcomes[r];
        if (o->status != LS_OK)
            fail_msg("%s: rank %d: %s (%s)", text_of(plan), r, ls_status_text(o->status), o->message);
        if (first_difference(outcomes, o, plan->steps) >= 0)
            fail_msg("%s: rank %d has other weights than rank 0", text_of(plan), r);
        assert_memory_equal(outcomes->scales, o->scales, sizeof o->scales);
    }
    assert_true(plan->steps < 2 || outcomes->weights[0] != outcomes->weights[plan->steps - 1]);
    return outcomes;
}

void outcomes_free(struct outcome *outcomes) { shared_free(outcomes, MAX_RANKS * sizeof *outcomes); }

void outcomes_expect_equal(const struct plan *plan, const struct outcome *expected, const struct outcome *got) {
    for (int r = 0; r < plan_ranks(plan); r++) {
        const struct outcome *e = &expected[r], *g = &got[r];
        int step = first_difference(e, g, plan->steps);
        if (step >= 0) fail_msg("%s: rank %d: other weights after step %d", text_of(plan), r, step + 1);
        assert_memory_equal(e->state, g->state, sizeof e->state);
        assert_memory_equal(e->losses, g->losses, sizeof e->losses);
        assert_memory_equal(e->scales, g->scales, sizeof e->scales);
        assert_int_equal(e->skipped, g->skipped);
        assert_int_equal(e->batches_tracked, g->batches_tracked);
    }
}

void outcomes_expect_losses(const struct plan *plan, const struct plan *other, double tolerance) {
    struct outcome *expected = outcomes_run(other), *got = outcomes_run(plan);
    for (size_t k = 0; k < plan->steps; k++) {
        double wanted = global_loss(other, expected, k), loss = global_loss(plan, got, k);
        if (!(fabs(loss - wanted) <= tolerance * wanted))
            fail_msg("%s: loss %zu is %.9g, not %.9g", text_of(plan), k + 1, loss, wanted);
    }
    outcomes_free(expected);
    outcomes_free(got);
}
