/* The state of units, and the functions shared by their files: units.c decides when a unit is gathered, units_memory.c
 * places it. */
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
    float *slices; /* this rank's slices of all units, concatenated */
    size_t slices_nbytes;
    bool is_shared, is_adopted; /* the slices are in the group's memory; the device accounts for them */
    struct ls_part *parts;      /* the same, parameter by parameter */
    char *memory;               /* of the buffers */
    struct buffer *buffers;
    int turn_count,
        buffer_count; /* buffers that units use in turn; all buffers, with one for each unit that is never dropped */
    int *buffer_of;   /* of each block's unit */
    ls_event *updated;
    int *visits;
    size_t visit_count;
    /* changes from step to step */
    int *held;        /* the block whose unit a buffer has once the enqueued work is done; -1: none */
    int *forecast;    /* the same for a step that is only counted */
    size_t at;        /* visits made so far in this pass */
    bool was_in_step; /* the last visit */
    uint64_t version; /* of the gathered parameters; 0: none gathered */
};

/* Of a block's unit, in floats: the offset of its slice among the rank's slices, the slice's size, and the whole
 * size. */
static inline size_t slice_begin(const ddp_units *u, int block) {
    return u->parameters->block_begins[block] / u->world_size;
}
static inline size_t slice_floats(const ddp_units *u, int block) {
    return slice_begin(u, block + 1) - slice_begin(u, block);
}
static inline size_t unit_floats(const ddp_units *u, int block) { return slice_floats(u, block) * u->world_size; }

/* units_memory.c. place allocates slices and buffers and assigns each parameter's part; collective. displace frees
 * them, also after a failure. */
ls_status ddp_units_place(ddp_units *u);
void ddp_units_displace(ddp_units *u);

#endif
