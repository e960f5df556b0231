#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "tests/kernels/transplant.h"

#define MAX_ARGUMENTS 16
#define MAX_SOURCES 256
/* All ones are a NaN: reading beyond an array is visible in the results, too. */
#define GUARD_NBYTES 64
#define GUARD_BYTE 0xff

/* --- the arguments' types in ops.def ------------------------------------------------------------------------------ */

enum use { NUMBER, TYPE, CONV2D, BATCHNORM, POOL, ATTENTION, INPUT, OUTPUT, LIST, SOURCES };

/* `const void *` and `void *` are elements of the type argument before them. */
struct argument {
    enum use use;
    const char *name;
    ls_dtype dtype; /* of elements; LS_INT64 of integers; LS_FP32 of others, which are compared as floats */
    void *at;       /* in struct ls_op */
};

#define USE(type)                                                                                                      \
    _Generic((type){0},                                                                                                \
        ls_dtype: TYPE,                                                                                                \
        struct ls_conv2d_shape: CONV2D,                                                                                \
        struct ls_batchnorm_shape: BATCHNORM,                                                                          \
        struct ls_pool_shape: POOL,                                                                                    \
        struct ls_attention_shape: ATTENTION,                                                                          \
        void *: OUTPUT,                                                                                                \
        float *: OUTPUT,                                                                                               \
        double *: OUTPUT,                                                                                              \
        uint8_t *: OUTPUT,                                                                                             \
        int64_t *: OUTPUT,                                                                                             \
        struct ls_update_state *: OUTPUT,                                                                              \
        struct ls_scaler_state *: OUTPUT,                                                                              \
        struct ls_entry *: OUTPUT,                                                                                     \
        const void *: INPUT,                                                                                           \
        const float *: INPUT,                                                                                          \
        const double *: INPUT,                                                                                         \
        const uint8_t *: INPUT,                                                                                        \
        const int32_t *: INPUT,                                                                                        \
        const int64_t *: INPUT,                                                                                        \
        const struct ls_update_state *: INPUT,                                                                         \
        const struct ls_scaler_state *: INPUT,                                                                         \
        const struct ls_entry *: INPUT,                                                                                \
        const struct ls_update_tensor *: LIST,                                                                         \
        const float *const *: SOURCES,                                                                                 \
        default: NUMBER)
#define ELEMENTS(type)                                                                                                 \
    _Generic((type){0},                                                                                                \
        void *: latest,                                                                                                \
        const void *: latest,                                                                                          \
        uint8_t *: LS_INT64,                                                                                           \
        const uint8_t *: LS_INT64,                                                                                     \
        const int32_t *: LS_INT64,                                                                                     \
        int64_t *: LS_INT64,                                                                                           \
        const int64_t *: LS_INT64,                                                                                     \
        struct ls_entry *: LS_INT64,                                                                                   \
        const struct ls_entry *: LS_INT64,                                                                             \
        default: LS_FP32)

static ls_dtype type_of(enum use use, const void *at, ls_dtype latest) {
    return use == TYPE        ? *(const ls_dtype *)at
           : use == CONV2D    ? ((const struct ls_conv2d_shape *)at)->dtype
           : use == BATCHNORM ? ((const struct ls_batchnorm_shape *)at)->dtype
           : use == POOL      ? ((const struct ls_pool_shape *)at)->dtype
           : use == ATTENTION ? ((const struct ls_attention_shape *)at)->dtype
                              : latest;
}

/* The arguments that are addresses, and their number. */
static int addresses_of(struct ls_op *op, struct argument arguments[MAX_ARGUMENTS]) {
    int n = 0;
    ls_dtype latest = LS_FP32;
    switch (op->id) {
#define ARGUMENT(type, field)                                                                                          \
    latest = type_of(USE(type), &a->field, latest);                                                                    \
    if (USE(type) >= INPUT) arguments[n++] = (struct argument){USE(type), #field, ELEMENTS(type), &a->field};
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    case LS_OP_##name: {                                                                                               \
        struct ls_##name##_arguments *a = &op->arguments.name;                                                         \
        LS_FIELDS_##name(ARGUMENT) break;                                                                              \
    }
#include "kernels/ops.def"
#undef LS_OP
#undef ARGUMENT
    case LS_OP_COUNT: break;
    }
    return n;
}

static void *address_in(const struct argument *argument) {
    void *address;
    memcpy(&address, argument->at, sizeof address);
    return address;
}

static bool is_workspace(const struct argument *argument) { return strcmp(argument->name, "workspace") == 0; }

