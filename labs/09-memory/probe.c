/* Tests lab 09's predictor of devices' memory: with random sizes, category by category, and at last with real models,
 * compared with the counts of a run on meta devices. */
#include <stdio.h>

#include "labs/09-memory/who_holds/count.h"
#include "labs/course/probe/probe.h"

static const char *const modes[] = {"one device", "DataParallel", "DDP"}; /* the order of holds_mode */

/* --- runs -------------------------------------------------------------------------------------------------------- */

/* Draws sizes that all differ; `unit` is 64 for small models, more for large ones. */
static struct holds_sizes draw_sizes(probe *p, size_t unit) {
    struct holds_sizes sizes;
    size_t *const all[] = {&sizes.parameters, &sizes.buffers, &sizes.update,     &sizes.input,   &sizes.answer,
                           &sizes.output,     &sizes.losses,  &sizes.statistics, &sizes.scratch, &sizes.activations};
    size_t number = 1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        number += 1 + probe_draw(p, 40);
        *all[i] = number * unit;
    }
    return sizes;
}

typedef void see_run(probe *p, const struct holds_run *run);

/* Runs of one mode: batches that divide evenly, and batches of which the last devices get fewer samples, or none. */
static void see_mode(probe *p, holds_mode mode, size_t unit, see_run *see) {
    static const int devices[] = {1, 2, 3, 4, 5, 8, 17};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (mode == HOLDS_SINGLE && devices[i] > 1) break;
        size_t n = (size_t)devices[i];
        const size_t batches[] = {n, 4 * n, 2 * n + 1, n * n, n + probe_draw(p, 1000)};
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            const struct holds_run run = {.mode = mode,
                                          .devices = devices[i],
                                          .batch = batches[b],
                                          .moments = (i + b) % 3,
                                          .sizes = draw_sizes(p, unit)};
            see(p, &run);
        }
    }
}

/* Batches that a float, 32 bits or a double cannot count, and more devices than 8 or 16 bits can. */
static void see_large(probe *p, holds_mode mode, see_run *see) {
    static const size_t batches[] = {((size_t)1 << 24) + 1, ((size_t)1 << 32) + 1, ((size_t)1 << 53) + 1};
    static const int devices[] = {1, 2, 8, 300, (1 << 16) + 1};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            if (mode == HOLDS_SINGLE && devices[i] > 1) break;
            const struct holds_run run = {.mode = mode,
                                          .devices = devices[i],
                                          .batch = batches[b] + 2 * probe_draw(p, 1000),
                                          .moments = (i + b) % 3,
                                          .sizes = draw_sizes(p, 1)};
            see(p, &run);
        }
}

/* Small models first; the last ones have more bytes than 32 bits count. */
static void see_runs(probe *p, see_run *see) {
    for (size_t unit = 64; unit <= (size_t)64 << 24; unit <<= 12)
        for (int mode = HOLDS_SINGLE; mode <= HOLDS_DDP; mode++) see_mode(p, (holds_mode)mode, unit, see);
    for (int mode = HOLDS_SINGLE; mode <= HOLDS_DDP; mode++) see_large(p, (holds_mode)mode, see);
}

enum { NAME_CAPACITY = 96 };

static const char *name_run(char text[NAME_CAPACITY], const struct holds_run *run) {
    int length = snprintf(text, NAME_CAPACITY, "%s", modes[run->mode]);
    if (run->mode != HOLDS_SINGLE)
        length += snprintf(text + length, NAME_CAPACITY - (size_t)length, ", %d device%s", run->devices,
                           run->devices > 1 ? "s" : "");
    snprintf(text + length, NAME_CAPACITY - (size_t)length, ", %zu sample%s", run->batch, run->batch > 1 ? "s" : "");
    return text;
}

/* The predicted bytes of a category on each device; of many devices only the first ones and the last. */
static void see_category(probe *p, const struct holds_run *run, ls_memory_category category) {
    enum { MOST_SEEN = 17 };
    for (int d = 0; d < run->devices; d++) {
        if (run->devices > MOST_SEEN && d > 1) d = run->devices - 1;
        const struct holds_bytes held = holds_predict(run, d);
        probe_see(p, probe_name(p, "device %d's %s bytes", d, ls_memory_name(category)), "%zu", held.of[category]);
    }
}

/* --- the categories ---------------------------------------------------------------------------------------------- */

static void see_parameters(probe *p, const struct holds_run *run) {
    char name[NAME_CAPACITY];
    probe_case(p, "%s; parameters %zu, buffers %zu", name_run(name, run), run->sizes.parameters, run->sizes.buffers);
    see_category(p, run, LS_MEMORY_PARAMETER);
}

