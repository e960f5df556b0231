#include "labs/06-buckets/steps.h"

#include <stdlib.h>

#include "ddp_procs/reducer.h"

/* --- before the ranks start ---------------------------------------------------------------------------------------- */

static void draw_arrival(probe *p, const struct kind *kind, size_t *arrival) {
    for (size_t i = 0; i < PARAMETERS; i++) arrival[i] = PARAMETERS - 1 - i;
    for (size_t i = PARAMETERS; kind->arrival == AT_RANDOM && i > 1; i--) {
        size_t j = (size_t)probe_draw(p, i), last = arrival[i - 1];
        arrival[i - 1] = arrival[j];
        arrival[j] = last;
    }
}

static void draw(probe *p, struct steps *steps) {
    for (int i = 0; i < PARAMETERS; i++) steps->parts[i] = 1 + (size_t)probe_draw(p, steps->kind.most);
    for (int r = 0; r < steps->kind.ranks; r++)
        for (int s = 0; s < STEPS; s++) {
            struct rank *rank = &steps->rank[r];
            draw_arrival(p, &steps->kind, rank->arrival[s]);
            rank->reported[s] = PARAMETERS - (steps->kind.find_unused ? (int)probe_draw(p, 4) : 0);
            probe_draw_floats(p, rank->drawn[s], FLOATS);
        }
}

/* --- a rank -------------------------------------------------------------------------------------------------------- */

/* Each gradient's values are at its offset in `drawn`. */
static ls_status backward(const ls_model *model, ls_stream *compute, struct rank *rank, int step,
                          struct ls_phase_clock *clock) {
    size_t place[PARAMETERS + 1] = {0};
    for (size_t i = 0; i < PARAMETERS; i++) place[i + 1] = place[i] + ls_model_parameter(model, i)->count;
    ls_status status = LS_OK;
    ls_phase_enter(clock, LS_PHASE_BACKWARD);
    for (int i = 0; status == LS_OK && i < rank->reported[step]; i++) {
        size_t parameter = rank->arrival[step][i];
        const struct ls_tensor *tensor = ls_model_parameter(model, parameter);
        ls_copy(compute, tensor->gradient, rank->drawn[step] + place[parameter], tensor->count * sizeof(float));
        status = order_report(parameter, tensor);
        if (!rank->phase_of_backward || clock->phase != LS_PHASE_BACKWARD)
            rank->phase_of_backward = ls_phase_name(clock->phase);
    }
    return status;
}

/* In the optimizer's place. */
static void use_averages(const ls_model *model, ls_stream *compute, struct rank *rank, int step) {
    rank->got_count = 0;
    for (size_t i = 0; i < PARAMETERS; i++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, i);
        order_use(tensor);
        ls_copy(compute, rank->got[step] + rank->got_count, tensor->gradient, tensor->count * sizeof(float));
        rank->got_count += tensor->count;
    }
}

static ls_status all_steps(crew_rank *c, const ls_model *model, ddp_reducer *reducer, struct ls_phase_clock *clock) {
    struct steps *steps = c->argument;
    struct rank *rank = &steps->rank[c->rank];
    ls_stream *compute = ls_device_stream(c->device, LS_STREAM_COMPUTE);
    ls_status status = LS_OK;
    for (int s = 0; status == LS_OK && s < STEPS; s++) {
        order_step(s);
        status = ddp_reducer_arm(reducer, steps_reduces(&steps->kind, s), 1);
        if (status == LS_OK) status = backward(model, compute, rank, s, clock);
        ls_phase_enter(clock, LS_PHASE_OTHER); /* neither the phase of backward nor that of launches */
        if (status == LS_OK) status = ddp_reducer_finish(reducer);
        if (!rank->phase_of_end || clock->phase != LS_PHASE_OTHER) rank->phase_of_end = ls_phase_name(clock->phase);
        if (status == LS_OK) use_averages(model, compute, rank, s);
    }
    ls_status done = ls_device_synchronize(c->device);
    return status == LS_OK ? done : status;
}

static ls_status run_rank(crew_rank *c) {
    struct steps *steps = c->argument;
    ls_model *model = NULL;
    ddp_reducer *reducer = NULL;
    struct ls_phase_clock clock;
    ddp_reducer_options options = {.bucket_cap_mb = 1,
                                   .overlap = !steps->kind.no_overlap,
                                   .find_unused = steps->kind.find_unused,
                                   .compress = steps->kind.compress};
    ls_phase_begin(&clock, c->device);
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = ls_model_create(&model, c->device, STEPS_MODEL, 1, LS_FP32);
    order_begin(&steps->rank[c->rank].order, c->device, steps->parts);
    if (status == LS_OK) status = ddp_reducer_create(&reducer, c->comm, model, &clock, &options);
    if (status == LS_OK) status = all_steps(c, model, reducer, &clock);
    order_end();
    ddp_reducer_destroy(reducer);
    ls_model_destroy(model);
    return status;
}

static void begin_case(probe *p, const struct kind *kind, const char *streams) {
    probe_case(p, "W = %d, buckets of 1 to %d gradients, which are ready %s%s%s%s%s, streams %s", kind->ranks,
               kind->most, kind->arrival == AT_RANDOM ? "in any order" : "last to first",
               kind->no_overlap ? ", no overlap" : "", kind->find_unused ? ", find unused" : "",
               kind->local ? ", every other step reduced" : "", kind->compress == LS_FP32 ? "" : ", as halves",
               streams);
}

/* Runs the drawn steps; a failure ends the probe. */
static void run(probe *p, struct steps *steps, const char *streams) {
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    probe_must(p, "the ranks", crew_run(steps->kind.ranks, "direct", streams, run_rank, steps));
}

struct steps *steps_run(probe *p, const struct kind *kind, const char *streams) {
    begin_case(p, kind, streams);
    struct steps *steps = calloc(1, sizeof *steps);
    probe_must(p, "memory for the steps", steps ? LS_OK : LS_ERR_NO_MEMORY);
    steps->kind = *kind;
    draw(p, steps);
    run(p, steps, streams);
    return steps;
}

struct steps *steps_again(probe *p, const struct steps *drawn, const char *streams) {
    begin_case(p, &drawn->kind, streams);
    struct steps *steps = malloc(sizeof *steps);
    probe_must(p, "memory for the steps", steps ? LS_OK : LS_ERR_NO_MEMORY);
    *steps = *drawn;
    run(p, steps, streams);
    return steps;
}
