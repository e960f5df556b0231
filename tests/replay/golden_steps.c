#include "tests/replay/golden_steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"

#define MIB 1048576.0

/* --- settings ---------------------------------------------------------------------------------------------------- */

static int find_text(const char *text, const char *const *choices) {
    for (int i = 0; choices[i]; i++)
        if (strcmp(text, choices[i]) == 0) return i;
    fail_msg("%s is no choice here", text);
    return 0;
}

static void set_collectives(struct ls_plan *o, const char *text) {
    if (strcmp(text, "cost") == 0) return;
    o->collectives = LS_PLAN_BY_MESSAGES;
    for (o->pattern = 0; strcmp(text, ls_pattern_name(o->pattern)) != 0; o->pattern++)
        assert_true(o->pattern + 1 < LS_PATTERN_COUNT);
}

static void set(struct golden_setting *s, const char *key, const char *value) {
    static const char *const modes[] = {"single", "dp", "ddp", NULL}, *const ways[] = {"flat", "nccl", NULL};
    static const char *const keys[] = {"node",      "work",      "host",   "mode",      "n",         "batch",
                                       "steps",     "precision", "places", "replicate", "gil",       "vary",
                                       "overlap",   "first_mb",  "cap_mb", "gradient",  "tensor_us", "collectives",
                                       "launch_us", "lock_us",   NULL};
    struct ls_plan *o = &s->options;
    double number = atof(value);
    switch (find_text(key, keys)) {
    case 0: snprintf(s->node, sizeof s->node, "%s", value); break;
    case 1: snprintf(s->work, sizeof s->work, "%s", value); break;
    case 2: snprintf(s->host, sizeof s->host, "%s", value); break;
    case 3: o->mode = (ls_plan_mode)find_text(value, modes); break;
    case 4: o->devices = (int)number; break;
    case 5: o->batch = number; break;
    case 6: o->steps = (int)number; break;
    case 7: o->precision = strcmp(value, "fp16") == 0 ? LS_FP16 : LS_FP32; break;
    case 8: o->batch_places = (int)number; break;
    case 9: o->replicate_by_collectives = find_text(value, ways) == 1; break;
    case 10: o->gil = number != 0; break;
    case 11: o->vary = number != 0; break;
    case 12: o->overlap = number != 0; break;
    case 13: o->first_bucket_bytes = (uint64_t)(number * MIB); break;
    case 14: o->bucket_bytes = (uint64_t)(number * MIB); break;
    case 15: o->gradient_element_bytes = number; break;
    case 16: o->tensor_us = number; break;
    case 17: set_collectives(o, value); break;
    case 18: s->launch_us = number; break;
    default: s->lock_us = number; break;
    }
}

void golden_parse(struct golden_setting *s, const char *line, const char **numbers) {
    char words[GOLDEN_LINE], *rest = words, *word;
    const char *end = strstr(line, " = ");
    *s = (struct golden_setting){
        .host = "node", .launch_us = -1, .lock_us = -1, .options = ls_plan_defaults(LS_PLAN_SINGLE, 1, 1)};
    snprintf(s->text, sizeof s->text, "%.*s", end ? (int)(end - line) : (int)strcspn(line, "\n"), line);
    *numbers = end ? end + 3 : NULL;
    memcpy(words, s->text, sizeof words);
    while ((word = strtok_r(rest, " ", &rest))) {
        char *value = strchr(word, '=');
        if (!value) fail_msg("%s: %s has no value", s->text, word);
        *value = '\0';
        set(s, word, value + 1);
    }
}

/* --- nodes ------------------------------------------------------------------------------------------------------- */

/* host=cpu: the node's devices as CPU devices whose launching threads compute; inline: no core is free, either. All
 * figures are of the size of a CPU's, and have an effect. */
static void make_cpus(ls_node *node, bool in_line, int devices) {
    struct ls_node_host *host = ls_node_change_host(node);
    struct ls_node_device *device = ls_node_change_device(node);
    *host = (struct ls_node_host){.launch_us = 0.6,
                                  .event_us = 0.15,
                                  .sync_us = 3,
                                  .hand_over_us = 30,
                                  .spin_us = 50,
                                  .awake_us = 1.5,
                                  .collective_us = 4,
                                  .lock_us = host->lock_us,
                                  .runs_compute = true,
                                  .cores = (uint64_t)(in_line ? devices : devices + 1)};
    device->product_crowding = 1.3;
    device->memory_crowding = 1.8;
    device->reclaim_GBps = 10;
    device->reclaim_bytes = 1 << 20;
}

ls_node *golden_node(const struct golden_setting *s) {
    ls_node *node;
    assert_int_equal(ls_node_open(&node, s->node), LS_OK);
    if (strcmp(s->host, "node") != 0) make_cpus(node, strcmp(s->host, "inline") == 0, s->options.devices);
    if (s->launch_us >= 0) ls_node_change_host(node)->launch_us = s->launch_us;
    if (s->lock_us >= 0) ls_node_change_host(node)->lock_us = s->lock_us;
    return node;
}

