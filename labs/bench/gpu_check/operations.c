/* operations — one large example of every operation of ops.def. The large arrays hold numbers like those of training
 * (values.c), as do the weights of convolutions, s[7]; labels, choices, state and other small arrays are zero. All
 * operations use the same arrays in turn, so an operation may read the results of earlier ones: f[0] is filled with
 * zeros, and h[2] is its cast. Matrix multiplies read neither: zeros would draw less power, and be faster. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "labs/bench/gpu_check/gpu_check.h"

static void *take(gpu_check_arena *arena, size_t nbytes) {
    void *memory = NULL;
    bool room = arena->count < (int)(sizeof arena->blocks / sizeof *arena->blocks);
    if (!room ||
        ls_device_alloc(arena->device, LS_MEMORY_WORKSPACE, nbytes, "operations to measure", &memory) != LS_OK) {
        arena->failed = true;
        return NULL;
    }
    return arena->blocks[arena->count++] = memory;
}

void gpu_check_free_operations(gpu_check_arena *arena) {
    for (int i = 0; i < arena->count; i++) ls_device_free(arena->device, arena->blocks[i]);
    arena->count = 0;
}

/* The arrays that all examples share, large enough for each of them; small arrays; and shapes. */
struct material {
    size_t count; /* floats of each large array */
    float *large[6];
    void *halves[3]; /* as many bf16 numbers each */
    float *small[8]; /* SMALL floats each */
    double *doubles; /* SMALL of them */
    int64_t *labels; /* one per row of CLASSES */
    int32_t *tokens; /* one per row of COLUMNS */
    uint8_t *choices;
    struct ls_update_state *state;
    struct ls_update_tensor *list;
    const float *sources[3];
    void *workspace;
    struct ls_conv2d_shape conv;
    struct ls_batchnorm_shape norm;
    struct ls_pool_shape pool;
    struct ls_attention_shape attention;
    size_t rows, side;                 /* of [rows, COLUMNS]; of a square matrix */
    size_t texts, context, vocabulary; /* rows of [texts, COLUMNS], and of tables */
};

enum { SMALL = 1 << 14, COLUMNS = 1024, CLASSES = 10 };

static void shape(struct material *m) {
    int batch = (int)(m->count / (32 * 14 * 14));
    m->conv = (struct ls_conv2d_shape){batch > 0 ? batch : 1, 16, 14, 14, 32, 5, 5, 1, 2, LS_FP32};
    m->norm = (struct ls_batchnorm_shape){m->conv.batch, 32, 14 * 14, 0.1f, 1e-5f, true, LS_FP32};
    m->pool = (struct ls_pool_shape){m->conv.batch * 32, 14, 14, 2, LS_FP32};
    m->rows = m->count / COLUMNS;
    m->texts = m->rows < SMALL ? m->rows : SMALL;
    m->context = m->rows < 64 ? m->rows : 64;
    m->vocabulary = m->rows < 256 ? m->rows : 256;
    m->attention = (struct ls_attention_shape){1, 32, 4, 4 * 32, LS_FP32, .tiled = true};
    size_t sequences = m->count / (size_t)(3 * m->attention.channels * m->attention.context);
    while (sequences >= 16 && m->attention.context < 1024) sequences /= 2, m->attention.context *= 2;
    m->attention.batch = sequences > 0 ? (int)sequences : 1;
    for (m->side = 64; 4 * m->side * m->side <= m->count && m->side < 8192;) m->side *= 2;
}

static ls_status make_list(gpu_check_arena *arena, struct material *m) {
    struct ls_update_tensor one = {m->large[0], m->large[1], m->large[2], m->large[3], m->count, 0};
    m->list = take(arena, sizeof one);
    return m->list ? ls_copy_now(ls_device_stream(arena->device, LS_STREAM_COMPUTE), m->list, &one, sizeof one)
                   : LS_ERR_NO_MEMORY;
}

