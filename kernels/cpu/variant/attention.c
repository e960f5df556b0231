/* attention — causal attention, head by head: scores in memory, or tile by tile.
 *   idea  : a head's rows of q, k, v are converted to fp32 once, while those of the next head are prefetched. Then
 *           each tile of LS_ATTENTION_TILE rows of q is multiplied by one tile of k after another (product.h), in
 *           the L1 cache; on the diagonal only the triangle is computed. In memory: all scores of the rows, softmax,
 *           then products with v. Tiled: a row keeps its largest score and the sum of exponentials so far; when the
 *           largest grows, the sum so far is multiplied by exp(old - new). Backward visits the same tiles, in
 *           ascending order of k. Tiled, it recomputes scores, and p = exp(s - log sum)
 *   cost  : flops of ops.def, tiled backward a quarter more, plus the waste of the triangles: about a fifth for 64
 *           positions, less for more. For 64 positions and 32 channels, packing, exp and sums over rows take half of
 *           the time
 *   memory: 6 rows of floats for each position, and tiles; with scores in memory, two tiles of rows of scores
 *   half  : widened when packed. y and dqkv are rounded; p and ds only with scores in memory
 *   order : products: one chain of fused multiply-adds in ascending order of positions or channels; if sums of y
 *           are rescaled, the chain continues from the rescaled value. Sums over a row in LS_LANES parts. No result
 *           depends on other heads or sequences, or, except for numbers that are not finite, on later positions */
#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/variant/half.h"
#include "kernels/cpu/variant/product.h"
#include "kernels/cpu/variant/softmax.h"

#define TILE ((size_t)LS_ATTENTION_TILE)

/* Rows of a tile that go through softmax together, step by step, so that no step of a row waits for the step before. */
#define BAND ((size_t)LS_LANES)

/* A head of a sequence, and the parts of the workspace, which is reused for one head after the other. */
struct head {
    struct ls_attention_shape shape;
    struct ls_attention_layout l;
    size_t number;
    float scale;                /* 1 / sqrt(channels of a head) */
    float *q, *k, *dy;          /* [positions, columns] */
    float *v, *dq;              /* the same; in one buffer, since backward needs only turned_v */
    float *turned_k, *turned_v; /* by tiles: [positions / TILE][channels][TILE] */
    float *means;               /* [positions]: dy y */
    float *block, *other_block; /* [TILE, columns]: rows of y; of dk and of dv */
    float *scores, *gradients;  /* [TILE, stride] */
    size_t stride;              /* TILE; positions if forward keeps scores in memory */
};

/* The factor of scores: their variance grows with the number of channels over which they are sums. */
static float score_scale(const struct ls_attention_shape *s) { return 1 / sqrtf((float)ls_attention_head(s)); }

static struct head make_head(const struct ls_attention_shape *s, float *workspace, bool backward) {
    struct head h = {.shape = *s, .l = ls_attention_make_layout(s)};
    float **const rows[] = {&h.q, &h.k, &h.v, &h.turned_k, &h.turned_v, &h.dy};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) *rows[i] = workspace + i * h.l.rows_count;
    h.dq = h.v;
    h.block = workspace + sizeof rows / sizeof *rows * h.l.rows_count;
    h.other_block = h.block + h.l.block_count;
    h.means = h.other_block + h.l.block_count;
    h.scores = h.means + h.l.positions;
    h.gradients = h.scores + h.l.scores_count;
    h.stride = s->tiled || backward ? TILE : h.l.positions;
    h.scale = score_scale(s);
    /* padding columns and positions are multiplied, too */
    memset(workspace, 0, ls_cpu_attention_workspace_nbytes(s));
    return h;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* --- rows: from qkv or y into the workspace, and back --------------------------------------------------------------- */

