#include "tests/optim/updates.h"

#include <string.h>

#include "common/base/random.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

struct updates updates_open(const char *model, const ls_optimizer_options *options) {
    struct updates u = {.device = open_device(0)};
    u.model = make_model(u.device, model, 1, 0);
    assert_int_equal(ls_optimizer_create(&u.optimizer, u.model, options), LS_OK);
    ls_model_parameters(u.model, &u.parameters, &u.count);
    ls_model_gradients(u.model, &u.gradients, &u.count);
    return u;
}

void updates_close(struct updates *u) {
    ls_optimizer_destroy(u->optimizer);
    ls_model_destroy(u->model);
    close_empty_device(u->device);
}

void updates_fill(struct updates *u, int turn, float factor) {
    ls_generator generator;
    ls_generator_seed(&generator, (uint64_t)turn);
    for (size_t p = 0; p < ls_model_parameter_count(u->model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(u->model, p);
        ls_fill_uniform(&generator, tensor->gradient, tensor->count, -1, 1);
        for (size_t i = 0; i < tensor->count; i++) tensor->gradient[i] *= factor;
    }
}

void updates_step(struct updates *u, const bool *skip) {
    assert_int_equal(ls_optimizer_step(u->optimizer, skip), LS_OK);
    assert_int_equal(ls_device_synchronize(u->device), LS_OK);
}

bool updates_agree(const struct updates *u, const struct updates *other) {
    return u->count == other->count && memcmp(u->parameters, other->parameters, u->count * sizeof(float)) == 0;
}