/* Some are frequent, as in texts. */
static ls_status make_tokens(gpu_check_arena *arena, struct material *m) {
    int32_t tokens[SMALL];
    for (size_t r = 0; r < m->texts; r++) tokens[r] = (int32_t)(r * r % 7919 % (r % 3 == 0 ? 5 : 256) % m->vocabulary);
    m->tokens = take(arena, sizeof tokens);
    if (!m->tokens) return LS_ERR_NO_MEMORY;
    return ls_copy_now(ls_device_stream(arena->device, LS_STREAM_COMPUTE), m->tokens, tokens,
                       m->texts * sizeof *tokens);
}

static bool gather_material(gpu_check_arena *arena, struct material *m, size_t count) {
    *m = (struct material){.count = count};
    shape(m);
    for (int i = 0; i < 6; i++) m->large[i] = take(arena, count * sizeof(float));
    for (int i = 0; i < 3; i++) m->halves[i] = take(arena, count * ls_dtype_nbytes(LS_BF16));
    for (int i = 0; i < 8; i++) m->small[i] = take(arena, SMALL * sizeof(float));
    for (int i = 0; i < 3; i++) m->sources[i] = m->large[3 + i];
    m->doubles = take(arena, SMALL * sizeof(double));
    m->labels = take(arena, (count / CLASSES + 1) * sizeof(int64_t));
    m->choices = take(arena, count);
    m->state = take(arena, sizeof *m->state);
    size_t conv = ls_conv2d_workspace_nbytes(ls_device_kind_of(arena->device), &m->conv);
    size_t attention = ls_attention_workspace_nbytes(ls_device_kind_of(arena->device), &m->attention);
    m->workspace = take(arena, conv > attention ? conv : attention);
    ls_status status = arena->failed ? LS_ERR_NO_MEMORY : make_list(arena, m);
    if (status == LS_OK) status = make_tokens(arena, m);
    for (int i = 0; status == LS_OK && i < 6; i++) status = gpu_check_fill(arena->device, m->large[i], count, LS_FP32);
    for (int i = 0; status == LS_OK && i < 3; i++) status = gpu_check_fill(arena->device, m->halves[i], count, LS_BF16);
    if (status == LS_OK) status = gpu_check_fill(arena->device, m->small[7], SMALL, LS_FP32);
    return status == LS_OK;
}

/* The arguments of each operation, by name; sizes are those of training: 10 classes, 32 channels of 14 x 14, k5. */
static void fill_linear(struct ls_op *op, const struct material *m, ls_op_id id) {
    float *const *f = m->large, *const *s = m->small;
    size_t n = m->count;
    op->id = id;
    switch (id) {
    case LS_OP_fill: op->arguments.fill = (struct ls_fill_arguments){f[0], 0, n}; break;
    case LS_OP_scale: op->arguments.scale = (struct ls_scale_arguments){f[0], 1, n}; break;
    case LS_OP_divide: op->arguments.divide = (struct ls_divide_arguments){f[0], 1, n}; break;
    case LS_OP_scale_by: op->arguments.scale_by = (struct ls_scale_by_arguments){f[0], s[0], n}; break;
    case LS_OP_reduce_add: op->arguments.reduce_add = (struct ls_reduce_add_arguments){f[0], m->sources, 3, n}; break;
    case LS_OP_gemm:
        op->arguments.gemm = (struct ls_gemm_arguments){LS_FP32, false, true, m->side, m->side, m->side,
                                                        f[1],    f[2],  0,    LS_FP32, f[0],    NULL};
        break;
    case LS_OP_add_bias:
        op->arguments.add_bias = (struct ls_add_bias_arguments){LS_FP32, f[0], s[0], m->rows, COLUMNS};
        break;
    case LS_OP_add_bias_relu:
        op->arguments.add_bias_relu = (struct ls_add_bias_relu_arguments){LS_FP32, f[0], s[0], m->rows, COLUMNS};
        break;
    case LS_OP_bias_gradient:
        op->arguments.bias_gradient = (struct ls_bias_gradient_arguments){LS_FP32, s[0], f[0], m->rows, COLUMNS, false};
        break;
    case LS_OP_relu_bias_gradient:
        op->arguments.relu_bias_gradient =
            (struct ls_relu_bias_gradient_arguments){LS_FP32, s[0], f[0], f[1], m->rows, COLUMNS, false};
        break;
    case LS_OP_top_k: /* 1 %; the list is in one of the arrays `halves` */
        op->arguments.top_k = (struct ls_top_k_arguments){m->halves[2], f[1], n, n / 100};
        break;
    case LS_OP_relu_forward:
        op->arguments.relu_forward = (struct ls_relu_forward_arguments){LS_FP32, f[0], f[1], n};
        break;
    case LS_OP_relu_backward:
        op->arguments.relu_backward = (struct ls_relu_backward_arguments){LS_FP32, f[0], f[1], f[2], n};
        break;
    default: op->id = LS_OP_COUNT; break;
    }
}

