#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/device/plugin.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/transplant.h"

#define MAX_PIECES 64
#define MAX_SOURCES 256
/* All ones are a NaN: what reads beyond an array shows in the results too. */
#define GUARD_NBYTES 64
#define GUARD_BYTE 0xff

static ls_device *gpu;

/* --- the GPU ------------------------------------------------------------------------------------------------------ */

/* The rounding that this process was started with. */
static const char *own_rounding(void) {
    static char text[80];
    static bool asked;
    const char *now = getenv("CUDA_ON_CPU_ROUNDING");
    if (!asked && now) snprintf(text, sizeof text, "%s", now);
    asked = true;
    return text[0] ? text : NULL;
}

/* Starts the CPU's CUDA anew if it is to run in another way. */
static void set_manner(const char *manner) {
    static const char *current = "";
    const char *own = own_rounding();
    if (strcmp(manner, current) == 0) return;
    current = manner;
    unsetenv("CUDA_ON_CPU_THREADS");
    unsetenv("CUDA_ON_CPU_STREAMS");
    unsetenv("CUDA_ON_CPU_ROUNDING");
    char text[160], *rest = text;
    assert_true(snprintf(text, sizeof text, "%s", manner) < (int)sizeof text);
    for (char *setting = strtok_r(text, " ", &rest); setting; setting = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(setting, '=');
        assert_non_null(value);
        *value = '\0';
        setenv(setting, value + 1, 1);
    }
    if (own) setenv("CUDA_ON_CPU_ROUNDING", own, 1);
    void (*restart)(void) = NULL;
    *(void **)&restart = fake_function("cuda_on_cpu_restart");
    if (restart) restart();
}

int transplant_setup(void **state) {
    if (kernel_setup(state) != 0) return -1;
    setenv("CUDA_ON_CPU_DEVICES", "1", 1); /* a real GPU does not care */
    set_manner(*state ? *state : "");
    ls_device_options options = {.kind = LS_DEVICE_CUDA, .devices_on_node = 1};
    if (ls_device_open(&gpu, &options) == LS_OK) return 0;
    (void)kernel_teardown(state); /* says why */
    return -1;
}

int transplant_teardown(void **state) {
    ls_device_close(gpu);
    gpu = NULL;
    return kernel_teardown(state);
}

void transplant_leave_out(struct CMUnitTest *tests, size_t count) {
    for (size_t i = 0; i < count && gpu_is_real(); i++) {
        if (tests[i].initial_state) tests[i] = (struct CMUnitTest){0}; /* which cmocka does not run, nor count */
    }
}

ls_stream *transplant_stream(void) { return ls_device_stream(gpu, LS_STREAM_COMPUTE); }

const struct ls_cuda_rungs *transplant_rungs(void) {
    char why[400];
    const struct ls_cuda_rungs *rungs = ls_plugin_open("ls_cuda.so", "ls_cuda_rungs", why, sizeof why);
    if (!rungs) fail_msg("%s", why);
    return rungs;
}

/* --- pieces: arrays of the fixture, laid one after the other into one piece of device memory ---------------------- */

struct piece {
    unsigned char *host; /* NULL: workspace, which is on the GPU only */
    size_t nbytes;
    size_t place; /* in the image */
    bool written;
};

struct image {
    struct piece pieces[MAX_PIECES];
    int count;
    size_t nbytes;
    unsigned char *before, *after, *device;
};

static struct piece *find_piece(struct image *image, const void *address) {
    const unsigned char *at = address;
    for (int i = 0; i < image->count; i++) {
        struct piece *p = &image->pieces[i];
        if (p->host && (at == p->host || (at > p->host && at < p->host + p->nbytes))) return p;
    }
    return NULL;
}

static struct piece *add_piece(struct image *image, void *host, size_t nbytes) {
    assert_true(image->count < MAX_PIECES);
    struct piece *piece = &image->pieces[image->count++];
    *piece = (struct piece){.host = host, .nbytes = nbytes};
    return piece;
}

/* The array that the address lies in, if there is one. */
static void gather(struct image *image, const void *address) {
    void *begin;
    size_t nbytes;
    if (!address || find_piece(image, address) || !kernel_find(address, &begin, &nbytes)) return;
    add_piece(image, begin, nbytes);
}