/* The offset of head `number` in position t of qkv (part 0, 1, 2 of 3: q, k, v) or y (part 0 of 1). */
static size_t place_of(const struct head *h, size_t number, size_t t, size_t part, size_t parts) {
    const size_t heads = (size_t)h->shape.heads, row = number / heads * h->l.context + t;
    return (row * parts + part) * (size_t)h->shape.channels + number % heads * h->l.head;
}

/* A row is short: calling memcpy for each would take longer than copying it. The next one is prefetched meanwhile. */
static LS_ALWAYS_INLINE void copy(float *restrict to, const float *restrict from, size_t count, const float *next) {
    size_t i = 0;
    for (; i + LS_LANES <= count; i += LS_LANES) {
        __builtin_prefetch(next + i);
        memcpy(to + i, from + i, LS_LANES * sizeof *to);
    }
    for (; i < count; i++) to[i] = from[i];
}

/* Loads the elements from from[at] on; those to be loaded next are `next` elements further on. */
static void load(ls_dtype dtype, float *restrict to, const void *from, size_t at, size_t count, size_t next) {
    if (dtype == LS_FP32) {
        copy(to, (const float *)from + at, count, (const float *)from + at + next);
    } else {
        LS_CPU(widen)(dtype, to, (const uint16_t *)from + at, count);
    }
}

static void store(ls_dtype dtype, void *to, size_t at, const float *restrict from, size_t count, size_t next) {
    if (dtype == LS_FP32) {
        copy((float *)to + at, from, count, (const float *)to + at + next);
    } else {
        LS_CPU(narrow)(dtype, (uint16_t *)to + at, from, count);
    }
}

static void load_rows(const struct head *h, float *to, const void *from, size_t part, size_t parts) {
    const size_t at = place_of(h, h->number, 0, part, parts), next = place_of(h, h->number + 1, 0, part, parts) - at;
    for (size_t t = 0; t < h->l.context; t++)
        load(h->shape.dtype, to + t * h->l.columns, from, at + t * parts * (size_t)h->shape.channels, h->l.head, next);
}

/* `count` rows from position t on. */
static void store_rows(const struct head *h, const float *from, void *to, size_t t, size_t count, size_t part,
                       size_t parts) {
    const size_t at = place_of(h, h->number, t, part, parts), next = place_of(h, h->number + 1, t, part, parts) - at;
    for (size_t r = 0; r < count; r++)
        store(h->shape.dtype, to, at + r * parts * (size_t)h->shape.channels, from + r * h->l.columns, h->l.head, next);
}

static void turn(const struct head *h, const float *rows, float *turned) {
    for (size_t u = 0; u < h->l.context; u += TILE) {
        LS_CPU(transpose)
        (rows + u * h->l.columns, (int)h->l.columns, (int)min_size(TILE, h->l.context - u), (int)h->l.head,
         turned + u * h->l.head, (int)TILE);
    }
}

/* --- products: rows from position t on with rows from position u on ----------------------------------------------- */

struct tile {
    size_t t, u, rows, columns; /* columns: positions from u on */
    bool diagonal;              /* t = u: row r sees r + 1 columns */
};

static struct tile make_tile(const struct head *h, size_t t, size_t u) {
    return (struct tile){t, u, min_size(TILE, h->l.context - t), min_size(TILE, h->l.context - u), t == u};
}

static size_t seen(const struct tile *tile, size_t r) { return tile->diagonal ? r + 1 : tile->columns; }

/* result = left[t ..] turned[u ..] */
static void multiply_turned(const struct head *h, const struct tile *tile, const float *left, const float *turned,
                            float *result, size_t stride) {
    LS_CPU(multiply)
    (&(struct ls_product){.left = left + tile->t * h->l.columns,
                          .left_row = h->l.columns,
                          .left_step = 1,
                          .right = turned + tile->u * h->l.head,
                          .right_stride = TILE,
                          .rows = tile->rows,
                          .steps = h->l.head,
                          .columns = (tile->columns + LS_LANES - 1) / LS_LANES * LS_LANES,
                          .result = result,
                          .result_stride = stride,
                          .triangle = tile->diagonal ? LS_LOWER_RESULT : LS_WHOLE});
}