/* Operations of half precision: casts, and matrix multiplies on tensor cores. */
static void fill_halves(struct ls_op *op, const struct material *m, ls_op_id id) {
    void *const *h = m->halves;
    size_t n = m->side;
    op->id = id;
    switch (id) {
    case LS_OP_cast:
        op->arguments.cast = (struct ls_cast_arguments){LS_BF16, h[2], LS_FP32, m->large[0], m->count};
        break;
    case LS_OP_cast_divide:
        op->arguments.cast_divide = (struct ls_cast_divide_arguments){LS_BF16, h[2], m->large[0], 1, m->count};
        break;
    case LS_OP_gemm:
        op->arguments.gemm =
            (struct ls_gemm_arguments){LS_BF16, false, true, n, n, n, h[0], h[1], 0, LS_BF16, h[2], NULL};
        break;
    default: op->id = LS_OP_COUNT; break;
    }
}

static void fill_images(struct ls_op *op, const struct material *m, ls_op_id id) {
    float *const *f = m->large, *const *s = m->small;
    op->id = id;
    switch (id) {
    case LS_OP_conv2d_forward:
        op->arguments.conv2d_forward =
            (struct ls_conv2d_forward_arguments){m->conv, f[0], s[7], s[1], f[1], m->workspace};
        break;
    case LS_OP_conv2d_backward_data:
        op->arguments.conv2d_backward_data =
            (struct ls_conv2d_backward_data_arguments){m->conv, f[1], s[7], f[0], m->workspace};
        break;
    case LS_OP_conv2d_backward_weights:
        op->arguments.conv2d_backward_weights =
            (struct ls_conv2d_backward_weights_arguments){m->conv, f[0], f[1], s[0], s[1], false, m->workspace};
        break;
    case LS_OP_batchnorm_train:
        op->arguments.batchnorm_train =
            (struct ls_batchnorm_train_arguments){m->norm, f[0], f[1], s[0], s[1], s[2], s[3], s[4], s[5]};
        break;
    case LS_OP_batchnorm_eval:
        op->arguments.batchnorm_eval =
            (struct ls_batchnorm_eval_arguments){m->norm, f[0], f[1], s[0], s[1], s[2], s[3]};
        break;
    case LS_OP_batchnorm_backward:
        op->arguments.batchnorm_backward = (struct ls_batchnorm_backward_arguments){
            m->norm, f[0], s[0], s[1], f[1], f[2], s[2], s[3], s[4], s[5], false};
        break;
    case LS_OP_batchnorm_statistics:
        op->arguments.batchnorm_statistics = (struct ls_batchnorm_statistics_arguments){m->norm, m->doubles, f[0]};
        break;
    case LS_OP_batchnorm_normalize:
        op->arguments.batchnorm_normalize =
            (struct ls_batchnorm_normalize_arguments){m->norm, f[0], f[1], s[0], s[1], s[2], s[3]};
        break;
    case LS_OP_batchnorm_sums:
        op->arguments.batchnorm_sums =
            (struct ls_batchnorm_sums_arguments){m->norm, s[0], s[1], s[2], f[0], f[1], s[3], s[4], s[5], s[6], false};
        break;
    case LS_OP_batchnorm_input_gradient:
        op->arguments.batchnorm_input_gradient = (struct ls_batchnorm_input_gradient_arguments){
            m->norm, f[0], f[1], f[2], s[0], s[1], s[2], s[3], s[4], m->doubles};
        break;
    case LS_OP_maxpool_forward:
        op->arguments.maxpool_forward = (struct ls_maxpool_forward_arguments){m->pool, f[0], m->choices, f[1]};
        break;
    case LS_OP_maxpool_backward:
        op->arguments.maxpool_backward = (struct ls_maxpool_backward_arguments){m->pool, f[0], f[1], m->choices};
        break;
    case LS_OP_avgpool_forward:
        op->arguments.avgpool_forward = (struct ls_avgpool_forward_arguments){LS_FP32, f[0], f[1], m->count / 64, 64};
        break;
    case LS_OP_avgpool_backward:
        op->arguments.avgpool_backward = (struct ls_avgpool_backward_arguments){LS_FP32, f[0], f[1], m->count / 64, 64};
        break;
    default: op->id = LS_OP_COUNT; break;
    }
}

