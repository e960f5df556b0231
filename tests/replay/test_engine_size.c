/* engine: a DDP job of many ranks, a million tasks in total, with a known makespan; the cost is proportional to the
 *         number of tasks. */
#include "tests/base/test.h"
#include "tests/replay/scene.h"

#define LAUNCH_US 1.0
#define KERNEL_US 5.0
#define REDUCE_US 20.0

enum { BUCKET = 4 /* layers */ };

/* A rank's step: a launch and a kernel per layer; after each bucket of layers an all-reduce of all ranks; after the
 * last one an optimizer's kernel. The hosts run ahead. */
static void build(struct scene *s, int ranks, int steps, int layers) {
    scene_begin(s);
    for (int lane = 0; lane < 3 * ranks; lane++) {
        static const ls_lane_kind kinds[] = {LS_LANE_HOST, LS_LANE_COMPUTE, LS_LANE_COMM};
        scene_lane(s, kinds[lane % 3], lane / 3, lane / 3);
    }
    for (s->step = 0; s->step < steps; s->step++) {
        for (int rank = 0; rank < ranks; rank++) {
            int host = 3 * rank, compute = host + 1, comm = host + 2, kernel = LS_NONE, reduced = LS_NONE;
            for (int layer = 1; layer <= layers; layer++) {
                int launch = scene_host(s, host, LAUNCH_US);
                kernel = scene_after(s, launch, scene_kernel(s, compute, KERNEL_US));
                if (layer % BUCKET != 0) continue;
                int number = s->step * (layers / BUCKET) + layer / BUCKET - 1;
                reduced = scene_after(s, kernel, scene_collective(s, comm, number, ranks, REDUCE_US));
            }
            scene_after(s, reduced, scene_kernel(s, compute, KERNEL_US));
        }
    }
}

/* Kernels run serially after the first launch; a bucket's all-reduce takes as long as the next bucket's kernels, so
 * only the last one is waited for. */
static double makespan_us(int steps, int layers) {
    return LAUNCH_US + steps * (layers * KERNEL_US + REDUCE_US + KERNEL_US);
}

static void expect_job(int ranks, int steps, int layers) {
    struct scene s;
    build(&s, ranks, steps, layers);
    scene_run(&s);
    assert_int_equal(s.timeline->task_count, ranks * steps * (2 * layers + layers / BUCKET + 1));
    expect_us(s.timeline->makespan_us, makespan_us(steps, layers));
    scene_end(&s);
}

TEST(a_course_job) { expect_job(8, 20, 12); }

TEST(a_million_tasks) { expect_job(256, 4, 432); }