/* --- workloads --------------------------------------------------------------------------------------------------- */

enum { LAYERS = 12, UNITS = 600, SAMPLES = 64, STEPS = 5, WORKS = 3 * LAYERS + 2 };

/* A chain of layers as from a trace: each operation, the host's time before it and the loader's are measured, and vary
 * a little between the recorded steps. */
struct chain {
    ls_workload workload; /* first: golden_workload returns a pointer to it */
    struct ls_work work[WORKS];
    const char *names[2 * LAYERS];
    uint64_t counts[2 * LAYERS];
    int ready[2 * LAYERS];
    double step_us[STEPS * WORKS];
};

static struct ls_work *add(struct chain *c, const char *name, const char *phase, double us) {
    struct ls_work *work = &c->work[c->workload.work_count];
    double elements = (double)UNITS * SAMPLES, weights = sizeof(float) * (double)UNITS * UNITS;
    *work = (struct ls_work){.name = name,
                             .phase = phase,
                             .flops = 2.0 * UNITS * UNITS * SAMPLES,
                             .bytes = 2 * sizeof(float) * elements + weights,
                             .fixed_bytes = weights,
                             .is_product = true,
                             .us = us,
                             .host_us = 1 + 0.125 * c->workload.work_count};
    for (int step = 0; step < STEPS; step++)
        c->step_us[step * WORKS + c->workload.work_count] =
            us * (1 + 0.0625 * ((step * 3 + c->workload.work_count) % 5));
    c->workload.work_count++;
    return work;
}

static void add_plain(struct chain *c, const char *name, const char *phase, double us, double bytes) {
    struct ls_work *work = add(c, name, phase, us);
    work->is_product = false;
    work->flops = 0;
    work->bytes = bytes;
    work->fixed_bytes = 0;
}

static void fill_chain(struct chain *c) {
    for (int l = 0; l < LAYERS; l++) (void)add(c, "linear", "forward", 40 + 3 * l);
    add_plain(c, "cross_entropy", "loss", 4, 8.0 * UNITS * SAMPLES);
    for (int l = LAYERS; l > 0; l--) {
        (void)add(c, "linear_dx", "backward", 45 + 2 * l);
        struct ls_work *work = add(c, "linear_dw", "backward", 50 + l);
        work->first_ready = c->workload.ready_count;
        work->ready_count = 2;
        c->ready[c->workload.ready_count++] = 2 * l - 1; /* the bias first */
        c->ready[c->workload.ready_count++] = 2 * l - 2;
    }
    add_plain(c, "adam", "optimizer", 900, 28.0 * LAYERS * UNITS * (UNITS + 1));
    for (int p = 0; p < 2 * LAYERS; p++) {
        c->names[p] = p % 2 ? "bias" : "weight";
        c->counts[p] = p % 2 ? UNITS : UNITS * UNITS;
    }
}

static ls_workload *make_chain(void) {
    struct chain *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->workload = (ls_workload){.name = "chain",
                                .source = "a test",
                                .samples = SAMPLES,
                                .work = c->work,
                                .parameter_names = c->names,
                                .parameter_counts = c->counts,
                                .parameter_count = 2 * LAYERS,
                                .ready = c->ready,
                                .input_bytes = sizeof(float) * UNITS,
                                .output_bytes = sizeof(float) * UNITS,
                                .answer_bytes = sizeof(int64_t),
                                .activation_bytes = sizeof(float) * UNITS * LAYERS,
                                .exchange_bytes = 2 * sizeof(float) * UNITS,
                                .buffer_bytes = 4096,
                                .element_bytes = sizeof(float),
                                .optimizer_states = 2,
                                .loader_us = 7};
    fill_chain(c);
    c->workload.step_us = c->step_us;
    c->workload.step_count = STEPS;
    return &c->workload;
}

ls_workload *golden_workload(const struct golden_setting *s) {
    ls_workload *workload;
    if (strcmp(s->work, "chain") == 0) return make_chain();
    assert_int_equal(ls_workload_open(&workload, s->work), LS_OK);
    return workload;
}

void golden_close(ls_workload *workload) {
    if (strcmp(workload->name, "chain") == 0)
        free(workload);
    else
        ls_workload_close(workload);
}

void golden_numbers(double numbers[GOLDEN_NUMBERS], const struct ls_account *account) {
    const struct ls_device_account *first = account->devices, *last = first + account->device_count - 1;
    numbers[0] = account->step_us;
    numbers[1] = first->compute_us;
    numbers[2] = first->exposed_us;
    numbers[3] = last->compute_us;
    numbers[4] = last->exposed_us;
    numbers[5] = first->sent_bytes;
}