static void see_gradients(probe *p, const struct holds_run *run) {
    char name[NAME_CAPACITY];
    probe_case(p, "%s; parameters %zu", name_run(name, run), run->sizes.parameters);
    see_category(p, run, LS_MEMORY_GRADIENT);
    see_category(p, run, LS_MEMORY_BUCKET);
}

static void see_optimizer(probe *p, const struct holds_run *run) {
    char name[NAME_CAPACITY];
    probe_case(p, "%s; %zu moment%s, parameters %zu, update %zu", name_run(name, run), run->moments,
               run->moments == 1 ? "" : "s", run->sizes.parameters, run->sizes.update);
    see_category(p, run, LS_MEMORY_OPTIMIZER);
}

static void see_samples(probe *p, const struct holds_run *run) {
    char name[NAME_CAPACITY];
    probe_case(p, "%s; input %zu, answer %zu, output %zu", name_run(name, run), run->sizes.input, run->sizes.answer,
               run->sizes.output);
    see_category(p, run, LS_MEMORY_INPUT);
    see_category(p, run, LS_MEMORY_GATHERED_OUTPUT);
}

static void see_activations(probe *p, const struct holds_run *run) {
    char name[NAME_CAPACITY];
    probe_case(p, "%s; activations %zu, statistics %zu, output %zu", name_run(name, run), run->sizes.activations,
               run->sizes.statistics, run->sizes.output);
    see_category(p, run, LS_MEMORY_ACTIVATION);
}

static void see_workspace(probe *p, const struct holds_run *run) {
    char name[NAME_CAPACITY];
    probe_case(p, "%s; scratch %zu, losses %zu", name_run(name, run), run->sizes.scratch, run->sizes.losses);
    see_category(p, run, LS_MEMORY_WORKSPACE);
}

static void parameters(probe *p) { see_runs(p, see_parameters); }
static void gradients(probe *p) { see_runs(p, see_gradients); }
static void optimizer(probe *p) { see_runs(p, see_optimizer); }
static void samples(probe *p) { see_runs(p, see_samples); }
static void activations(probe *p) { see_runs(p, see_activations); }
static void workspace(probe *p) { see_runs(p, see_workspace); }

/* --- real models ------------------------------------------------------------------------------------------------- */

static void see_counted(probe *p, const struct holds_run *run, const char *model) {
    const ls_optimizer_options adam = ls_optimizer_defaults(LS_ADAM);
    struct holds_bytes counted[HOLDS_MOST_DEVICES];
    char name[NAME_CAPACITY];
    probe_case(p, "%s on %s, Adam", model, name_run(name, run));
    probe_must(p, "two steps on meta devices", holds_count(counted, run, model, &adam));
    for (int d = 0; d < run->devices; d++) {
        const struct holds_bytes held = holds_predict(run, d);
        for (int c = 0; c < LS_MEMORY_COUNT; c++) {
            const char *what = probe_name(p, "whether device %d holds the %s bytes that are predicted", d,
                                          ls_memory_name((ls_memory_category)c));
            if (held.of[c] == counted[d].of[c]) probe_see(p, what, "yes");
            if (held.of[c] != counted[d].of[c])
                probe_see(p, what, "no: %zu are predicted, and %zu counted", held.of[c], counted[d].of[c]);
        }
    }
}

static void counted(probe *p) {
    char own[64];
    int first = 1 + (int)probe_draw(p, 3000), second = 1 + (int)probe_draw(p, 3000);
    snprintf(own, sizeof own, "mlp:784,%d,%d,10", first, second);
    const char *const models[] = {"mlp", own, "convnet", "deep", "mlp:784,27000,27000,27000,10"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct holds_sizes sizes;
        probe_must(p, probe_name(p, "the sizes of %s", models[m]), holds_count_sizes(&sizes, models[m]));
        for (int mode = HOLDS_SINGLE; mode <= HOLDS_DDP; mode++) {
            int devices = mode == HOLDS_SINGLE ? 1 : 2 + (int)probe_draw(p, 4);
            const struct holds_run run = {.mode = (holds_mode)mode,
                                          .devices = devices,
                                          .batch = (size_t)devices + probe_draw(p, 60),
                                          .moments = 2,
                                          .sizes = sizes};
            see_counted(p, &run, models[m]);
        }
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {
        {"parameters", parameters},   {"gradients", gradients}, {"optimizer", optimizer}, {"samples", samples},
        {"activations", activations}, {"workspace", workspace}, {"counted", counted},     {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
