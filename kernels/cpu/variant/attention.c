/* attention — causal attention, head by head.
 *   order : every sum in ascending order */
#include "kernels/cpu/variant/half.h"

/* One head of one sequence; row t of each of its arrays begins t x stride elements behind the first. */
struct head {
    size_t context, d, qkv_stride, y_stride;
    float *q, *k, *v, *dy, *y, *dq, *dk, *dv, *p, *ds; /* floats: [context, d], and rows of [context] */
    float scale;
};

static void load(ls_dtype dtype, float *to, const void *from, size_t at, size_t count) {
    if (dtype == LS_FP32) memcpy(to, (const float *)from + at, count * sizeof *to);
    if (dtype != LS_FP32) LS_CPU(widen)(dtype, to, (const uint16_t *)from + at, count);
}

static void store(ls_dtype dtype, void *to, size_t at, const float *from, size_t count) {
    if (dtype == LS_FP32) memcpy((float *)to + at, from, count * sizeof *from);
    if (dtype != LS_FP32) LS_CPU(narrow)(dtype, (uint16_t *)to + at, from, count);
}

static float dot(const float *a, const float *b, size_t count) {
    float sum = 0;
    for (size_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *restrict y, float factor, const float *restrict x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += factor * x[i];
}

static struct head make_head(const struct ls_attention_shape *s, float *workspace) {
    struct head h = {.context = (size_t)s->context, .d = ls_attention_head(s)};
    float **const arrays[] = {&h.q, &h.k, &h.v, &h.dy, &h.y, &h.dq, &h.dk, &h.dv};
    for (size_t i = 0; i < 8; i++) *arrays[i] = workspace + i * h.context * h.d;
    h.p = workspace + 8 * h.context * h.d;
    h.ds = h.p + h.context;
    h.scale = 1 / sqrtf((float)h.d);
    return h;
}

static void load_head(const struct head *h, const struct ls_attention_shape *s, const void *qkv, size_t b,
                      size_t head) {
    size_t c = (size_t)s->channels;
    for (size_t t = 0; t < h->context; t++) {
        size_t at = (b * h->context + t) * 3 * c + head * h->d;
        load(s->dtype, h->q + t * h->d, qkv, at, h->d);
        load(s->dtype, h->k + t * h->d, qkv, at + c, h->d);
        load(s->dtype, h->v + t * h->d, qkv, at + 2 * c, h->d);
    }
}

/* p[u] of row t; returns log of the sum of exponentials. */
static float softmax_row(const struct head *h, size_t t) {
    float largest = -INFINITY, sum = 0;
    for (size_t u = 0; u <= t; u++) {
        h->p[u] = h->scale * dot(h->q + t * h->d, h->k + u * h->d, h->d);
        largest = h->p[u] > largest ? h->p[u] : largest;
    }
    for (size_t u = 0; u <= t; u++) {
        h->p[u] = expf(h->p[u] - largest);
        sum += h->p[u];
    }
    for (size_t u = 0; u <= t; u++) h->p[u] /= sum;
    return largest + logf(sum);
}

ls_status LS_CPU(attention_forward)(const struct ls_attention_forward_arguments *a) {
    const struct ls_attention_shape *s = &a->shape;
    struct head h = make_head(s, a->workspace);
    for (size_t i = 0; i < (size_t)(s->batch * s->heads); i++) {
        size_t b = i / (size_t)s->heads, head = i % (size_t)s->heads;
        load_head(&h, s, a->qkv, b, head);
        for (size_t t = 0; t < h.context; t++) {
            float log_sum = softmax_row(&h, t);
            if (s->tiled) {
                ((float *)a->saved)[i * h.context + t] = log_sum;
            } else {
                memset(h.p + t + 1, 0, (h.context - t - 1) * sizeof *h.p);
                store(s->dtype, a->saved, (i * h.context + t) * h.context, h.p, h.context);
                load(s->dtype, h.p, a->saved, (i * h.context + t) * h.context, h.context);
            }
            memset(h.y, 0, h.d * sizeof *h.y);
            for (size_t u = 0; u <= t; u++) add_scaled(h.y, h.p[u], h.v + u * h.d, h.d);
            store(s->dtype, a->y, (b * h.context + t) * (size_t)s->channels + head * h.d, h.y, h.d);
        }
    }
    return LS_OK;
}

/* p and ds of row t */
static void gradient_row(const struct head *h, const struct ls_attention_backward_arguments *a, size_t i, size_t t) {
    const float *dy = h->dy + t * h->d;
    float mean = dot(dy, h->y + t * h->d, h->d);
    if (!a->shape.tiled) load(a->shape.dtype, h->p, a->saved, (i * h->context + t) * h->context, t + 1);
    for (size_t u = 0; u <= t; u++) {
        if (a->shape.tiled) {
            float log_sum = ((const float *)a->saved)[i * h->context + t];
            h->p[u] = expf(h->scale * dot(h->q + t * h->d, h->k + u * h->d, h->d) - log_sum);
        }
        h->ds[u] = h->p[u] * (dot(dy, h->v + u * h->d, h->d) - mean);
    }
    if (a->shape.tiled || a->shape.dtype == LS_FP32) return;
    uint16_t *rounded = (uint16_t *)(void *)(h->ds + h->context);
    store(a->shape.dtype, rounded, 0, h->ds, t + 1);
    load(a->shape.dtype, h->ds, rounded, 0, t + 1);
}

static void store_head(const struct head *h, const struct ls_attention_shape *s, void *dqkv, size_t b, size_t head) {
    size_t c = (size_t)s->channels;
    for (size_t t = 0; t < h->context; t++) {
        size_t at = (b * h->context + t) * 3 * c + head * h->d;
        store(s->dtype, dqkv, at, h->dq + t * h->d, h->d);
        store(s->dtype, dqkv, at + c, h->dk + t * h->d, h->d);
        store(s->dtype, dqkv, at + 2 * c, h->dv + t * h->d, h->d);
    }
}

ls_status LS_CPU(attention_backward)(const struct ls_attention_backward_arguments *a) {
    const struct ls_attention_shape *s = &a->shape;
    struct head h = make_head(s, a->workspace);
    for (size_t i = 0; i < (size_t)(s->batch * s->heads); i++) {
        size_t b = i / (size_t)s->heads, head = i % (size_t)s->heads;
        load_head(&h, s, a->qkv, b, head);
        for (size_t t = 0; t < h.context; t++) {
            size_t at = (b * h.context + t) * (size_t)s->channels + head * h.d;
            load(s->dtype, h.dy + t * h.d, a->dy, at, h.d);
            load(s->dtype, h.y + t * h.d, a->y, at, h.d);
        }
        memset(h.dq, 0, 3 * h.context * h.d * sizeof *h.dq);
        for (size_t t = 0; t < h.context; t++) {
            gradient_row(&h, a, i, t);
            for (size_t u = 0; u <= t; u++) {
                add_scaled(h.dq + t * h.d, h.scale * h.ds[u], h.k + u * h.d, h.d);
                add_scaled(h.dk + u * h.d, h.scale * h.ds[u], h.q + t * h.d, h.d);
                add_scaled(h.dv + u * h.d, h.p[u], h.dy + t * h.d, h.d);
            }
        }
        store_head(&h, s, a->dqkv, b, head);
    }
    return LS_OK;
}
