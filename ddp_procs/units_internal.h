/* The state of units, and what their files ask of each other: units.c says when a unit is gathered, units_memory.c where it
 * lies. */
#ifndef DDP_UNITS_INTERNAL_H
#define DDP_UNITS_INTERNAL_H

#include "ddp_procs/units.h"

enum { MOST_CHOSEN = 1 + DDP_MOST_PREFETCHED };

struct buffer {
    size_t floats; /* of its largest unit */
    float *values;
    void *half;
    ls_event *gathered, *left;
};

struct ddp_units {
    /* constant after create */
    ls_comm *comm;
    ls_model *model;
    ls_parameters *parameters;
    ls_device *device;
    ls_stream *compute, *comm_stream;
    struct ls_phase_clock *clock;
    size_t rank, world_size, prefetch;
    float *slices; /* this rank's of all units, one behind the other */
    size_t slices_nbytes;
    bool is_shared, is_adopted; /* the slices are the group's memory; the device is charged for it */
    struct ls_part *parts;      /* the same, parameter by parameter */
    char *memory;               /* of the buffers */
    struct buffer *buffers;
    int turn_count, buffer_count; /* those that units take in turn; all: behind them one for each unit that stays */
    int *buffer_of;               /* of each block's unit */
    ls_event *updated;
    int *visits;
    size_t visit_count;
    /* changes from step to step */
    int *held;     /* the block whose unit a buffer has, or will have once what has been enqueued is done; -1: none */
    int *forecast; /* the same of a step that is only counted */
    size_t at;     /* how many of the visits the pass in progress has made */
    bool was_in_step; /* the last visit */
    uint64_t version; /* of the parameters that have been gathered; 0: none have */
};

/* Of a block's unit, in floats: a rank's slice, where that begins among the rank's slices, and all of it. */
static inline size_t slice_begin(const ddp_units *u, int block) {
    return u->parameters->block_begins[block] / u->world_size;
}
static inline size_t slice_floats(const ddp_units *u, int block) {
    return slice_begin(u, block + 1) - slice_begin(u, block);
}
static inline size_t unit_floats(const ddp_units *u, int block) { return slice_floats(u, block) * u->world_size; }

/* units_memory.c. Slices, buffers, and what each parameter has of them; collective. Gives all of it back, whatever there is. */
ls_status ddp_units_place(ddp_units *u);
void ddp_units_displace(ddp_units *u);

#endif
