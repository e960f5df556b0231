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
    struct {
        ls_status status;
        char message[MESSAGE_NBYTES];
        struct ls_labels after; /* of what comes out */
        bool has_after;
    } seen[MOST_RANKS];
};

/* What the operation says itself is seen; what else fails ends the probe. */
void operation_run(probe *p, struct one_operation *job);

/* --- a network that ranks share -------------------------------------------------------------------------------------- */

enum bug { NO_BUG, G_FOR_F, F_FOR_G, BIAS_IN_EACH_TERM, WHOLE_WEIGHT, WHOLE_NORMS, BUGS };
extern const char *const bug_names[BUGS];

struct shared_training {
    const char *model;
    int ranks;
    bool sequence;
    enum bug bug;
    int nth; /* of the layers that the bug may lie in, from 0 */
    ls_status status;
    char message[MESSAGE_NBYTES]; /* rank 0's */
    int places;                   /* layers that the bug may lie in */
};

/* A step of it: forward, loss, backward, update, and the comparison in bits. */
void shared_training_run(probe *p, struct shared_training *t);

/* --- one layer's labels ------------------------------------------------------------------------------------------------ */

/* Rank 0's part of a network, of which nothing is computed. */
struct rules;
struct rules *rules_open(probe *p, const char *model, int ranks, bool sequence);
void rules_close(struct rules *rules);
int rules_layer_count(const struct rules *rules);
const char *rules_layer_name(const struct rules *rules, int layer);
int rules_parameter_count(const struct rules *rules, int layer);
/* Whether it is a product: a linear layer or a convolution. */
bool rules_is_product(const struct rules *rules, int layer);
/* From then on the layer's weight is said not to be cut. */
void rules_make_whole(struct rules *rules, int layer);

/* Forward of the layer, of inputs with this label on the tensor axis: that of its output; what was said against it is in `message`. */
ls_value rules_output(struct rules *rules, int layer, ls_value x, char message[MESSAGE_NBYTES]);

/* Backward of the layer, on the tensor axis: its input, the gradient of its output, that of its input behind a collective, and what a
 * layer norm has of its own rows are labelled so. The label of its p-th parameter's gradient; -1: it gets none. */
int rules_gradient(struct rules *rules, int layer, int p, ls_value x, ls_value dy, ls_value dx, ls_value sums);

#endif
