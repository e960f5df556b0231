#include "tests/ddp_procs/golden_deep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"

void golden_deep_read(const cJSON *list, double numbers[GOLDEN_DEEP_STEPS]) {
    assert_int_equal(cJSON_GetArraySize(list), GOLDEN_DEEP_STEPS);
    for (int k = 0; k < GOLDEN_DEEP_STEPS; k++) numbers[k] = cJSON_GetArrayItem(list, k)->valuedouble;
}

struct golden_deep golden_deep_make(enum mode mode, int ranks, bool scales, const cJSON *losses) {
    struct golden_deep run = {.plan = job_plan("deep", ranks, 32, 0), .scales = scales};
    run.plan.mode = mode;
    run.plan.strided = true;
    run.plan.seed = 7;
    run.plan.optimizer = ls_optimizer_defaults(scales ? LS_SGD : LS_ADAM);
    run.plan.optimizer.learning_rate = scales ? 5e-4 : 1e-4;
    golden_deep_read(losses, run.losses);
    return run;
}

static void scale_parameters(const struct rank *rank, ls_model *model) {
    ls_parameters *all = ls_model_tensors(model);
    for (size_t p = 0; p < all->count; p++) {
        const struct ls_tensor *tensor = &all->tensors[p];
        bool is_weight = strstr(tensor->name, "weight") != NULL;
        float *values = calloc(ls_aligned_floats(tensor->count), sizeof *values);
        CHECK(values && ls_parameters_read(all, p, values) == LS_OK);
        for (size_t i = 0; i < tensor->count; i++) values[i] *= is_weight ? sqrtf(6) : 0;
        CHECK(ls_parameters_write(all, p, values) == LS_OK);
        free(values);
    }
    ls_model_parameters_changed(model);
}

void golden_deep_open(struct rank *rank, struct job *job, const struct golden_deep *run) {
    job_open(rank, job, run->plan, NULL);
    if (run->scales) scale_parameters(rank, job->session.model);
}

void golden_deep_expect(const struct rank *rank, const char *what, size_t k, double found, double expected,
                        double tolerance) {
    if (!(fabs(found - expected) <= tolerance))
        fprintf(stderr, "%s of step %zu is %.9g, PyTorch's %.9g\n", what, k + 1, found, expected);
    CHECK(fabs(found - expected) <= tolerance);
}

/* With larger initial weights, losses depend strongly on the weights' last bits: PyTorch's own losses on one device
 * differ by 7e-5 between fp32 and double at the fifth step. */
void golden_deep_expect_loss(const struct rank *rank, struct job *job, const struct golden_deep *run, size_t k) {
    ls_parallel *p = job->session.parallel;
    double loss, tolerance = run->scales ? (k < 4 ? 1e-4 : 3e-4) * run->losses[k] : 1e-5;
    CHECK(session_loss(&job->session, k, &loss) == LS_OK);
    if (p->loss_elsewhere) loss = 0;
    CHECK(ls_sum_over_ranks(p, &loss, 1) == LS_OK);
    golden_deep_expect(rank, "the loss", k, loss / p->data_size, run->losses[k], tolerance);
}
