/* Samples of several rows, as texts have, and inputs that are not activations: a step has the bits of a step on as many
 * samples of one row, cut at the same places. */
#include <string.h>

#include "common/nn/network_internal.h"
#include "common/seam/step.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

enum { ROWS = 12, INPUTS = 5, CLASSES = 4, MICRO_BATCHES = 2, MOST = 100 };

/* Integers whose bits are those of floats are converted to activations of the precision. */
static ls_status bits_plan(ls_layer *layer) {
    layer->out = layer->in;
    return LS_OK;
}
static void bits_forward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t count = pass->batch * ls_shape_count(layer->in);
    if (pass->dtype == LS_FP32)
        ls_copy(pass->stream, pass->y, pass->x[0], count * sizeof(float));
    else
        ls_cast(pass->stream, pass->dtype, pass->y, LS_FP32, pass->x[0], count);
}
static void bits_backward(const ls_layer *layer, const struct ls_pass *pass) { (void)layer, (void)pass; }
static const struct ls_layer_kind bits = {
    .name = "bits", .plan = bits_plan, .forward = bits_forward, .backward = bits_backward};

static ls_network *make_network(int rows, ls_loss_kind loss) {
    struct ls_shape input = ls_features(INPUTS);
    input.rows = rows;
    ls_network *network = ls_network_begin(input, loss);
    assert_non_null(network);
    network->input_nbytes = ls_shape_count(input) * sizeof(int32_t);
    const ls_layer layers[] = {{.kind = &bits, .name = "bits"},
                               {.kind = &ls_linear, .name = "fc1", .units = 6, .relu = true},
                               {.kind = &ls_linear, .name = "fc2", .units = CLASSES}};
    for (size_t l = 0; l < 3; l++) assert_int_equal(ls_network_add(network, layers[l]), LS_OK);
    assert_int_equal(ls_network_finish(network), LS_OK);
    return network;
}

struct outcome {
    float weights[MOST], loss;
};

static struct outcome step(int rows, ls_loss_kind loss, ls_dtype precision) {
    size_t samples = ROWS / (size_t)rows, count;
    struct outcome outcome = {{0}, 0};
    float *weights;
    ls_device *device = open_device(0);
    ls_network *network = make_network(rows, loss);
    ls_optimizer_options optimizer = ls_optimizer_defaults(LS_SGD);
    ls_model *model;
    ls_parallel *p;
    assert_int_equal(ls_model_create_of(&model, device, network, samples, precision), LS_OK);
    assert_int_equal(ls_model_init(model, 1), LS_OK);
    assert_int_equal(ls_single_create(&p, device, model, &optimizer, samples), LS_OK);
    p->micro_batches = MICRO_BATCHES;
    static const int64_t labels[ROWS] = {3, 1, 0, 2, 2, 3, 0, 1, 1, 0, 3, 2};
    float *inputs = make_values(device, ROWS * INPUTS, 4), *targets = make_values(device, ROWS * CLASSES, 5);
    bool has_labels = loss == LS_LOSS_CROSS_ENTROPY;
    assert_int_equal(ls_model_input_nbytes(model) * samples, sizeof(int32_t[ROWS][INPUTS]));
    assert_int_equal(ls_model_answer_nbytes(model) * samples,
                     has_labels ? sizeof labels : sizeof(float[ROWS][CLASSES]));
    ls_batch batch = {.inputs = inputs,
                      .labels = has_labels ? labels : NULL,
                      .targets = has_labels ? NULL : targets,
                      .count = samples,
                      .global_count = samples};
    assert_int_equal(ls_step(p, &batch), LS_OK);
    assert_int_equal(ls_parallel_synchronize(p, LS_OK), LS_OK);
    outcome.loss = *ls_parallel_step_loss(p);
    ls_model_parameters(model, &weights, &count);
    assert_true(count <= MOST && outcome.loss > 0);
    memcpy(outcome.weights, weights, count * sizeof *weights);
    ls_device_free(device, inputs);
    ls_device_free(device, targets);
    p->ops->destroy(p);
    ls_model_destroy(model);
    ls_network_destroy(network);
    close_empty_device(device);
    return outcome;
}

TEST(rows_count_as_samples_do) {
    for (int loss = LS_LOSS_CROSS_ENTROPY; loss <= LS_LOSS_SQUARED_ERROR; loss++) {
        for (int precision = LS_FP32; precision <= LS_BF16; precision++) {
            struct outcome of_one = step(1, (ls_loss_kind)loss, (ls_dtype)precision);
            struct outcome of_three = step(3, (ls_loss_kind)loss, (ls_dtype)precision);
            assert_memory_equal(&of_one, &of_three, sizeof of_one);
        }
    }
}
