/* Tests lab 21's schedule: lists, slots and links of each stage, and a simulation of their execution. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_procs/schedule_simulated.h"
#include "labs/course/probe/probe.h"

enum { MOST_TOLD = 16 }; /* micro-batches whose list is shown pass by pass */

static ddp_schedule begin(probe *p, ddp_schedule_kind kind, int stages, int micro_batches) {
    probe_case(p, "%s, P = %d, M = %d", kind == DDP_GPIPE ? "gpipe" : "1f1b", stages, micro_batches);
    return (ddp_schedule){kind, stages, micro_batches};
}

/* Never NULL. */
static void *room(probe *p, size_t count, size_t nbytes) {
    void *memory = calloc(count, nbytes);
    if (memory) return memory;
    probe_must(p, "memory", LS_ERR_NO_MEMORY);
    exit(1);
}

/* The lists of all stages, each of exactly the size needed, so that writes past its end are detected, and filled with
 * invalid instructions. */
static struct ddp_instruction **open_lists(probe *p, const ddp_schedule *schedule) {
    const size_t count = 2 * (size_t)schedule->micro_batches;
    struct ddp_instruction **lists = room(p, (size_t)schedule->stages, sizeof *lists);
    for (int s = 0; s < schedule->stages; s++) {
        lists[s] = room(p, count, sizeof **lists);
        for (size_t i = 0; i < count; i++) lists[s][i] = (struct ddp_instruction){false, -7, -7, -7, -7, false, false};
        ddp_schedule_list(schedule, s, lists[s]);
    }
    return lists;
}

static void close_lists(const ddp_schedule *schedule, struct ddp_instruction **lists) {
    for (int s = 0; s < schedule->stages; s++) free(lists[s]);
    free(lists);
}

/* Calls `see` for many sizes, the smallest first. */
static void for_sizes(probe *p, ddp_schedule_kind kind, bool few, void (*see)(probe *, const ddp_schedule *)) {
    static const int stages[] = {1, 2, 3, 4, 5, 8}, micro_batches[] = {1, 2, 3, 4, 5, 8, 13};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        for (size_t k = 0; k < sizeof micro_batches / sizeof *micro_batches; k++) {
            if (few != (micro_batches[k] < stages[i] || stages[i] == 1)) continue;
            ddp_schedule schedule = begin(p, kind, stages[i], micro_batches[k]);
            see(p, &schedule);
        }
    for (int again = 0; again < 4; again++) {
        int drawn = 2 + (int)probe_draw(p, few ? 60 : 10);
        int count = few ? 1 + (int)probe_draw(p, (uint64_t)drawn - 1) : drawn + (int)probe_draw(p, 20);
        ddp_schedule schedule = begin(p, kind, drawn, count);
        see(p, &schedule);
    }
    if (few) return;
    ddp_schedule schedule = begin(p, kind, 3, 300); /* more than 8 bits count */
    see(p, &schedule);
    schedule = begin(p, kind, 2, 70000); /* and 16 */
    see(p, &schedule);
}

/* --- numbers and orders --------------------------------------------------------------------------------------------- */

static void see_in_flight(probe *p, const ddp_schedule *schedule) {
    for (int s = 0; s < schedule->stages; s++)
        probe_see(p, probe_name(p, "in flight at most on stage %d", s), "%d", ddp_schedule_in_flight(schedule, s));
}

static void in_flight(probe *p) {
    for_sizes(p, DDP_GPIPE, false, see_in_flight);
    for_sizes(p, DDP_1F1B, false, see_in_flight);
}

/* "F0 F1 B0 B1"; a long list is shown as numbers: 3 for F3, -4 for B3. */
static void see_order(probe *p, const ddp_schedule *schedule) {
    struct ddp_instruction **lists = open_lists(p, schedule);
    const int count = 2 * schedule->micro_batches;
    int64_t *numbers = room(p, (size_t)count, sizeof *numbers);
    for (int s = 0; s < schedule->stages; s++) {
        char text[2 * MOST_TOLD * 14] = "";
        size_t at = 0;
        for (int i = 0; i < count; i++) {
            const struct ddp_instruction *x = &lists[s][i];
            numbers[i] = x->backward ? -1 - (int64_t)x->micro_batch : x->micro_batch;
            if (count <= 2 * MOST_TOLD)
                at += (size_t)snprintf(text + at, sizeof text - at, "%s%c%d", i > 0 ? " " : "", x->backward ? 'B' : 'F',
                                       x->micro_batch);
        }
        if (count <= 2 * MOST_TOLD)
            probe_see(p, probe_name(p, "stage %d runs", s), "%s", text);
        else
            probe_see_wholes(p, probe_name(p, "stage %d's micro-batches (-1, -2, ...: backward of 0, 1, ...)", s),
                             numbers, (size_t)count);
    }
    free(numbers);
    close_lists(schedule, lists);
}

