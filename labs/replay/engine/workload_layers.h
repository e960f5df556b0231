/* Shared by the two halves of the reader of workload files: workload_layers.c reads layers; workload.c reads the rest
 * of the file, and makes a step from them. */
#ifndef LABS_REPLAY_ENGINE_WORKLOAD_LAYERS_H
#define LABS_REPLAY_ENGINE_WORKLOAD_LAYERS_H

#include <stdint.h>

#include "common/base/json.h"
#include "labs/replay/engine/workload_parts.h"

enum { LS_MAX_LAYERS = 10000, LS_MAX_KERNELS = 16 };

/* Limits of a layer, per sample: elements, flops. Below them, sums over all layers stay exact in doubles. */
#define LS_MAX_ELEMENTS INT64_C(100000000000)
#define LS_MAX_FLOPS 1e16

struct ls_workload_reader {
    ls_json *json;
    struct ls_workload_parts *parts;
    double total_flops;
    bool begins_block; /* the next layer */
};

/* How many layers the file's list unfolds to; refused beyond LS_MAX_LAYERS, so the counts stay small. */
int64_t ls_workload_count_layers(struct ls_workload_reader *r, const cJSON *list);

/* Reads the layers into the workload's array, which has room for them, and their parameters and buffers into
 * r->parts. */
void ls_workload_read_layers(struct ls_workload_reader *r, const cJSON *list);

#endif