/* result, rows from t on, += scores rows[u ..]; = for the first tile of a row. */
static void add_seen(const struct head *h, const struct tile *tile, const float *scores, size_t stride,
                     const float *rows, float *result) {
    LS_CPU(multiply)
    (&(struct ls_product){.left = scores,
                          .left_row = stride,
                          .left_step = 1,
                          .right = rows + tile->u * h->l.columns,
                          .right_stride = h->l.columns,
                          .rows = tile->rows,
                          .steps = tile->columns,
                          .columns = h->l.columns,
                          .result = result,
                          .result_stride = h->l.columns,
                          .add = tile->u > 0,
                          .triangle = tile->diagonal ? LS_LOWER_LEFT : LS_WHOLE});
}

/* result, rows from u on, += scores^T rows[t ..]; = for the first tile of a column. */
static void add_seeing(const struct head *h, const struct tile *tile, const float *scores, const float *rows,
                       float *result) {
    LS_CPU(multiply)
    (&(struct ls_product){.left = scores,
                          .left_row = 1,
                          .left_step = TILE,
                          .right = rows + tile->t * h->l.columns,
                          .right_stride = h->l.columns,
                          .rows = tile->columns,
                          .steps = tile->rows,
                          .columns = h->l.columns,
                          .result = result,
                          .result_stride = h->l.columns,
                          .add = !tile->diagonal,
                          .triangle = tile->diagonal ? LS_UPPER_LEFT : LS_WHOLE});
}

/* Sets columns that row r must not see to 0, as far as triangles' products read them: ROWS after the last seen. */
static LS_ALWAYS_INLINE void clear_unseen(const struct tile *tile, size_t r, float *s) {
    size_t end = whole_lanes(s, seen(tile, r), 0);
    if (end < TILE) memset(s + end, 0, LS_LANES * sizeof *s);
}

/* --- forward --------------------------------------------------------------------------------------------------------- */

/* Replaces a position's row of scores by probabilities: softmax of scale s over the position and those before it, 0 for
 * later ones. count: a multiple of LS_LANES, above the position. */
static void softmax_row(float *s, size_t position, size_t count, float scale) {
    size_t end = whole_lanes(s, position + 1, -INFINITY);
    float sum = exponentials(s, end, scale, scale * largest_of(s, end, -INFINITY));
    multiply_row(s, 1 / sum, end);
    memset(s + end, 0, (count - end) * sizeof *s);
}

/* The gradient of softmax_row: replaces the gradient of p by that of s. mean: of the gradient, weighted by p. */
static void softmax_gradient(float *restrict gradient, const float *restrict p, size_t count, float mean, float scale) {
    for (size_t u = 0; u < count; u++) gradient[u] = p[u] * (gradient[u] - mean) * scale;
}

/* Rows of y from position t on, with scores in memory. */
static void forward_in_memory(const struct head *h, size_t t, void *saved) {
    const ls_dtype dtype = h->shape.dtype;
    for (size_t u = 0; u <= t; u += TILE) {
        struct tile tile = make_tile(h, t, u);
        multiply_turned(h, &tile, h->q, h->turned_k, h->scores + u, h->stride);
    }
    struct tile diagonal = make_tile(h, t, t);
    for (size_t r = 0; r < diagonal.rows; r++) {
        float *p = h->scores + r * h->stride;
        size_t at = (h->number * h->l.context + t + r) * h->l.context;
        softmax_row(p, t + r, h->stride, h->scale);
        store(dtype, saved, at, p, h->l.context, h->l.context);
        if (dtype != LS_FP32) load(dtype, p, saved, at, t + r + 1, 0);
    }
    for (size_t u = 0; u <= t; u += TILE) {
        struct tile tile = make_tile(h, t, u);
        add_seen(h, &tile, h->scores + u, h->stride, h->v, h->block);
    }
}

