/* schedule_simulated — runs the lists of a pipeline's stages in simulated time.
 *   idea  : each stage has a clock, and is at some point of its list: it receives for an instruction, runs it, or sends
 *           its result. A link between two neighbours, one for each direction, is a list of the messages that its
 *           sender has posted and of those that its receiver has asked for, with the time of both. A stage proceeds
 *           until it has to wait for another; then the next stage does, until none can. Their order does not matter,
 *           since a clock takes the latest time of all that the stage waited for
 *   waits : for message k of a link the receiver waits until it is posted; the sender until message k - link_holds is
 *           asked for, which frees its space. A stage that exchanges posts and asks at the same time, then waits for
 *           both
 *   cost  : time and memory of P x M
 *   fails : a deadlock: no stage can proceed, and not all have ended */
#include "ddp_procs/schedule_simulated.h"

#include <stdlib.h>

#include "common/base/log.h"

#define NOT_YET (-1.0)

struct message {
    double posted_at, asked_for_at;
    int micro_batch; /* of the pass whose result it is */
    bool backward, exchanged;
};

/* One direction between two neighbours. The last message posted is its sender's current one, and likewise at the other
 * end. */
struct link {
    int posted, asked_for;
    struct message *messages;
};

struct stage {
    const struct ddp_instruction *list;
    double clock;
    bool waits; /* has posted what it sends and asked for what it receives */
};

struct run {
    const struct ddp_simulation *how;
    ddp_simulated *out;
    int stage_count, instructions; /* of each stage */
    struct stage stages[DDP_MOST_STAGES];
    struct link links[DDP_MOST_STAGES][2]; /* between stages s and s + 1; [0]: to s + 1, [1]: to s */
};

/* NULL, and the outcome is set, if they are not neighbours. */
static struct link *link_of(struct run *run, int from, int to) {
    bool exists =
        (to - from == 1 || from - to == 1) && from >= 0 && to >= 0 && from < run->stage_count && to < run->stage_count;
    if (!exists) run->out->outcome = DDP_NO_NEIGHBOUR;
    return exists ? &run->links[from < to ? from : to][from > to] : NULL;
}

static void post_request(struct link *link, double now) {
    if (link) link->messages[link->asked_for++].asked_for_at = now;
}

static void post(struct link *link, const struct ddp_instruction *x, double now) {
    if (!link) return;
    struct message *message = &link->messages[link->posted++];
    message->posted_at = now;
    message->micro_batch = x->micro_batch;
    message->backward = x->backward;
    message->exchanged = x->exchanges;
}

/* Whether the message that was asked for last, for x, has been posted; *clock is then at least the time of that. */
static bool has_arrived(struct run *run, const struct link *link, const struct ddp_instruction *x, bool exchanged,
                        double *clock) {
    const struct message *message = &link->messages[link->asked_for - 1];
    if (message->posted_at == NOT_YET) return false;
    if (message->micro_batch != x->micro_batch || message->backward != x->backward || message->exchanged != exchanged)
        run->out->outcome = DDP_WRONG_MESSAGE;
    if (message->posted_at > *clock) *clock = message->posted_at;
    return true;
}

/* Whether the link has space for the message that was posted last; *clock is then at least the time since when. */
static bool has_left(const struct run *run, const struct link *link, double *clock) {
    if (link->posted <= run->how->link_holds) return true;
    double made_room = link->messages[link->posted - 1 - run->how->link_holds].asked_for_at;
    if (made_room > *clock) *clock = made_room;
    return made_room != NOT_YET;
}

/* These three functions advance instruction x; true if the state has changed. */
static bool receive(struct run *run, int s, const struct ddp_instruction *x) {
    struct stage *stage = &run->stages[s];
    struct link *in = x->from == DDP_NO_STAGE ? NULL : link_of(run, x->from, s);
    if (run->out->outcome != DDP_RUNS_THROUGH) return false;
    if (in && !stage->waits) {
        post_request(in, stage->clock);
        return stage->waits = true;
    }
    if (in && !has_arrived(run, in, x, false, &stage->clock)) return false;
    stage->waits = false;
    run->out->stages[s].doing = DDP_RUNS;
    return true;
}

static bool pass(struct run *run, int s, const struct ddp_instruction *x) {
    struct ddp_simulated_stage *now = &run->out->stages[s];
    double takes = x->backward ? run->how->backward[s] : run->how->forward[s];
    run->out->begins[(size_t)s * run->instructions + now->done] = run->stages[s].clock;
    run->stages[s].clock += takes;
    now->busy += takes;
    now->doing = DDP_SENDS;
    return true;
}

