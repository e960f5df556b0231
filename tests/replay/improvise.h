/* A random scene: hosts with and without locks, kernels on two streams of each device, copies over various links,
 * collectives. */
#ifndef TESTS_REPLAY_IMPROVISE_H
#define TESTS_REPLAY_IMPROVISE_H

#include "tests/replay/scene.h"

/* Begins and runs the scene of this seed, of three steps, with its lanes numbered device by device, or kind by
 * kind. In both orders, lanes that may compete for a lock or a device have the same relative order, so all times are
 * the same. */
void scene_improvise(struct scene *scene, uint64_t seed, bool kind_by_kind);

#endif
