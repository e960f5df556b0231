/* Ranks of a mesh that run one operation on a labelled tensor, or train a network that they share, and a record of the
 * labels' messages. */
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
        struct ls_labels after; /* of the result */
        bool has_after;
    } seen[MOST_RANKS];
};

/* The operation's own message is recorded; any other failure ends the probe. */
void operation_run(probe *p, struct one_operation *job);

/* --- a network that ranks share -------------------------------------------------------------------------------------- */

enum bug { NO_BUG, G_FOR_F, F_FOR_G, BIAS_IN_EACH_TERM, WHOLE_WEIGHT, WHOLE_NORMS, BUGS };
extern const char *const bug_names[BUGS];

struct shared_training {
    const char *model;
    int ranks;
    bool sequence;
    enum bug bug;
    int nth; /* of the layers that may have the bug, from 0 */
    ls_status status;
    char message[MESSAGE_NBYTES]; /* rank 0's */
    int places;                   /* layers that may have the bug */
};

/* Runs one step: forward, loss, backward, update, and the comparison of bits. */
void shared_training_run(probe *p, struct shared_training *t);

/* --- one layer's labels ------------------------------------------------------------------------------------------------ */

/* Rank 0's part of a network that is not computed. */
struct rules;
struct rules *rules_open(probe *p, const char *model, int ranks, bool sequence);
void rules_close(struct rules *rules);
int rules_layer_count(const struct rules *rules);
const char *rules_layer_name(const struct rules *rules, int layer);
int rules_parameter_count(const struct rules *rules, int layer);
/* Whether it is a matrix multiply: a linear layer or a convolution. */
bool rules_is_product(const struct rules *rules, int layer);
/* From then on the layer's weight is labelled as not cut. */
void rules_make_whole(struct rules *rules, int layer);

/* Runs the layer's forward on inputs with this label on the tensor axis. Returns the label of its output; `message`
 * gets the objection, if any. */
ls_value rules_output(struct rules *rules, int layer, ls_value x, char message[MESSAGE_NBYTES]);

/* Runs the layer's backward, on the tensor axis, with these labels: its input, the gradient of its output, that of its
 * input after a collective, and a layer norm's sums over its own rows. Returns the label of its p-th parameter's
 * gradient; -1: it gets none. */
int rules_gradient(struct rules *rules, int layer, int p, ls_value x, ls_value dy, ls_value dx, ls_value sums);

#endif
