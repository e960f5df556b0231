/* DDP ranks that run out of samples at different steps: a script says how many samples each rank has in each step, and
 * a player is a rank that acts on it, joining before every step. The samples of step k are numbers 100 k, 100 k + 1,
 * ... of a random data set, in the order of the ranks, so that a reader of all of a step at once has the batch of all
 * ranks. */
#ifndef TESTS_PARALLEL_SCRIPT_H
#define TESTS_PARALLEL_SCRIPT_H

#include "tests/parallel/plan.h"

enum { SCRIPT_STEPS = 6, SCRIPT_RANKS = 4, NONE = -1 };

/* Samples of each rank in each step, 4 at most; NONE: it has run out. */
struct script {
    const char *model;
    int ranks;
    int counts[SCRIPT_STEPS][SCRIPT_RANKS];
    int steps; /* that any rank takes */
    ddp_join_options join;
    int optimizer;
    const char *streams; /* NULL: inline */
    int accumulate;      /* micro-batches of the ranks' steps; 0: 1 */
};

/* The script's session: a rank's (MODE_DDP), or a single device's that can take all samples of a step. */
struct plan script_plan(const struct script *script, enum mode mode);

/* How many samples the ranks before this one have in a step, or all of them together. */
int script_samples_before(const struct script *script, int step, int rank);
int script_samples(const struct script *script, int step);

/* How many ranks have not run out. */
int script_active(const struct script *script, int step);

/* Samples in memory; to be freed. */
struct chunk {
    float *inputs;
    int64_t *labels;
    ls_batch batch;
};

/* Samples first .. first + count - 1; the count may be 0. What must go well here and below is checked (CHECK,
 * tests/comm/ranks.h). */
void chunk_read(const struct rank *rank, struct chunk *chunk, const ls_model *model, int first, int count);
void chunk_free(struct chunk *chunk);

struct player {
    const struct script *script; /* stays the caller's */
    ls_comm *comm;
    bool own_group; /* opened by player_open */
    struct session session;
    int step;
    struct chunk chunk; /* of the step in progress */
};

/* `comm` NULL: in a group of its own; otherwise in one that is there already, and stays. */
void player_open(struct rank *rank, struct player *player, const struct script *script, ls_comm *comm);
void player_close(struct player *player);

/* Joins the coming step with what the script gives this rank; the status, and whether there is a step. */
ls_status player_join(const struct rank *rank, struct player *player, ls_batch *batch, bool *anyone);

/* Frees the step's samples, which must have been copied by then, and goes to the next. */
void player_step_done(struct player *player);

/* Plays the whole script; `before_update` (may be NULL) looks at the gradients. */
void player_play(const struct rank *rank, struct player *player,
                 void (*before_update)(const struct rank *rank, struct player *player));

#endif
