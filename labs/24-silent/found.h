/* The student's findings: the bugs of the eight programs of lab 24. */
#ifndef LABS_24_SILENT_FOUND_H
#define LABS_24_SILENT_FOUND_H

/* The first tensor, in the order of a step, whose label is wrong. */
enum tensor {
    NO_TENSOR,
    INPUTS_OF_A_MICRO_BATCH,
    OUTPUT_OF_A_LAYER_NORM,
    OUTPUT_OF_A_PRODUCT,
    STATISTICS_OF_A_BATCH_NORM,
    RUNNING_STATISTICS,
    SUMS_OF_THE_LOSS,
    GRADIENT_OF_A_LAYERS_OUTPUT,
    GRADIENT_OF_A_LAYER_NORM,  /* of its weight or bias */
    GRADIENT_OF_ANY_PARAMETER, /* layer norms and others alike */
    SQUARE_SUM_OF_THE_GRADIENTS,
    EMBEDDING, /* its values */
    POSITIONS  /* theirs */
};

enum axis { NO_AXIS, TENSOR_AXIS, DATA_AXIS, PIPELINE_AXIS };

/* The tensor's wrong state. */
enum state {
    NO_STATE,
    REPLICATED,
    VARYING,
    PARTIAL,
    SPLIT,
    OTHER_BITS /* it is labelled replicated, and is not */
};

/* The function in which a line is wrong or missing. */
enum place {
    NO_PLACE,
    ADD_OUTPUTS, /* common/nn/tensor_parallel.c */
    ADD_TERMS,
    ADD_WHOLE,
    ENTER,
    LEAVE,
    LAYERNORM_PART_BACKWARD, /* common/nn/tensor_parts.c */
    HAND_OUT,
    CONV2D_PART_FORWARD,
    UPDATE_ALL, /* common/optim/optimizer.c */
    SCALE_GRADIENTS,
    LS_OPTIMIZER_SHARE_NORM,
    LS_FEED_OPEN, /* common/train/feed.c */
    LS_FEED_NEXT,
    CREATE_UPDATE, /* ddp_procs/distributed.c */
    BUILD,
    TAKE_PLACE,
    BEGIN_TIED, /* ddp_procs/pipeline.c */
    DDP_PIPELINE_REDUCE,
    MEET_REPLICAS,
    RENEW_COPY,
    DESCRIBE_GROUPS, /* ddp_procs/setup.c */
    DDP_SETUP_JOIN_GROUPS,
    DDP_SETUP_CHECK,
    DDP_SETUP_FORM_PARALLEL
};

struct finding {
    enum tensor tensor;
    enum axis axis;
    enum state state;
    enum place place;
};

/* The finding of program 1 to 8; {0}: not found yet. */
struct finding found(int program);

#endif
