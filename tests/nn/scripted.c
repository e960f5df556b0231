#include "tests/nn/scripted.h"

#include "common/nn/network_internal.h"
#include "tests/base/test.h"

static scripted_outputs outputs_of;

static ls_status scripted_plan(ls_layer *layer) {
    layer->out = (struct ls_shape){layer->units, 1, 1, .rows = layer->in.rows};
    return LS_OK;
}

static void scripted_forward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t context = ls_shape_rows(layer->in), vocabulary = (size_t)layer->units;
    assert_int_equal(pass->dtype, LS_FP32);
    assert_int_equal(ls_stream_synchronize(pass->stream), LS_OK); /* this thread continues with the results */
    for (size_t row = 0; row < pass->batch * context; row++) {
        const int32_t *tokens = (const int32_t *)pass->x[0] + row / context * context;
        outputs_of(tokens, row % context + 1, (float *)pass->y + row * vocabulary, vocabulary);
    }
}

static void scripted_backward(const ls_layer *layer, const struct ls_pass *pass) { (void)layer, (void)pass; }

static const struct ls_layer_kind scripted = {
    .name = "scripted", .plan = scripted_plan, .forward = scripted_forward, .backward = scripted_backward};

ls_network *scripted_network(int context, int vocabulary, scripted_outputs outputs) {
    struct ls_shape input = ls_features(1);
    input.rows = context;
    ls_network *network = ls_network_begin(input, LS_LOSS_CROSS_ENTROPY);
    assert_non_null(network);
    network->input_nbytes = (size_t)context * sizeof(int32_t);
    outputs_of = outputs;
    const ls_layer layer = {.kind = &scripted, .name = "scripted", .units = vocabulary};
    assert_int_equal(ls_network_add(network, layer), LS_OK);
    assert_int_equal(ls_network_finish(network), LS_OK);
    return network;
}