/* For each row of q, over the tiles so far: the largest score, and the sum of exponentials. */
struct statistics {
    float largest[LS_ATTENTION_TILE], sum[LS_ATTENTION_TILE];
};

/* Replaces the scores of a band of rows by exponentials, and scales earlier sums to the current largest score. */
static void add_band(const struct head *h, const struct tile *tile, size_t first, struct statistics *so_far) {
    float *s = h->scores + first * TILE, *sum = so_far->sum + first, *largest = so_far->largest + first;
    float shift[BAND], factor[BAND] = {0};
    const size_t rows = min_size(BAND, tile->rows - first);
    size_t end = 0;
    for (size_t r = 0; r < rows; r++) {
        end = whole_lanes(s + r * TILE, seen(tile, first + r), s[r * TILE]);
        float now = largest_of(s + r * TILE, end, largest[r]);
        factor[r] = h->scale * (largest[r] - now);
        shift[r] = h->scale * now;
        largest[r] = now;
    }
    if (tile->u > 0) ls_exp_rows(factor, 0, 1, BAND, 1, NULL);
    for (size_t r = 0; tile->u > 0 && r < rows; r++) {
        sum[r] *= factor[r];
        multiply_row(h->block + (first + r) * h->l.columns, factor[r], h->l.columns);
    }
    ls_exp_rows(s, TILE, rows, end / LS_LANES * LS_LANES, h->scale, shift);
    for (size_t r = 0; r < rows; r++) {
        clear_unseen(tile, first + r, s + r * TILE);
        sum[r] += sum_of(s + r * TILE, end);
    }
}

/* The same, tile by tile. */
static void forward_tiled(const struct head *h, size_t t, float *saved) {
    struct statistics so_far = {.sum = {0}};
    for (size_t r = 0; r < TILE; r++) so_far.largest[r] = -INFINITY;
    struct tile tile = make_tile(h, t, 0);
    for (size_t u = 0; u <= t; u += TILE) {
        tile = make_tile(h, t, u);
        multiply_turned(h, &tile, h->q, h->turned_k, h->scores, h->stride);
        for (size_t first = 0; first < tile.rows; first += BAND) add_band(h, &tile, first, &so_far);
        add_seen(h, &tile, h->scores, h->stride, h->v, h->block);
    }
    for (size_t r = 0; r < tile.rows; r++) {
        multiply_row(h->block + r * h->l.columns, 1 / so_far.sum[r], h->l.columns);
        saved[h->number * h->l.context + t + r] = h->scale * so_far.largest[r] + logf(so_far.sum[r]);
    }
}

ls_status LS_CPU(attention_forward)(const struct ls_attention_forward_arguments *a) {
    struct head h = make_head(&a->shape, a->workspace, false);
    for (size_t i = 0; i < (size_t)(a->shape.batch * a->shape.heads); i++) {
        h.number = i;
        load_rows(&h, h.q, a->qkv, 0, 3);
        load_rows(&h, h.k, a->qkv, 1, 3);
        load_rows(&h, h.v, a->qkv, 2, 3);
        turn(&h, h.k, h.turned_k);
        for (size_t t = 0; t < h.l.context; t += TILE) {
            if (a->shape.tiled) forward_tiled(&h, t, a->saved);
            if (!a->shape.tiled) forward_in_memory(&h, t, a->saved);
            store_rows(&h, h.block, a->y, t, min_size(TILE, h.l.context - t), 0, 1);
        }
    }
    return LS_OK;
}

/* --- backward -------------------------------------------------------------------------------------------------------- */

