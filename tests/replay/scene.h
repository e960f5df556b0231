/* A scene: a small trace that a test builds, a node for it, and their replay. All functions assert success. Times are
 *          compared up to rounding, 1e-9 of the expected value. */
#ifndef TESTS_REPLAY_SCENE_H
#define TESTS_REPLAY_SCENE_H

#include "labs/replay/engine/engine.h"

struct scene {
    ls_trace *trace;
    ls_node *node; /* NULL: none */
    ls_timeline *timeline;
    int step;          /* of tasks added from now on; LS_NONE at first */
    const char *phase; /* likewise; NULL: none */
};

struct scene_link {
    const char *from, *to;
    double GBps, latency_us;
    bool one_way_at_a_time; /* not duplex */
};

void scene_begin(struct scene *scene);
void scene_end(struct scene *scene);

/* Each returns the number of the lane or task that it adds. Lanes of a host drive their device. */
int scene_lane(struct scene *scene, ls_lane_kind kind, int rank, int device);
int scene_host(struct scene *scene, int lane, double us);
int scene_hand_over(struct scene *scene, int lane, double us);
int scene_locked(struct scene *scene, int lane, int lock, double us);
int scene_kernel(struct scene *scene, int lane, double us);
int scene_copy(struct scene *scene, int lane, int from, int to, uint64_t bytes); /* over the links */
int scene_collective(struct scene *scene, int lane, int number, int ranks, double us);
int scene_after(struct scene *scene, int before, int task); /* an edge; returns task */

/* A node with `devices` devices and these links (the terminator has no `from`). */
void scene_node(struct scene *scene, int devices, double slow_down, const struct scene_link *links);

/* Every device has a link of its own to one switch, which is never a bottleneck: half of the latency each. */
void scene_star(struct scene *scene, int devices, double GBps, double latency_us);

void scene_seal(struct scene *scene);

/* Seals and replays. */
void scene_run(struct scene *scene);

/* Seals, and asserts that replay refuses the scene with a line that contains these texts (scratch.h). */
void scene_expect_refusal(struct scene *scene, const char *text, const char *another);

void expect_us(double got_us, double wanted_us);
void scene_expect(const struct scene *scene, int task, double start_us, double end_us);

/* Checks that the timeline keeps every rule of engine.h that it shows: order of lanes, edges and meetings, one kernel
 * at a time, one holder of a lock, no work left out, bytes over links as the routes specify and never faster than the
 * links. */
void scene_check(const struct scene *scene);

#endif