static size_t workspace_nbytes(ls_device_kind kind, const struct ls_op *op) {
    const struct ls_gemm_arguments *g = &op->arguments.gemm;
    if (op->id == LS_OP_gemm) return ls_gemm_workspace_nbytes(kind, g->dtype, g->m, g->n, g->k);
    if (op->id == LS_OP_attention_forward)
        return ls_attention_workspace_nbytes(kind, &op->arguments.attention_forward.shape);
    if (op->id == LS_OP_attention_backward)
        return ls_attention_workspace_nbytes(kind, &op->arguments.attention_backward.shape);
    return ls_conv2d_workspace_nbytes(kind, op->id == LS_OP_conv2d_forward ? &op->arguments.conv2d_forward.shape
                                            : op->id == LS_OP_conv2d_backward_data
                                                ? &op->arguments.conv2d_backward_data.shape
                                                : &op->arguments.conv2d_backward_weights.shape);
}

/* The tensors of an operation on lists. */
static size_t tensor_count(const struct ls_op *op) {
    return op->id == LS_OP_sgd_list          ? op->arguments.sgd_list.tensor_count
           : op->id == LS_OP_adam_list       ? op->arguments.adam_list.tensor_count
           : op->id == LS_OP_square_sum_list ? op->arguments.square_sum_list.tensor_count
                                             : 0;
}

/* --- pieces: arrays of the fixture, concatenated in one piece of memory ------------------------------------------- */

struct piece {
    unsigned char *host; /* NULL: workspace */
    size_t nbytes, place;
    ls_dtype dtype;
    bool written, own_way;
};

struct image {
    const struct backend *backend;
    struct ls_op op;
    struct argument arguments[MAX_ARGUMENTS];
    int argument_count, count, capacity;
    struct piece *pieces;
    size_t nbytes;
    unsigned char *before, *after, *there;
};

static struct piece *find_piece(const struct image *image, const void *address) {
    const unsigned char *at = address;
    for (int i = 0; i < image->count; i++) {
        struct piece *p = &image->pieces[i];
        if (p->host && at >= p->host && at <= p->host + p->nbytes) return p;
    }
    return NULL;
}

static struct piece *add_piece(struct image *image, void *host, size_t nbytes, ls_dtype dtype) {
    if (image->count == image->capacity) {
        image->capacity = 2 * image->capacity + 16;
        image->pieces = realloc(image->pieces, (size_t)image->capacity * sizeof *image->pieces);
        assert_non_null(image->pieces);
    }
    struct piece *piece = &image->pieces[image->count++];
    *piece = (struct piece){.host = host, .nbytes = nbytes, .dtype = dtype};
    return piece;
}

/* The array that contains the address, or ends there. */
static struct piece *gather(struct image *image, const char *name, const void *address, ls_dtype dtype) {
    void *begin;
    size_t nbytes;
    struct piece *piece = find_piece(image, address);
    if (piece) return piece;
    if (!kernel_find(address, &begin, &nbytes) && !kernel_find((const char *)address - 1, &begin, &nbytes))
        fail_msg("%s of %s is in no array of the fixture", name, ls_op_name(image->op.id));
    return add_piece(image, begin, nbytes, dtype);
}

static void gather_output(struct image *image, const char *name, const void *address, ls_dtype dtype, bool own_way) {
    if (!address) return;
    struct piece *piece = gather(image, name, address, dtype);
    piece->written = true;
    piece->own_way |= own_way;
}

static void gather_list(struct image *image, const struct ls_update_tensor *list) {
    (void)gather(image, "tensors", list, LS_INT64);
    for (size_t i = 0; i < tensor_count(&image->op); i++) {
        if (list[i].gradient) (void)gather(image, "gradient", list[i].gradient, LS_FP32);
        if (image->op.id == LS_OP_square_sum_list) continue;
        gather_output(image, "parameter", list[i].parameter, LS_FP32, false);
        gather_output(image, "first", list[i].first, LS_FP32, false);
        gather_output(image, "second", list[i].second, LS_FP32, false);
    }
}