static void *translate(struct image *image, const void *address) {
    struct piece *piece = find_piece(image, address);
    if (!piece) return (void *)(uintptr_t)address;
    return image->device + piece->place + (size_t)((const unsigned char *)address - piece->host);
}

static void place_pieces(struct image *image, transplant_alignment alignment) {
    size_t end = 0;
    int arrays = 0;
    for (int i = 0; i < image->count; i++) {
        struct piece *piece = &image->pieces[i];
        size_t element_nbytes = (uintptr_t)piece->host % 64; /* 0 if it is no array of floats or halves: fixture.h */
        bool elements = element_nbytes > 0;
        bool shifted = elements && (alignment == TRANSPLANT_SHIFTED ||
                                    (alignment == TRANSPLANT_SECOND_SHIFTED && arrays % 2 == 1) ||
                                    (alignment == TRANSPLANT_FIRST_SHIFTED && arrays % 2 == 0));
        arrays += elements;
        piece->place = (end + GUARD_NBYTES + 63) / 64 * 64 + (shifted ? element_nbytes : 0);
        end = piece->place + piece->nbytes;
    }
    image->nbytes = end + GUARD_NBYTES;
}

/* --- operations: which words of their arguments are addresses ----------------------------------------------------- */

enum { WORDS = sizeof((struct ls_op *)0)->arguments / sizeof(void *) };

static const void *word(const struct ls_op *op, size_t i) {
    const void *address;
    memcpy(&address, (const unsigned char *)&op->arguments + i * sizeof address, sizeof address);
    return address;
}

/* The list of an operation on lists: tensors and their number. */
static const struct ls_update_tensor *list_of(const struct ls_op *op, size_t *count) {
    *count = op->id == LS_OP_sgd_list          ? op->arguments.sgd_list.tensor_count
             : op->id == LS_OP_adam_list       ? op->arguments.adam_list.tensor_count
             : op->id == LS_OP_square_sum_list ? op->arguments.square_sum_list.tensor_count
                                               : 0;
    return op->id == LS_OP_sgd_list          ? op->arguments.sgd_list.tensors
           : op->id == LS_OP_adam_list       ? op->arguments.adam_list.tensors
           : op->id == LS_OP_square_sum_list ? op->arguments.square_sum_list.tensors
                                             : NULL;
}

/* Where the operation's workspace is named, NULL if it has none; `nbytes` that a GPU needs there. */
static void **workspace_of(struct ls_op *op, size_t *nbytes) {
    const struct ls_conv2d_shape *shape = NULL;
    void **workspace = NULL;
    *nbytes = 0;
    if (op->id == LS_OP_gemm) {
        const struct ls_gemm_arguments *g = &op->arguments.gemm;
        *nbytes = ls_gemm_workspace_nbytes(LS_DEVICE_CUDA, g->dtype, g->m, g->n, g->k);
        workspace = &op->arguments.gemm.workspace;
    } else if (op->id == LS_OP_conv2d_forward) {
        shape = &op->arguments.conv2d_forward.shape;
        workspace = &op->arguments.conv2d_forward.workspace;
    } else if (op->id == LS_OP_conv2d_backward_data) {
        shape = &op->arguments.conv2d_backward_data.shape;
        workspace = &op->arguments.conv2d_backward_data.workspace;
    } else if (op->id == LS_OP_conv2d_backward_weights) {
        shape = &op->arguments.conv2d_backward_weights.shape;
        workspace = &op->arguments.conv2d_backward_weights.workspace;
    }
    if (shape) *nbytes = ls_conv2d_workspace_nbytes(LS_DEVICE_CUDA, shape);
    return workspace;
}

static void gather_all(struct image *image, struct ls_op *op) {
    size_t nbytes, tensors;
    void **workspace = workspace_of(op, &nbytes);
    if (workspace) {
        add_piece(image, NULL, nbytes)->written = true;
        *workspace = NULL;
    }
    const struct ls_update_tensor *list = list_of(op, &tensors);
    for (size_t i = 0; i < tensors; i++) {
        gather(image, list[i].parameter);
        gather(image, list[i].gradient);
        gather(image, list[i].first);
        gather(image, list[i].second);
    }
    if (op->id == LS_OP_reduce_add) { /* the array of addresses stays in host memory */
        const struct ls_reduce_add_arguments *a = &op->arguments.reduce_add;
        for (int s = 0; s < a->source_count; s++) gather(image, a->sources[s]);
        gather(image, a->y);
        return;
    }
    for (size_t i = 0; i < WORDS; i++) gather(image, word(op, i));
}