/* Sets scores to p of the tile, 0 for later positions. */
static void make_probabilities(const struct head *h, const struct tile *tile, const void *saved) {
    const size_t at = h->number * h->l.context + tile->t;
    for (size_t first = 0; first < tile->rows; first += BAND) {
        float *p = h->scores + first * TILE;
        const size_t rows = min_size(BAND, tile->rows - first), count = seen(tile, first + rows - 1);
        if (h->shape.tiled)
            ls_exp_rows(p, TILE, rows, (count + LS_LANES - 1) / LS_LANES * LS_LANES, h->scale,
                        (const float *)saved + at + first);
        for (size_t r = first; r < first + rows; r++) {
            if (!h->shape.tiled)
                load(h->shape.dtype, h->scores + r * TILE, saved, (at + r) * h->l.context + tile->u, seen(tile, r),
                     h->l.context);
            clear_unseen(tile, r, h->scores + r * TILE);
        }
    }
}

/* gradients = scores (gradients - mean) scale, rounded to the 16-bit type with scores in memory. */
static void make_gradients(const struct head *h, const struct tile *tile) {
    uint16_t halves[LS_ATTENTION_TILE];
    const bool rounds = !h->shape.tiled && h->shape.dtype != LS_FP32;
    for (size_t r = 0; r < tile->rows; r++) {
        const float *restrict p = h->scores + r * TILE;
        float *restrict ds = h->gradients + r * TILE;
        size_t end = (seen(tile, r) + LS_LANES - 1) / LS_LANES * LS_LANES;
        softmax_gradient(ds, p, end, h->means[tile->t + r], h->scale);
        clear_unseen(tile, r, ds);
        if (!rounds) continue;
        LS_CPU(narrow)(h->shape.dtype, halves, ds, end);
        LS_CPU(widen)(h->shape.dtype, ds, halves, end);
    }
}

static void make_means(const struct head *h, const void *y) {
    float row[LS_ATTENTION_MAX_HEAD] = {0};
    for (size_t t = 0; t < h->l.context; t++) {
        load(h->shape.dtype, row, y, place_of(h, h->number, t, 0, 1), h->l.head, h->l.head);
        h->means[t] = dot(h->dy + t * h->l.columns, row, h->l.columns);
    }
}

/* dk and dv from position u on, and their terms of dq. */
static void backward_columns(const struct head *h, size_t u, const struct ls_attention_backward_arguments *a) {
    float *dk = h->block, *dv = h->other_block;
    for (size_t t = u; t < h->l.context; t += TILE) {
        struct tile tile = make_tile(h, t, u);
        if (h->shape.tiled) multiply_turned(h, &tile, h->q, h->turned_k, h->scores, TILE);
        make_probabilities(h, &tile, a->saved);
        multiply_turned(h, &tile, h->dy, h->turned_v, h->gradients, TILE);
        make_gradients(h, &tile);
        add_seen(h, &tile, h->gradients, TILE, h->k, h->dq + t * h->l.columns);
        add_seeing(h, &tile, h->gradients, h->q, dk);
        add_seeing(h, &tile, h->scores, h->dy, dv);
    }
    const size_t count = min_size(TILE, h->l.context - u);
    store_rows(h, dk, a->dqkv, u, count, 1, 3);
    store_rows(h, dv, a->dqkv, u, count, 2, 3);
}

ls_status LS_CPU(attention_backward)(const struct ls_attention_backward_arguments *a) {
    struct head h = make_head(&a->shape, a->workspace, true);
    for (size_t i = 0; i < (size_t)(a->shape.batch * a->shape.heads); i++) {
        h.number = i;
        load_rows(&h, h.q, a->qkv, 0, 3);
        load_rows(&h, h.k, a->qkv, 1, 3);
        load_rows(&h, h.v, a->qkv, 2, 3);
        load_rows(&h, h.dy, a->dy, 0, 1);
        make_means(&h, a->y);
        if (a->shape.tiled) turn(&h, h.k, h.turned_k);
        turn(&h, h.v, h.turned_v);
        for (size_t u = 0; u < h.l.context; u += TILE) backward_columns(&h, u, a);
        store_rows(&h, h.dq, a->dqkv, 0, h.l.context, 0, 3);
    }
    return LS_OK;
}
