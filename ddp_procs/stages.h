/* Stages: the blocks of a network, divided into consecutive ranges, one for each rank of the pipeline axis; and the
 * memory of a rank's own stage (stages.c). Every rank's model declares the whole network, so that names, hashes, files
 * and evaluation work as in any model: they access parameters by ls_parameters_read and _write.
 *
 * Threads: as the model's. */
#ifndef DDP_STAGES_H
#define DDP_STAGES_H

#include "common/comm/comm.h"
#include "common/nn/model.h"
#include "ddp_procs/schedule.h"

/* Stage s has the blocks begins[s] .. begins[s + 1] - 1. */
struct ddp_cut {
    int stages, begins[DDP_MOST_STAGES + 1];
};

/* Finds the division that minimises the cost of the most expensive stage (ls_network_block_cost). LS_ERR_USAGE with one
 * line: more stages than blocks; LS_ERR_UNSUPPORTED: more than one parameter would be shared between stages, or by more
 * than two. */
ls_status ddp_cut_network(struct ddp_cut *cut, const ls_network *network, int stages);
int ddp_stage_of(const struct ddp_cut *cut, int block);

/* A parameter that layers of another stage read: a tied embedding. The reader, the later stage, has a copy of it. */
struct ddp_tie {
    bool is_there;
    size_t parameter;
    int owner, reader; /* stages */
};
struct ddp_tie ddp_tie_of(const struct ddp_cut *cut, const ls_network *network);

/* A rank's stage. Constant after create, except for `brought`. */
typedef struct ddp_stage {
    struct ddp_cut cut;
    int number;
    struct ls_blocks blocks;
    struct ddp_tie tie;
    ls_model *model;
    ls_comm *beside;
    size_t floats;    /* of this stage's parameters, with padding; divisible over the ranks of `data` */
    float *values;    /* their values; then, on the reader, the whole block of the tied parameter */
    void *halves;     /* likewise in fp16 or bf16, or NULL */
    float *gradients; /* of this stage's parameters; then the copy's */
    struct ls_part *parts;
    bool *is_copy;
    float
        *brought[2]; /* from the first evaluation on: room for a block, and for one with which it shares a parameter */
    void *brought_half[2];
} ddp_stage;

/* Allocates values (zeros) and gradients of this rank's stage for a model without values (`placed`, LS_FORWARD_ONLY:
 * model.h). From then on a pass of the model is collective: each block's parameters are broadcast from its stage.
 * `beside`: a group of the axis, for the compute stream; its rank is the stage. Gradients are in shared memory of
 * `data`, the group of this stage's replicas, if there are several. `all_ranks`: a group of all replicas' ranks, for
 * gathering shards; NULL: `beside` is used. Collective; all are borrowed until destroy. On failure *out is NULL. */
ls_status ddp_stage_create(ddp_stage **out, ls_comm *beside, ls_comm *data, ls_comm *all_ranks, ls_model *model);
/* Afterwards the model has no values. NULL is a no-op. */
void ddp_stage_destroy(ddp_stage *stage, ls_comm *data);

/* The size of one replica's slice of `floats` (ZeRO-1). */
static inline size_t ddp_stage_slice(const ddp_stage *s, int replicas) { return s->floats / (size_t)replicas; }

static inline bool ddp_stage_is_first(const ddp_stage *s) { return s->number == 0; }
static inline bool ddp_stage_is_last(const ddp_stage *s) { return s->number == s->cut.stages - 1; }

/* Between steps: gives every rank the buffers (batch norm's statistics) and batch norm's counts of all stages.
 * Collective over the axis, host-blocking. */
ls_status ddp_stage_share_buffers(const ddp_stage *stage);

#endif
