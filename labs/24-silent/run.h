/* Ranks of a mesh that run one operation on a labelled tensor, or train a network that they share, and a record of what the labels
 * said. */
#ifndef LABS_24_SILENT_RUN_H
#define LABS_24_SILENT_RUN_H

#include "common/comm/values.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 12, JOB = LS_MESH_AXES, MESSAGE_NBYTES = 400 };

extern const char *const label_names[LS_SPLIT + 1];

/* --- one operation -------------------------------------------------------------------------------------------------- */

enum operation { SUM, LARGEST, SMALLEST, SCATTER, GATHER, BROADCAST, EXCHANGE, OPERATIONS };
extern const char *const operation_names[OPERATIONS];

struct one_operation {
    int sizes[LS_MESH_AXES], ranks;
    int group; /* an axis, or JOB: all ranks */
    enum operation operation;
    struct ls_labels before;
    bool in_place;     /* where the operation has two buffers: its own part of the larger one */
    bool has_neighbor; /* a second tensor behind the first in the buffer, partial on all axes */
    struct {
        ls_status status;
        char message[MESSAGE_NBYTES];
        struct ls_labels after, input, neighbor; /* of what comes out; of what went in */
        bool has_after;
    } seen[MOST_RANKS];
};

/* What the operation says itself is seen; what else fails ends the probe. */
void operation_run(probe *p, struct one_operation *job);

/* --- a network that ranks share -------------------------------------------------------------------------------------- */

enum bug { NO_BUG, G_FOR_F, F_FOR_G, BIAS_IN_EACH_TERM, WHOLE_NORMS, WHOLE_WEIGHT, BUGS };
extern const char *const bug_names[BUGS];

struct shared_training {
    const char *model;
    int ranks;
    bool sequence;
    enum bug bug;
    int nth; /* of the layers that the bug may lie in, from 0; all of them: -1 */
    ls_status status;
    char message[MESSAGE_NBYTES]; /* rank 0's */
    int places;                   /* layers that the bug may lie in */
    int gradients[256];           /* rank 0's labels of the parameters' gradients on the tensor axis; -1: none */
    char names[256][80];
    int count;
};

/* A step of it: forward, loss, backward, update, and the comparison in bits. */
void shared_training_run(probe *p, struct shared_training *t);

#endif