static void gather_all(struct image *image) {
    unsigned own_way = image->backend->build ? 0 : kernel_own_way(image->op.id);
    for (int i = 0, output = 0; i < image->argument_count; i++) {
        const struct argument *a = &image->arguments[i];
        const void *address = address_in(a);
        if (is_workspace(a)) {
            ls_device_kind kind = image->backend->build ? LS_DEVICE_CPU : LS_DEVICE_CUDA;
            add_piece(image, NULL, workspace_nbytes(kind, &image->op), LS_INT64)->written = true;
        } else if (a->use == OUTPUT) {
            gather_output(image, a->name, address, a->dtype, own_way >> output++ & 1);
        } else if (a->use == INPUT && address) {
            (void)gather(image, a->name, address, a->dtype);
        } else if (a->use == LIST && address) {
            gather_list(image, address);
        } else if (a->use == SOURCES) { /* the array of addresses stays in host memory */
            const struct ls_reduce_add_arguments *r = &image->op.arguments.reduce_add;
            for (int s = 0; s < r->source_count; s++) (void)gather(image, a->name, r->sources[s], LS_FP32);
        }
    }
}

static void place_pieces(struct image *image, kernel_alignment alignment) {
    size_t end = 0;
    int arrays = 0;
    for (int i = 0; i < image->count; i++) {
        struct piece *piece = &image->pieces[i];
        size_t element_nbytes = (uintptr_t)piece->host % 64; /* 0 for arrays of other types: fixture.h */
        bool elements = element_nbytes > 0;
        bool shifted =
            elements && (alignment == KERNEL_SHIFTED || (alignment == KERNEL_SECOND_SHIFTED && arrays % 2 == 1) ||
                         (alignment == KERNEL_FIRST_SHIFTED && arrays % 2 == 0));
        arrays += elements;
        piece->place = (end + GUARD_NBYTES + 63) / 64 * 64 + (shifted ? element_nbytes : 0);
        end = piece->place + piece->nbytes;
    }
    image->nbytes = end + GUARD_NBYTES;
}

static void make_image(struct image *image, const struct backend *backend, const struct ls_op *op,
                       kernel_alignment alignment) {
    *image = (struct image){.backend = backend, .op = *op};
    image->argument_count = addresses_of(&image->op, image->arguments);
    gather_all(image);
    place_pieces(image, alignment);
    image->before = malloc(image->nbytes);
    image->after = malloc(image->nbytes);
    assert_true(image->before && image->after);
    memset(image->before, GUARD_BYTE, image->nbytes);
    for (int i = 0; i < image->count; i++) {
        struct piece *piece = &image->pieces[i];
        if (piece->host && piece->nbytes > 0) memcpy(image->before + piece->place, piece->host, piece->nbytes);
    }
}

static void free_image(struct image *image) {
    free(image->before);
    free(image->after);
    free(image->pieces);
}

/* --- copies to the back-end and back ------------------------------------------------------------------------------ */

static void *translate(const struct image *image, const void *address) {
    const struct piece *piece = address ? find_piece(image, address) : NULL;
    return piece ? image->there + piece->place + ((const unsigned char *)address - piece->host) : NULL;
}

static void translate_list(struct image *image, const struct ls_update_tensor *list) {
    bool only_gradients = image->op.id == LS_OP_square_sum_list;
    for (size_t i = 0; i < tensor_count(&image->op); i++) {
        struct ls_update_tensor t = list[i];
        t.gradient = translate(image, t.gradient);
        t.parameter = only_gradients ? NULL : translate(image, t.parameter);
        t.first = only_gradients ? NULL : translate(image, t.first);
        t.second = only_gradients ? NULL : translate(image, t.second);
        memcpy(image->before + find_piece(image, list)->place + i * sizeof t, &t, sizeof t);
    }
}

/* Stores the new addresses in image->op; `sources` has room for reduce_add's. */
static void translate_all(struct image *image, const float **sources) {
    for (int i = 0; i < image->argument_count; i++) {
        const struct argument *a = &image->arguments[i];
        const void *address = address_in(a);
        void *there = translate(image, address);
        if (a->use == LIST && address) translate_list(image, address);
        if (a->use == SOURCES) {
            const struct ls_reduce_add_arguments *r = &image->op.arguments.reduce_add;
            assert_true(r->source_count <= MAX_SOURCES);
            for (int s = 0; s < r->source_count; s++) sources[s] = translate(image, r->sources[s]);
            there = sources;
        }
        for (int p = 0; p < image->count && is_workspace(a); p++)
            if (!image->pieces[p].host) there = image->there + image->pieces[p].place;
        memcpy(a->at, &there, sizeof there);
    }
}

/* With a sanitizer, reading between arrays is an error, too. */
static void guard(const struct image *image, bool begin) {
#if defined(__SANITIZE_ADDRESS__)
    for (int i = 0; i <= image->count && image->backend->build; i++) {
        size_t at = i > 0 ? image->pieces[i - 1].place + image->pieces[i - 1].nbytes : 0;
        size_t end = i < image->count ? image->pieces[i].place : image->nbytes;
        if (begin) ASAN_POISON_MEMORY_REGION(image->there + at, end - at);
        if (!begin) ASAN_UNPOISON_MEMORY_REGION(image->there + at, end - at);
    }
#else
    (void)image, (void)begin;
#endif
}