/* The part that includes all classes. */
static struct ls_class_part all_of(size_t classes) { return (struct ls_class_part){0, classes, classes, classes}; }

/* Operations of networks for texts: COLUMNS channels, except for attention. */
static void fill_text(struct ls_op *op, const struct material *m, ls_op_id id) {
    float *const *f = m->large, *const *s = m->small;
    op->id = id;
    switch (id) {
    case LS_OP_add_bias_gelu:
        op->arguments.add_bias_gelu = (struct ls_add_bias_gelu_arguments){LS_FP32, f[0], f[1], s[0], m->rows, COLUMNS};
        break;
    case LS_OP_gelu_bias_gradient:
        op->arguments.gelu_bias_gradient =
            (struct ls_gelu_bias_gradient_arguments){LS_FP32, s[0], f[0], f[1], m->rows, COLUMNS, false};
        break;
    case LS_OP_layernorm_forward:
        op->arguments.layernorm_forward = (struct ls_layernorm_forward_arguments){
            LS_FP32, f[0], f[1], s[0], s[1], s[2], s[3], m->texts, COLUMNS, 1e-5f};
        break;
    case LS_OP_layernorm_backward:
        op->arguments.layernorm_backward = (struct ls_layernorm_backward_arguments){
            LS_FP32, f[0], s[0], s[1], f[1], f[2], s[4], s[2], s[3], m->texts, COLUMNS, false};
        break;
    case LS_OP_embedding_forward:
        op->arguments.embedding_forward = (struct ls_embedding_forward_arguments){
            LS_FP32, f[0], m->tokens, f[1], f[2], m->texts, m->context, m->vocabulary, COLUMNS};
        break;
    case LS_OP_embedding_backward:
        op->arguments.embedding_backward = (struct ls_embedding_backward_arguments){
            LS_FP32, f[0], f[1], m->tokens, m->texts, m->vocabulary, COLUMNS, false};
        break;
    case LS_OP_embedding_part_forward:
        op->arguments.embedding_part_forward = (struct ls_embedding_part_forward_arguments){
            LS_FP32, f[0], m->tokens, f[1], f[2], m->texts, m->context, all_of(m->vocabulary), COLUMNS};
        break;
    case LS_OP_embedding_part_backward:
        op->arguments.embedding_part_backward = (struct ls_embedding_part_backward_arguments){
            LS_FP32, f[0], f[1], m->tokens, m->texts, all_of(m->vocabulary), COLUMNS, false};
        break;
    case LS_OP_attention_forward:
        op->arguments.attention_forward =
            (struct ls_attention_forward_arguments){m->attention, f[0], f[1], f[2], m->workspace};
        break;
    case LS_OP_attention_backward:
        op->arguments.attention_backward =
            (struct ls_attention_backward_arguments){m->attention, f[0], f[1], f[3], f[4], f[2], m->workspace};
        break;
    default: op->id = LS_OP_COUNT; break;
    }
}

