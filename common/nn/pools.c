/* pools — layers that reduce a plane to fewer values: max-pool over windows, and the average of a whole plane. */
#include "common/base/log.h"
#include "common/nn/layer.h"

/* --- max-pool; saved = the choice in each window ----------------------------------------------------------------- */

static size_t planes_of(const ls_layer *layer, const struct ls_pass *pass) {
    return pass->batch * ls_shape_rows(layer->in) * (size_t)layer->in.channels;
}

static struct ls_pool_shape pool_shape(const ls_layer *layer, const struct ls_pass *pass) {
    return (struct ls_pool_shape){(int)planes_of(layer, pass), layer->in.height, layer->in.width, layer->kernel,
                                  pass->dtype};
}

static ls_status maxpool_plan(ls_layer *layer) {
    int smallest = layer->in.height < layer->in.width ? layer->in.height : layer->in.width;
    if (layer->kernel < 2 || layer->kernel > LS_POOL_MAX_SIZE || layer->kernel > smallest)
        return ls_fail(LS_ERR_INVALID, "%s: a window of %d x %d does not fit an image of %d x %d; expected 2 to %d",
                       layer->name, layer->kernel, layer->kernel, layer->in.height, layer->in.width,
                       smallest < LS_POOL_MAX_SIZE ? smallest : LS_POOL_MAX_SIZE);
    layer->out = layer->in;
    layer->out.height /= layer->kernel;
    layer->out.width /= layer->kernel;
    layer->saved_nbytes_per_sample = ls_shape_count(layer->out);
    return LS_OK;
}

static void maxpool_forward(const ls_layer *layer, const struct ls_pass *pass) {
    ls_maxpool_forward(pass->stream, pool_shape(layer, pass), pass->y, pass->saved, pass->x[0]);
}

static void maxpool_backward(const ls_layer *layer, const struct ls_pass *pass) {
    if (!pass->dx[0]) return;
    ls_maxpool_backward(pass->stream, pool_shape(layer, pass), pass->dx[0], pass->dy, pass->saved);
}

const struct ls_layer_kind ls_maxpool2d = {
    .name = "maxpool2d",
    .plan = maxpool_plan,
    .forward = maxpool_forward,
    .backward = maxpool_backward,
};

/* --- global average pool ------------------------------------------------------------------------------------------ */

static size_t plane_of(const ls_layer *layer) { return (size_t)layer->in.height * (size_t)layer->in.width; }

static ls_status avgpool_plan(ls_layer *layer) {
    layer->out = layer->in;
    layer->out.height = layer->out.width = 1;
    return LS_OK;
}

static void avgpool_forward(const ls_layer *layer, const struct ls_pass *pass) {
    ls_avgpool_forward(pass->stream, pass->dtype, pass->y, pass->x[0], planes_of(layer, pass), plane_of(layer));
}

static void avgpool_backward(const ls_layer *layer, const struct ls_pass *pass) {
    if (!pass->dx[0]) return;
    ls_avgpool_backward(pass->stream, pass->dtype, pass->dx[0], pass->dy, planes_of(layer, pass), plane_of(layer));
}

const struct ls_layer_kind ls_avgpool2d = {
    .name = "avgpool2d",
    .plan = avgpool_plan,
    .forward = avgpool_forward,
    .backward = avgpool_backward,
};
