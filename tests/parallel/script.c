#include "tests/parallel/script.h"

#include <stdlib.h>

#include "common/seam/options.h"

struct plan script_plan(const struct script *script, enum mode mode) {
    struct plan plan = {.mode = mode,
                        .devices = mode == MODE_DDP ? script->ranks : 1,
                        .model = script->model,
                        .batch = (size_t)(SCRIPT_MOST_SAMPLES * script->ranks),
                        .streams = script->streams,
                        .accumulate = mode == MODE_DDP ? script->accumulate : 0,
                        .bucket_cap_mb = 0.0005,
                        .join = script->join};
    plan.optimizer = ls_optimizer_defaults((ls_optimizer_kind)script->optimizer);
    plan.optimizer.learning_rate = script->optimizer == LS_SGD ? 0.1 : 0.01;
    return plan;
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

void chunk_read(const struct rank *rank, struct chunk *chunk, const ls_model *model, int first, int count) {
    ls_sample_spec spec = ls_train_sample_spec(model);
    ls_dataset *dataset;
    size_t inputs = ls_sample_input_count(&spec), room = (size_t)count + 1;
    int64_t indices[SCRIPT_STEP_SAMPLES];
    chunk->inputs = calloc(room * inputs, sizeof *chunk->inputs);
    chunk->labels = calloc(room, sizeof *chunk->labels);
    CHECK(chunk->inputs && chunk->labels);
    CHECK(ls_dataset_random(&dataset, 7, SCRIPT_STEP_SAMPLES * SCRIPT_STEPS, &spec) == LS_OK);
    for (int i = 0; i < count; i++) indices[i] = first + i;
    CHECK(ls_dataset_read(dataset, indices, (size_t)count, chunk->inputs, chunk->labels, NULL) == LS_OK);
    ls_dataset_close(dataset);
    chunk->batch = (ls_batch){.inputs = chunk->inputs, .labels = chunk->labels, .count = (size_t)count};
}

void chunk_free(struct chunk *chunk) {
    free(chunk->inputs);
    free(chunk->labels);
}

int script_samples_before(const struct script *script, int step, int rank) {
    int sum = 0;
    for (int r = 0; r < rank; r++) sum += script->counts[step][r] > 0 ? script->counts[step][r] : 0;
    return sum;
}

int script_samples(const struct script *script, int step) { return script_samples_before(script, step, script->ranks); }

int script_active(const struct script *script, int step) {
    int active = 0;
    for (int r = 0; r < script->ranks; r++) active += script->counts[step][r] != NONE;
    return active;
}

/* --- players ----------------------------------------------------------------------------------------------------- */

void player_open(struct rank *rank, struct player *player, const struct script *script, ls_comm *comm) {
    *player = (struct player){.script = script, .comm = comm, .own_group = comm == NULL};
    struct plan plan = script_plan(script, MODE_DDP);
    ls_set_wait_timeout_s(2 * PLAN_TIMEOUT_S);
    if (player->own_group) CHECK(group_open(&player->comm, rank, "direct") == LS_OK);
    CHECK(session_open(&player->session, &plan, player->comm) == LS_OK);
}

void player_close(struct player *player) {
    session_close(&player->session);
    if (player->own_group) ls_comm_destroy(player->comm);
}

ls_status player_join(const struct rank *rank, struct player *player, ls_batch *batch, bool *anyone) {
    const struct script *script = player->script;
    bool over = player->step == script->steps;
    int count = over ? NONE : script->counts[player->step][rank->rank];
    int first = over ? 0 : SCRIPT_STEP_SAMPLES * player->step + script_samples_before(script, player->step, rank->rank);
    chunk_read(rank, &player->chunk, player->session.model, first, count > 0 ? count : 0);
    *batch = count == NONE ? (ls_batch){0} : player->chunk.batch;
    ls_parallel *p = player->session.parallel;
    return p->process->join(p, batch, anyone);
}

void player_step_done(struct player *player) {
    chunk_free(&player->chunk);
    player->step++;
}

void player_play(const struct rank *rank, struct player *player,
                 void (*before_update)(const struct rank *rank, struct player *player)) {
    ls_parallel *p = player->session.parallel;
    for (;;) {
        ls_batch batch;
        bool anyone;
        CHECK(player_join(rank, player, &batch, &anyone) == LS_OK);
        CHECK(anyone == (player->step < player->script->steps));
        if (anyone) {
            CHECK((int)batch.global_count == script_samples(player->script, player->step));
            CHECK(ls_step_gradients(p, &batch) == LS_OK);
            if (before_update) {
                CHECK(session_synchronize(&player->session) == LS_OK);
                before_update(rank, player);
            }
            CHECK(ls_step_update(p) == LS_OK);
            /* the batch is freed below */
            CHECK(ls_event_synchronize(p->batch_copied) == LS_OK);
        }
        player_step_done(player);
        p->step++;
        if (!anyone) return;
    }
}
