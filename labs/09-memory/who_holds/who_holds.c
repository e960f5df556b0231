/* who_holds — the memory of each device while a network is trained: predicted by a formula (predict.c), and counted by
 * a run on meta devices (count.c). The program of lab 09.
 *
 *     build/who_holds --mode dp --devices 4 --model mlp:784,27000,27000,27000,10 --optimizer adam --batch 64 */
#include <stdio.h>
#include <string.h>

#include "common/base/bytes_text.h"
#include "common/base/launcher.h"
#include "common/base/log.h"
#include "common/base/results.h"
#include "common/base/table.h"
#include "labs/09-memory/who_holds/count.h"
#include "labs/bench/shared/settings.h"

static const char *const modes[] = {"single", "dp", "ddp", NULL}; /* the order of holds_mode */

static const char *const optimizers[] = {"sgd", "momentum", "adam", "adamw", NULL};
static const struct {
    ls_optimizer_kind kind;
    double momentum;
    size_t moments;
} rules[] = {{LS_SGD, 0, 0}, {LS_SGD, 0.9, 1}, {LS_ADAM, 0, 2}, {LS_ADAMW, 0, 2}};

struct settings {
    int mode, optimizer, batch;
    int devices; /* 0: not given */
    const char *model;
};

/* --- the table --------------------------------------------------------------------------------------------------- */

struct both {
    struct holds_bytes predicted, counted;
};

static size_t total(const struct holds_bytes *bytes) {
    size_t sum = 0;
    for (int c = 0; c < LS_MEMORY_COUNT; c++) sum += bytes->of[c];
    return sum;
}

static void put_row(ls_table *table, const char *devices, const char *category, size_t predicted, size_t counted) {
    char text[LS_BYTES_TEXT_CAPACITY];
    ls_table_cell(table, "%s", devices);
    ls_table_cell(table, "%s", category);
    ls_table_cell(table, "%zu", predicted);
    ls_table_cell(table, "%zu", counted);
    ls_table_cell(table, "%s", predicted == counted ? "=" : "!=");
    ls_table_cell(table, "%s", ls_bytes_text(text, (double)counted));
}

/* Writes the rows of devices `first` to `last`, which are alike: the memory of one of them. */
static void put_devices(ls_table *table, int first, int last, const struct both *held) {
    char devices[32];
    int length = snprintf(devices, sizeof devices, "%d", first);
    if (last > first) snprintf(devices + length, sizeof devices - (size_t)length, " to %d", last);
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        size_t predicted = held->predicted.of[c], counted = held->counted.of[c];
        if (predicted > 0 || counted > 0)
            put_row(table, devices, ls_memory_name((ls_memory_category)c), predicted, counted);
    }
    put_row(table, devices, "all", total(&held->predicted), total(&held->counted));
}

static ls_status print_table(const struct both *held, int devices) {
    static const ls_column columns[] = {{"device", LS_RIGHT},  {"category", LS_LEFT}, {"predicted", LS_RIGHT},
                                        {"counted", LS_RIGHT}, {"", LS_LEFT},         {"that is", LS_RIGHT}};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    for (int first = 0, last; first < devices; first = last + 1) {
        last = first;
        while (last + 1 < devices && memcmp(&held[last + 1], &held[first], sizeof *held) == 0) last++;
        put_devices(table, first, last, &held[first]);
    }
    return ls_table_finish(table, stdout);
}

static void print_verdict(const struct both *held, int devices) {
    int wrong = 0;
    for (int d = 0; d < devices; d++)
        for (int c = 0; c < LS_MEMORY_COUNT; c++) wrong += held[d].predicted.of[c] != held[d].counted.of[c];
    if (wrong == 0) printf("the prediction and the count agree, to the byte\n");
    if (wrong > 0)
        printf("the prediction and the count differ in %d of %d figures\n", wrong, devices * LS_MEMORY_COUNT);
}

/* --- the program ------------------------------------------------------------------------------------------------- */

static ls_status run(const struct settings *s) {
    int usual = s->mode == HOLDS_SINGLE ? 1 : 4;
    struct holds_run run = {.mode = (holds_mode)s->mode,
                            .devices = s->devices > 0 ? s->devices : usual,
                            .batch = (size_t)s->batch,
                            .moments = rules[s->optimizer].moments};
    struct holds_bytes counted[HOLDS_MOST_DEVICES];
    struct both held[HOLDS_MOST_DEVICES];
    ls_optimizer_options optimizer = ls_optimizer_defaults(rules[s->optimizer].kind);
    optimizer.momentum = rules[s->optimizer].momentum;
    if (run.mode == HOLDS_SINGLE && run.devices > 1)
        return ls_fail(LS_ERR_USAGE, "--mode single has one device, not %d", run.devices);
    if (s->batch < run.devices)
        return ls_fail(LS_ERR_USAGE, "%d devices cannot share a batch of %d samples", run.devices, s->batch);
    ls_status status = holds_count_sizes(&run.sizes, s->model);
    if (status == LS_OK) status = holds_count(counted, &run, s->model, &optimizer);
    if (status != LS_OK) return status;
    for (int d = 0; d < run.devices; d++) held[d] = (struct both){holds_predict(&run, d), counted[d]};
    printf("%s, %d device%s, %s, %s, %d samples a step: bytes\n", modes[s->mode], run.devices,
           run.devices > 1 ? "s" : "", s->model, optimizers[s->optimizer], s->batch);
    status = print_table(held, run.devices);
    if (status == LS_OK) print_verdict(held, run.devices);
    return status;
}

static ls_status parse(struct settings *s, int argc, char **argv, bool *help) {
    /* clang-format off */
    const ls_option options[] = {
        {.kind = LS_OPTION_CHOICE, .name = "mode", .to.number = &s->mode, .choices = modes,
         .help = "one device; DataParallel; DistributedDataParallel, of which rank 0 is run and stands for all"},
        {.kind = LS_OPTION_INT, .name = "devices", .to.number = &s->devices, .argument = "N",
         .limits = LS_BETWEEN(1, HOLDS_MOST_DEVICES), .help = "number of devices", .empty = "4; with --mode single 1"},
        {.kind = LS_OPTION_STRING, .name = "model", .to.text = &s->model, .argument = "MODEL",
         .help = "mlp, convnet, wide or deep; with sizes of your own mlp:784,512,10 or wide:64,128,64"},
        {.kind = LS_OPTION_CHOICE, .name = "optimizer", .to.number = &s->optimizer, .choices = optimizers,
         .help = "momentum: sgd with it"},
        {.kind = LS_OPTION_INT, .name = "batch", .to.number = &s->batch, .argument = "B", .limits = LS_BETWEEN(1, 1e6),
         .help = "samples of a step, over all devices"},
    };
    /* clang-format on */
    return BENCH_PARSE(options, "Shows what each device holds, predicted and counted; nothing is computed.", argc, argv,
                       help);
}

int main(int argc, char **argv) {
    struct settings settings = {.mode = HOLDS_DP, .model = "mlp", .optimizer = 2, .batch = 64};
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&settings, argc, argv, &help);
    if (status == LS_OK && !help)
        status = ls_launcher_refuse_copies("print the same", "start the program once, without the launcher");
    if (status == LS_OK && !help) status = run(&settings);
    return ls_status_exit_code(ls_results_written(status));
}
