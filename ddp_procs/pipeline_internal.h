/* The state of a pipeline's rank, and the functions shared by its files: pipeline.c has the step, pipeline_mode.c the
 * rest. */
#ifndef DDP_PIPELINE_INTERNAL_H
#define DDP_PIPELINE_INTERNAL_H

#include "ddp_procs/ddp.h"
#include "ddp_procs/pipeline.h"
#include "ddp_procs/stages.h"

/* A micro-batch in flight. */
struct slot {
    ls_frame *frame;
    void *input;   /* received from the previous stage; NULL: first stage */
    const void *y; /* in the frame */
    struct ls_device_batch *batch;
};

struct pipeline {
    struct ddp ddp; /* first: ops receive a pointer to it */
    /* constant after create */
    ddp_stage *stage;
    ls_comm *axis; /* the stages; for the comm stream */
    bool sharded;  /* ZeRO-1: each replica updates a slice of the stage's parameters */
    struct ddp_instruction *list;
    size_t list_count;
    int micro_batches, slot_count;
    struct slot *slots;
    void *workspace, *dy;             /* dy: received from the next stage; NULL: last stage */
    float *tied_sum;                  /* on the owner: room for the other stage's gradient */
    size_t input_count, output_count; /* of a sample */
    ls_event *passed, *received;
    /* changes from step to step */
    size_t at;   /* the next instruction */
    size_t rows; /* of each message of the step */
};

static inline struct pipeline *pipeline_of(ls_parallel *p) { return (struct pipeline *)p; }
static inline ls_device *device_of(const struct pipeline *s) { return s->ddp.base.devices[0]; }

/* The tied parameter, on the two stages that have it. */
static inline float *tied_gradient(const struct pipeline *s) {
    return ls_model_parameter(s->ddp.base.model, s->stage->tie.parameter)->gradient;
}
static inline size_t tied_count(const struct pipeline *s) {
    return ls_model_parameter(s->ddp.base.model, s->stage->tie.parameter)->count;
}
static inline const char *tied_name(const struct pipeline *s) {
    return ls_model_parameter(s->ddp.base.model, s->stage->tie.parameter)->name;
}
static inline bool is_owner(const struct pipeline *s) {
    return s->stage->tie.is_there && s->stage->tie.owner == s->stage->number;
}
static inline bool is_reader(const struct pipeline *s) {
    return s->stage->tie.is_there && s->stage->tie.reader == s->stage->number;
}

/* pipeline.c: the four calls of a step (common/seam/mode.h) */
void ddp_pipeline_prepare(ls_parallel *p, const ls_batch *batch);
ls_status ddp_pipeline_forward_backward(ls_parallel *p);
ls_status ddp_pipeline_reduce(ls_parallel *p);
ls_status ddp_pipeline_apply(ls_parallel *p);

#endif