/* The operation as the GPU is to see it; `sources` has room for reduce_add's. */
static struct ls_op translate_op(struct image *image, struct ls_op op, const float **sources) {
    size_t nbytes, tensors;
    const struct ls_update_tensor *list = list_of(&op, &tensors);
    for (size_t i = 0; i < tensors; i++) {
        struct ls_update_tensor t = list[i];
        t.parameter = translate(image, t.parameter);
        t.gradient = translate(image, t.gradient);
        t.first = translate(image, t.first);
        t.second = translate(image, t.second);
        memcpy(image->before + find_piece(image, list)->place + i * sizeof t, &t, sizeof t);
    }
    if (op.id == LS_OP_reduce_add) {
        struct ls_reduce_add_arguments *a = &op.arguments.reduce_add;
        assert_true(a->source_count <= MAX_SOURCES);
        for (int s = 0; s < a->source_count; s++) sources[s] = translate(image, a->sources[s]);
        a->sources = sources;
        a->y = translate(image, a->y);
        return op;
    }
    for (size_t i = 0; i < WORDS; i++) {
        void *there = translate(image, word(&op, i));
        memcpy((unsigned char *)&op.arguments + i * sizeof there, &there, sizeof there);
    }
    void **workspace = workspace_of(&op, &nbytes);
    if (workspace) *workspace = image->device + image->pieces[0].place;
    return op;
}

/* --- there and back ----------------------------------------------------------------------------------------------- */

static void fill_image(struct image *image) {
    image->before = malloc(image->nbytes);
    image->after = malloc(image->nbytes);
    assert_true(image->before && image->after);
    memset(image->before, GUARD_BYTE, image->nbytes);
    for (int i = 0; i < image->count; i++) {
        struct piece *piece = &image->pieces[i];
        if (piece->host && piece->nbytes > 0) memcpy(image->before + piece->place, piece->host, piece->nbytes);
    }
    void *memory;
    assert_int_equal(ls_device_alloc(gpu, LS_MEMORY_WORKSPACE, image->nbytes, "a problem", &memory), LS_OK);
    image->device = memory;
}

/* Fails if a byte that is no output has changed. */
static void expect_untouched(const struct image *image, const char *op) {
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

static void mark_outputs(struct image *image, const struct problem *problem) {
    for (int i = 0; i < problem->output_count; i++) {
        struct piece *piece = find_piece(image, problem->outputs[i].memory);
        if (piece) piece->written = true; /* an output that is not there: a moment that the rule does not use */
    }
}

static void free_image(struct image *image) {
    ls_device_free(gpu, image->device);
    free(image->before);
    free(image->after);
}

ls_status transplant_run(const struct problem *problem, ls_op_launcher enqueue, transplant_alignment alignment) {
    struct image image = {.count = 0};
    struct ls_op op = problem->op;
    const float *sources[MAX_SOURCES];
    gather_all(&image, &op);
    mark_outputs(&image, problem);
    place_pieces(&image, alignment);
    fill_image(&image);
    struct ls_op there = translate_op(&image, op, sources);
    assert_int_equal(ls_copy_now(transplant_stream(), image.device, image.before, image.nbytes), LS_OK);
    ls_status status = enqueue(transplant_stream(), &there);
    memset(sources, 0, sizeof sources); /* the operation must not need them any more */
    ls_status waited = ls_stream_synchronize(transplant_stream());
    if (status == LS_OK) status = waited;
    if (status == LS_OK) {
        assert_int_equal(ls_copy_now(transplant_stream(), image.after, image.device, image.nbytes), LS_OK);
        expect_untouched(&image, ls_op_name(op.id));
        for (int i = 0; i < image.count; i++) {
            struct piece *piece = &image.pieces[i];
            if (piece->host && piece->written && piece->nbytes > 0)
                memcpy(piece->host, image.after + piece->place, piece->nbytes);
        }
    }
    free_image(&image);
    return status;
}