static void gpipe(probe *p) { for_sizes(p, DDP_GPIPE, false, see_order); }
static void one_forward_one_backward(probe *p) { for_sizes(p, DDP_1F1B, false, see_order); }

static void see_both(probe *p, const ddp_schedule *schedule) {
    see_in_flight(p, schedule);
    see_order(p, schedule);
}

static void few(probe *p) {
    for_sizes(p, DDP_GPIPE, true, see_both);
    for_sizes(p, DDP_1F1B, true, see_both);
}

/* --- the other members of an instruction ---------------------------------------------------------------------------- */

static void for_all(probe *p, void (*see)(probe *, const ddp_schedule *)) {
    for (int kind = DDP_GPIPE; kind <= DDP_1F1B; kind++)
        for (int is_few = 0; is_few < 2; is_few++) for_sizes(p, (ddp_schedule_kind)kind, is_few, see);
}

static const char *stage_name(char text[24], int stage) {
    snprintf(text, 24, stage == DDP_NO_STAGE ? "none" : "%d", stage);
    return text;
}

/* The links of a stage's first forward and backward pass, and the passes that differ from them. */
static void see_links(probe *p, const ddp_schedule *schedule) {
    struct ddp_instruction **lists = open_lists(p, schedule);
    char from[24], to[24];
    for (int s = 0; s < schedule->stages; s++)
        for (int backward = 0; backward < 2; backward++) {
            const struct ddp_instruction *first = NULL;
            int others = 0;
            for (int i = 0; i < 2 * schedule->micro_batches; i++) {
                const struct ddp_instruction *x = &lists[s][i];
                if (x->backward != (bool)backward) continue;
                if (!first) first = x;
                others += x->from != first->from || x->to != first->to;
            }
            const char *pass = backward ? "backward" : "forward";
            if (!first) continue;
            probe_see(p, probe_name(p, "stage %d, %s passes", s, pass), "receive from %s, send to %s",
                      stage_name(from, first->from), stage_name(to, first->to));
            probe_see(p, probe_name(p, "of these on stage %d, %s passes with other links", s, pass), "%d", others);
        }
    close_lists(schedule, lists);
}

static void links(probe *p) { for_all(p, see_links); }

/* Any free slot is right: it must be one of those in flight, must not contain other activations, and backward must find
 * its own there. Reports the first mistake. */
static void see_slots_of(probe *p, const ddp_schedule *schedule, int s, const struct ddp_instruction *list) {
    const int slots = ddp_schedule_in_flight(schedule, s), count = 2 * schedule->micro_batches;
    int *holds = room(p, slots > 0 ? (size_t)slots : 1, sizeof *holds);
    char text[160] = "a slot of its own for each micro-batch in flight";
    for (int k = 0; k < slots; k++) holds[k] = -1;
    for (int i = 0; i < count; i++) {
        const struct ddp_instruction *x = &list[i];
        const char pass = x->backward ? 'B' : 'F';
        bool is_slot = x->slot >= 0 && x->slot < slots;
        int expected = x->backward ? x->micro_batch : -1;
        if (is_slot && holds[x->slot] == expected) {
            holds[x->slot] = x->backward ? -1 : x->micro_batch;
            continue;
        }
        if (!is_slot)
            snprintf(text, sizeof text, "%c%d has slot %d of %d", pass, x->micro_batch, x->slot, slots);
        else if (holds[x->slot] < 0)
            snprintf(text, sizeof text, "%c%d finds nothing in slot %d", pass, x->micro_batch, x->slot);
        else
            snprintf(text, sizeof text, "%c%d finds micro-batch %d's activations in slot %d", pass, x->micro_batch,
                     holds[x->slot], x->slot);
        break;
    }
    probe_see(p, probe_name(p, "stage %d", s), "%s", text);
    free(holds);
}

static void see_slots(probe *p, const ddp_schedule *schedule) {
    struct ddp_instruction **lists = open_lists(p, schedule);
    for (int s = 0; s < schedule->stages; s++) see_slots_of(p, schedule, s, lists[s]);
    close_lists(schedule, lists);
}

