/* Stages: the blocks of a network, cut into consecutive ranges, one for each rank of a pipeline axis; and a rank's memory for its
 * own (stages.c). Every rank's model declares the whole network, so that names, hashes, files and evaluation are those of any
 * model: they reach parameters by ls_parameters_read and _write.
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

/* The cut whose dearest stage is cheapest (ls_network_block_cost). LS_ERR_USAGE with one line: there are more stages than
 * blocks; LS_ERR_UNSUPPORTED: more than one parameter, or more than two stages, would share. */
ls_status ddp_cut_network(struct ddp_cut *cut, const ls_network *network, int stages);
int ddp_stage_of(const struct ddp_cut *cut, int block);

/* A parameter that layers of another stage read: a tied embedding. The other stage, the later one, has a copy of it. */
struct ddp_tie {
    bool is_there;
    size_t parameter;
    int owner, reader; /* stages */
};
struct ddp_tie ddp_tie_of(const struct ddp_cut *cut, const ls_network *network);

/* A rank's own. Constant after create, but for `brought`. */
typedef struct ddp_stage {
    struct ddp_cut cut;
    int number;
    struct ls_blocks blocks;
    struct ddp_tie tie;
    ls_model *model;
    ls_comm *beside;
    size_t floats; /* of the own blocks' parameters, as they are laid out; a multiple of what ranks of `data` may cut */
    float *values; /* of them; behind them, where this stage has the copy, the whole block of the copied parameter */
    void *halves;  /* likewise in half precision, or NULL */
    float *gradients; /* of the own blocks' parameters; behind them the copy's */
    struct ls_part *parts;
    bool *is_copy;
    float *brought[2]; /* from the first evaluation on: room for a block, and for one that it shares a parameter with */
    void *brought_half[2];
} ddp_stage;

/* Gives a model without values (`placed`, LS_FORWARD_ONLY: model.h) those of this rank's stage, zeros, and gradients for them.
 * From then on passes of the model, on all ranks together, get each block's parameters from its stage. `beside`: a group of the
 * axis, for the compute stream; its rank is the stage. Gradients lie in memory of `data`, a group of ranks of this stage, if it
 * has several. `all_ranks`: a group of all replicas' ranks, for whoever brings shards of them together; NULL: `beside` does that.
 * Collective; all are borrowed until destroy. On failure *out is NULL. */
ls_status ddp_stage_create(ddp_stage **out, ls_comm *beside, ls_comm *data, ls_comm *all_ranks, ls_model *model);
/* The model has no values afterwards. NULL is a no-op. */
void ddp_stage_destroy(ddp_stage *stage, ls_comm *data);

/* Of `floats`, the slice of one of so many replicas, and where it begins (ZeRO-1). */
static inline size_t ddp_stage_slice(const ddp_stage *s, int replicas) { return s->floats / (size_t)replicas; }

static inline bool ddp_stage_is_first(const ddp_stage *s) { return s->number == 0; }
static inline bool ddp_stage_is_last(const ddp_stage *s) { return s->number == s->cut.stages - 1; }

/* Between steps: every rank gets the buffers (batch norm's statistics) of all stages, and batch norm's counts. Collective over
 * the axis, host-blocking. */
ls_status ddp_stage_share_buffers(const ddp_stage *stage);

#endif