static bool send(struct run *run, int s, const struct ddp_instruction *x) {
    struct stage *stage = &run->stages[s];
    struct ddp_simulated_stage *now = &run->out->stages[s];
    bool is_last = now->done + 1 == run->instructions;
    struct link *out = x->to == DDP_NO_STAGE ? NULL : link_of(run, s, x->to);
    struct link *in = x->exchanges ? link_of(run, x->to, s) : NULL;
    if (x->exchanges && (is_last || x[1].from != x->to)) run->out->outcome = DDP_WRONG_MESSAGE;
    if (run->out->outcome != DDP_RUNS_THROUGH) return false;
    if (out && !stage->waits) {
        post(out, x, stage->clock);
        if (in) post_request(in, stage->clock);
        return stage->waits = true;
    }
    if (out && !has_left(run, out, &stage->clock)) return false;
    if (in && !has_arrived(run, in, &x[1], true, &stage->clock)) return false;
    stage->waits = false;
    now->done++;
    now->doing = x->exchanges ? DDP_RUNS : DDP_RECEIVES;
    return true;
}

static bool advance(struct run *run, int s) {
    static bool (*const steps[])(struct run *, int, const struct ddp_instruction *) = {
        [DDP_RECEIVES] = receive, [DDP_RUNS] = pass, [DDP_SENDS] = send};
    const struct ddp_simulated_stage *now = &run->out->stages[s];
    if (now->done == run->instructions || run->out->outcome != DDP_RUNS_THROUGH) return false;
    return steps[now->doing](run, s, &run->stages[s].list[now->done]);
}

static void run_all(struct run *run) {
    bool changed = true, is_over = true;
    while (changed) {
        changed = false;
        for (int s = 0; s < run->stage_count; s++)
            while (advance(run, s)) changed = true;
    }
    for (int s = 0; s < run->stage_count; s++) is_over = is_over && run->out->stages[s].done == run->instructions;
    if (!is_over && run->out->outcome == DDP_RUNS_THROUGH) run->out->outcome = DDP_DEADLOCK;
}

/* --- the result ----------------------------------------------------------------------------------------------------- */

/* Computed from a list alone, whether or not it runs to the end. */
static int most_stored(const struct ddp_instruction *list, int count) {
    int stored = 0, most = 0;
    for (int i = 0; i < count; i++) {
        stored += list[i].backward ? -1 : 1;
        if (stored > most) most = stored;
    }
    return most;
}

static void sum_up(const struct run *run) {
    double busy = 0;
    for (int s = 0; s < run->stage_count; s++) {
        run->out->stages[s].stored = most_stored(run->stages[s].list, run->instructions);
        busy += run->out->stages[s].busy;
        if (run->stages[s].clock > run->out->makespan) run->out->makespan = run->stages[s].clock;
    }
    run->out->idle_share = 1 - busy / (run->out->makespan * run->stage_count);
}

ls_status ddp_simulate(ddp_simulated *out, const struct ddp_instruction *lists, const struct ddp_simulation *how) {
    const size_t stages = (size_t)how->schedule->stages, instructions = 2 * (size_t)how->schedule->micro_batches;
    struct run run = {.how = how, .out = out, .stage_count = (int)stages, .instructions = (int)instructions};
    struct message *messages = malloc(2 * stages * instructions * sizeof *messages);
    *out = (ddp_simulated){.begins = malloc(stages * instructions * sizeof *out->begins)};
    if (!messages || !out->begins) {
        free(messages);
        ddp_simulated_free(out);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to simulate %zu stages and %zu micro-batches", stages,
                       instructions / 2);
    }
    for (size_t i = 0; i < 2 * stages * instructions; i++)
        messages[i] = (struct message){NOT_YET, NOT_YET, 0, false, false};
    for (size_t i = 0; i < stages * instructions; i++) out->begins[i] = NOT_YET;
    for (size_t s = 0; s < stages; s++) {
        run.stages[s].list = lists + s * instructions;
        for (size_t k = 0; k < 2; k++) run.links[s][k].messages = messages + (2 * s + k) * instructions;
    }
    run_all(&run);
    sum_up(&run);
    free(messages);
    return LS_OK;
}

void ddp_simulated_free(ddp_simulated *simulated) {
    free(simulated->begins);
    *simulated = (ddp_simulated){0};
}