static void slots(probe *p) { for_all(p, see_slots); }

/* Gradients of the last step are 9 at first; each backward pass adds 1. */
static void see_gradients(probe *p, const ddp_schedule *schedule) {
    struct ddp_instruction **lists = open_lists(p, schedule);
    for (int s = 0; s < schedule->stages; s++) {
        int64_t sum = 9;
        for (int i = 0; i < 2 * schedule->micro_batches; i++)
            if (lists[s][i].backward) sum = lists[s][i].accumulates ? sum + 1 : 1;
        probe_see_count(p, probe_name(p, "micro-batches in stage %d's gradients", s), (uint64_t)sum);
    }
    close_lists(schedule, lists);
}

static void gradients(probe *p) { for_all(p, see_gradients); }

/* --- simulation ----------------------------------------------------------------------------------------------------- */

static ddp_simulated simulate(probe *p, const ddp_schedule *schedule, int link_holds, const double *forward,
                              const double *backward) {
    struct ddp_instruction **lists = open_lists(p, schedule);
    const size_t count = 2 * (size_t)schedule->micro_batches;
    struct ddp_instruction *all = room(p, (size_t)schedule->stages * count, sizeof *all);
    struct ddp_simulation how = {schedule, forward, backward, link_holds};
    ddp_simulated simulated;
    for (int s = 0; s < schedule->stages; s++) memcpy(all + (size_t)s * count, lists[s], count * sizeof *all);
    probe_must(p, "the simulation", ddp_simulate(&simulated, all, &how));
    free(all);
    close_lists(schedule, lists);
    return simulated;
}

static void see_stages(probe *p, const ddp_schedule *schedule, const ddp_simulated *simulated, const char *how) {
    static const char *const outcomes[] = {"every stage ends", "deadlock",
                                           "a stage receives another message than it waits for",
                                           "a stage sends to, or receives from, no neighbour"};
    static const char *const doing[] = {"waits to receive", "is in", "waits to send"};
    probe_see(p, how, "%s", outcomes[simulated->outcome]);
    for (int s = 0; s < schedule->stages; s++) {
        const struct ddp_simulated_stage *stage = &simulated->stages[s];
        if (stage->done == 2 * schedule->micro_batches)
            probe_see(p, probe_name(p, "%s, stage %d", how, s), "has ended");
        else
            probe_see(p, probe_name(p, "%s, stage %d", how, s), "%s at instruction %d", doing[stage->doing],
                      stage->done);
    }
}

static void see_blocking(probe *p, const ddp_schedule *schedule) {
    double forward[DDP_MOST_STAGES], backward[DDP_MOST_STAGES];
    for (int s = 0; s < schedule->stages; s++) {
        forward[s] = 1;
        backward[s] = 2;
    }
    ddp_simulated simulated = simulate(p, schedule, 0, forward, backward);
    see_stages(p, schedule, &simulated, "sends that block");
    ddp_simulated_free(&simulated);
}

static void deadlock(probe *p) { for_all(p, see_blocking); }

/* Stages that take equally long, as in the formula, and stages of random lengths. */
static void see_idle(probe *p, const ddp_schedule *schedule) {
    double forward[DDP_MOST_STAGES], backward[DDP_MOST_STAGES];
    for (int drawn = 0; drawn < 2; drawn++) {
        for (int s = 0; s < schedule->stages; s++) {
            forward[s] = drawn ? 1 + (double)probe_draw(p, 4) : 1;
            backward[s] = 2 * forward[s];
        }
        ddp_simulated simulated = simulate(p, schedule, DDP_ANY_NUMBER, forward, backward);
        if (!drawn) {
            probe_see_near(p, "the bubble, by formula", ddp_schedule_bubble(schedule), 1e-6);
            probe_see_near(p, "the bubble, simulated", simulated.idle_share, 1e-6);
        }
        probe_see_near(p, drawn ? "the step's time, simulated, stages of other lengths" : "the step's time, simulated",
                       simulated.makespan, 1e-3);
        ddp_simulated_free(&simulated);
    }
}

static void bubble(probe *p) { for_all(p, see_idle); }

int main(int argc, char **argv) {
    static const probe_check checks[] = {
        {"in-flight", in_flight}, {"gpipe", gpipe}, {"1f1b", one_forward_one_backward}, {"few", few},
        {"links", links},         {"slots", slots}, {"gradients", gradients},           {"deadlock", deadlock},
        {"bubble", bubble},       {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