static ls_status run_there(struct image *image) {
    ls_stream *stream = backend_stream(image->backend);
    ls_device *device = ls_stream_device(stream);
    const float *sources[MAX_SOURCES];
    void *memory;
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_WORKSPACE, image->nbytes, "a problem", &memory), LS_OK);
    image->there = memory;
    translate_all(image, sources);
    assert_int_equal(ls_copy_now(stream, memory, image->before, image->nbytes), LS_OK);
    guard(image, true);
    ls_status status = backend_run(image->backend, &image->op);
    guard(image, false);
    if (status == LS_OK || status == LS_ERR_INVALID)
        assert_int_equal(ls_copy_now(stream, image->after, memory, image->nbytes), LS_OK);
    else
        memcpy(image->after, image->before, image->nbytes);
    ls_device_free(device, memory);
    return status;
}

/* --- assertions --------------------------------------------------------------------------------------------------- */

/* Fails if a byte outside the outputs has changed. */
static void expect_untouched(const struct image *image) {
    const char *op = ls_op_name(image->op.id);
    size_t begin = 0;
    for (int i = 0; i <= image->count; i++) {
        const struct piece *piece = i < image->count ? &image->pieces[i] : NULL;
        size_t end = piece ? piece->place : image->nbytes;
        for (size_t at = begin; at < end; at++) {
            if (image->before[at] == image->after[at]) continue;
            fail_msg("%s wrote a byte %zu behind array %d of %zu bytes, or before the next", op, at - begin, i - 1,
                     i > 0 ? image->pieces[i - 1].nbytes : 0);
        }
        if (!piece) break;
        if (!piece->written && memcmp(image->before + piece->place, image->after + piece->place, piece->nbytes) != 0)
            fail_msg("%s wrote into its input %d", op, i);
        begin = piece->place + piece->nbytes;
    }
}

static bool is_nan(ls_dtype dtype, uint32_t bits) {
    if (dtype == LS_INT64) return false;
    return dtype == LS_FP16   ? (bits & 0x7fff) > 0x7c00
           : dtype == LS_BF16 ? (bits & 0x7fff) > 0x7f80
                              : (bits & ~(1u << 31)) > 0x7f800000;
}

static void expect_same(const struct image *got, const struct image *want) {
    for (int i = 0; i < got->count; i++) {
        const struct piece *p = &got->pieces[i];
        const unsigned char *a = got->after + p->place, *b = want->after + want->pieces[i].place;
        size_t each = p->dtype == LS_FP16 || p->dtype == LS_BF16 ? 2 : p->dtype == LS_INT64 ? 1 : 4;
        if (!p->host || !p->written || p->own_way || memcmp(a, b, p->nbytes) == 0) continue;
        for (size_t at = 0; at < p->nbytes; at += each) {
            uint32_t x = 0, y = 0;
            memcpy(&x, a + at, each);
            memcpy(&y, b + at, each);
            if (x == y || (is_nan(p->dtype, x) && is_nan(p->dtype, y))) continue;
            fail_msg("%s: the %s build has other bits: array %d of %zu bytes differs at byte %zu",
                     ls_op_name(got->op.id), want->backend->name, i, p->nbytes, at);
        }
    }
}

static bool is_to_agree(const struct image *image) {
    bool some = false;
    for (int i = 0; i < image->count; i++)
        some |= image->pieces[i].host && image->pieces[i].written && !image->pieces[i].own_way;
    return some;
}

ls_status transplant(const struct backend *backend, const struct backend *best, const struct ls_op *op,
                     kernel_alignment alignment) {
    struct image got, want;
    make_image(&got, backend, op, alignment);
    ls_status status = run_there(&got);
    expect_untouched(&got);
    if (status == LS_OK && backend->build != best->build && is_to_agree(&got)) {
        make_image(&want, best, op, KERNEL_ALIGNED);
        assert_int_equal(run_there(&want), LS_OK);
        expect_same(&got, &want);
        free_image(&want);
    }
    for (int i = 0; i < got.count; i++) {
        struct piece *piece = &got.pieces[i];
        if (piece->host && piece->written && piece->nbytes > 0)
            memcpy(piece->host, got.after + piece->place, piece->nbytes);
    }
    free_image(&got);
    return status;
}
