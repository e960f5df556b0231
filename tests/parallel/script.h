/* DDP ranks that run out of samples at different steps. A script is the number of samples of each rank in each step; a
 * player is a rank that follows it, joining before every step. Each step has SCRIPT_STEP_SAMPLES numbers of a random data
 * set, of which it uses the first ones, in the order of the ranks: reading all samples of a step gives the batch of all
 * ranks. */
#ifndef TESTS_PARALLEL_SCRIPT_H
#define TESTS_PARALLEL_SCRIPT_H

#include "tests/parallel/plan.h"

enum {
    SCRIPT_STEPS = 6,
    SCRIPT_RANKS = 4,
    SCRIPT_MOST_SAMPLES = 4, /* of a rank in a step */
    SCRIPT_STEP_SAMPLES = SCRIPT_RANKS * SCRIPT_MOST_SAMPLES,
    NONE = -1
};

/* Samples of each rank in each step; NONE: it has run out. */
struct script {
    const char *model;
    int ranks;
    int counts[SCRIPT_STEPS][SCRIPT_RANKS];
    int steps; /* steps of the last rank */
    ddp_join_options join;
    int optimizer;
    const char *streams; /* NULL: inline */
    int accumulate;      /* micro-batches of the ranks' steps; 0: 1 */
};

/* The script's session: for a rank (MODE_DDP), or for a single device that takes all samples of a step. */
struct plan script_plan(const struct script *script, enum mode mode);

/* The number of samples in a step of the ranks before this one, and of all ranks. */
int script_samples_before(const struct script *script, int step, int rank);
int script_samples(const struct script *script, int step);

/* The number of ranks that have not run out. */
int script_active(const struct script *script, int step);

/* Samples in memory. Call chunk_free. */
struct chunk {
    float *inputs;
    int64_t *labels;
    ls_batch batch;
};

/* Reads samples first .. first + count - 1; the count may be 0. These and the following functions CHECK that they
 * succeed (tests/comm/ranks.h). */
void chunk_read(const struct rank *rank, struct chunk *chunk, const ls_model *model, int first, int count);
void chunk_free(struct chunk *chunk);

struct player {
    const struct script *script; /* owned by the caller */
    ls_comm *comm;
    bool own_group; /* opened by player_open */
    struct session session;
    int step;
    struct chunk chunk; /* of the step in progress */
};

/* If `comm` is NULL, creates its own group; otherwise uses that group, and leaves it open. */
void player_open(struct rank *rank, struct player *player, const struct script *script, ls_comm *comm);
void player_close(struct player *player);

/* Joins the next step with the script's samples for this rank. Returns the status, and sets *anyone if there is a
 * step. */
ls_status player_join(const struct rank *rank, struct player *player, ls_batch *batch, bool *anyone);

/* Frees the step's samples, whose copies must have ended, and moves to the next step. */
void player_step_done(struct player *player);

/* Plays the whole script; `before_update` (may be NULL) can check the gradients. */
void player_play(const struct rank *rank, struct player *player,
                 void (*before_update)(const struct rank *rank, struct player *player));

#endif
