#include "tests/replay/improvise.h"

#include "common/base/random.h"

enum { DEVICES = 4, LANES = 4 * DEVICES, TASKS = 300 };

void scene_improvise(struct scene *s, uint64_t seed, bool kind_by_kind) {
    static const ls_lane_kind kinds[] = {LS_LANE_HOST, LS_LANE_COMPUTE, LS_LANE_COPY, LS_LANE_COMM};
    static const struct scene_link links[] = {{"gpu0", "left", 9, 0.5, false},   {"gpu1", "left", 9, 0.5, false},
                                              {"gpu2", "right", 9, 0.5, true},   {"gpu3", "right", 7, 0.5, false},
                                              {"left", "host", 11, 0.25, false}, {"right", "host", 6, 0.25, true},
                                              {"gpu0", "gpu2", 20, 0.1, false},  {0}};
    ls_generator random;
    ls_generator_seed(&random, seed);
    int lanes[DEVICES][4], tasks[TASKS], meetings = 0;
    scene_begin(s);
    for (int i = 0; i < LANES; i++) {
        int device = kind_by_kind ? i % DEVICES : i / 4, kind = kind_by_kind ? i / DEVICES : i % 4;
        lanes[device][kind] = scene_lane(s, kinds[kind], 0, device);
    }
    for (int i = 0; i < TASKS; i++) {
        uint32_t draw = ls_random32(&random);
        int device = (int)(draw % DEVICES), kind = (int)(draw / 8 % 4), far = (int)(draw / 64 % (DEVICES + 1)) - 1;
        double us = 1 + 20 * ls_uniform_double(&random);
        int lane = lanes[device][kind];
        s->step = i / (TASKS / 3);
        if (kind == 0) tasks[i] = draw % 512 < 256 ? scene_host(s, lane, us) : scene_locked(s, lane, i % 2, us);
        if (kind == 2) tasks[i] = scene_copy(s, lane, device, far, i % 7 ? 1 + (uint64_t)(us * 1e4) : 0);
        if (kind == 1 || (kind == 3 && draw % 512 < 256)) {
            tasks[i] = scene_kernel(s, lane, us);
        } else if (kind == 3) {
            for (int d = 0; d < DEVICES; d++) tasks[i] = scene_collective(s, lanes[d][3], meetings, DEVICES, us);
            meetings++;
        }
        for (int k = 0; k < 2 && i > 0; k++) scene_after(s, tasks[ls_random32(&random) % (uint32_t)i], tasks[i]);
    }
    scene_node(s, DEVICES, 1.25, links);
    scene_run(s);
}