static void fill_updates(struct ls_op *op, const struct material *m, ls_op_id id) {
    float *const *f = m->large, *const *s = m->small;
    size_t n = m->count, chunks = (n + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
    struct ls_sgd_rule sgd = {0.9f, 0, 0.01f, false};
    struct ls_adam_rule adam = {0.9, 0.999, 1e-8, 0.01, true};
    op->id = id;
    switch (id) {
    case LS_OP_cross_entropy:
        op->arguments.cross_entropy =
            (struct ls_cross_entropy_arguments){s[0], f[0], f[1], m->labels, n / CLASSES, CLASSES, 1};
        break;
    case LS_OP_class_maxima:
        op->arguments.class_maxima = (struct ls_class_maxima_arguments){f[2], f[1], n / CLASSES, all_of(CLASSES)};
        break;
    case LS_OP_class_sums:
        op->arguments.class_sums =
            (struct ls_class_sums_arguments){f[2], f[1], f[3], m->labels, n / CLASSES, all_of(CLASSES)};
        break;
    case LS_OP_class_loss:
        op->arguments.class_loss =
            (struct ls_class_loss_arguments){s[0], f[0], f[1], f[2], f[3], m->labels, n / CLASSES, all_of(CLASSES), 1};
        break;
    case LS_OP_squared_error:
        op->arguments.squared_error = (struct ls_squared_error_arguments){s[0], f[0], f[1], f[2], n, 1};
        break;
    case LS_OP_count_correct:
        op->arguments.count_correct =
            (struct ls_count_correct_arguments){(int64_t *)m->doubles, f[0], m->labels, n / CLASSES, CLASSES};
        break;
    case LS_OP_sgd: op->arguments.sgd = (struct ls_sgd_arguments){sgd, m->state, f[0], f[1], f[2], n}; break;
    case LS_OP_adam: op->arguments.adam = (struct ls_adam_arguments){adam, m->state, f[0], f[1], f[2], f[3], n}; break;
    case LS_OP_sgd_list:
        op->arguments.sgd_list = (struct ls_sgd_list_arguments){sgd, m->state, m->list, 1, chunks, n};
        break;
    case LS_OP_adam_list:
        op->arguments.adam_list = (struct ls_adam_list_arguments){adam, m->state, m->list, 1, chunks, n};
        break;
    case LS_OP_square_sum_list:
        op->arguments.square_sum_list = (struct ls_square_sum_list_arguments){m->doubles, m->list, 1, chunks, n};
        break;
    default: op->id = LS_OP_COUNT; break;
    }
}

/* Leaves out operations on a few numbers (begin_update, weigh_gradients, update_scale, batchnorm_merge), whose rate is
 * meaningless. */
int gpu_check_make_operations(gpu_check_arena *arena, ls_device *device, size_t count, struct ls_op *ops,
                              char (*names)[GPU_CHECK_TEXT]) {
    *arena = (gpu_check_arena){.device = device};
    static struct material material; /* reduce_add's list of sources must outlive this call */
    if (!gather_material(arena, &material, count)) return 0;
    void (*const fill[])(struct ls_op *, const struct material *, ls_op_id) = {fill_linear, fill_halves, fill_images,
                                                                               fill_text, fill_updates};
    int made = 0;
    for (int id = 0; id < LS_OP_COUNT; id++) {
        for (size_t f = 0; f < sizeof fill / sizeof *fill; f++) {
            struct ls_op op;
            memset(&op, 0, sizeof op);
            fill[f](&op, &material, (ls_op_id)id);
            if (op.id == LS_OP_COUNT) continue;
            snprintf(names[made], GPU_CHECK_TEXT, "%s%s", ls_op_name(op.id), fill[f] == fill_halves ? " of bf16" : "");
            ops[made++] = op;
        }
    }
    return made;
}
