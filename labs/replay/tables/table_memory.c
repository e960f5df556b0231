/* Table 4: what each device holds, DP against DDP.
 *
 *   idea    : the programs account for every allocation by category (device.h); short runs on CPU devices say what the
 *             peaks are, and more devices than cores change nothing of that
 *   surplus : DP's device 0 holds the model's only optimizer, receives everybody's gradients, gathers everybody's
 *             outputs and loads the batch before it is cut. Each of these has a formula, and together they must make up
 *             the difference between device 0 and the others to the byte
 *   DDP     : has no such device; every rank holds what DP's device 0 has of its own (a whole optimizer), with buckets
 *             in the place of gradients */
#include <math.h>
#include <stdio.h>

#include "common/device/device.h"
#include "labs/replay/tables/tables.h"
#include "labs/replay/tables/train.h"

/* A sample of either model: a picture of 28 x 28 floats, a label, ten outputs. */
enum { INPUT_BYTES = 28 * 28 * 4, LABEL_BYTES = 8, OUTPUT_BYTES = 10 * 4 };

/* Of the category LS_MEMORY_COUNT: all of them together. */
enum { TOTAL = LS_MEMORY_COUNT, SIZES = LS_MEMORY_COUNT + 1, STEPS = 2, BATCH = 64, TEXT_CAPACITY = 128 };

struct plan {
    const char *model, *optimizer;
    int states; /* floats that the optimizer keeps for each parameter */
};

static const struct plan plans[] = {
    {"mlp", "adam", 2},
    {"mlp", "sgd", 0},
    {"convnet", "adam", 2},
    {"convnet", "sgd", 0},
};
enum { PLAN_COUNT = sizeof plans / sizeof *plans, N_COUNT = 4 };

/* What was measured of a device. */
struct held {
    double bytes[SIZES];
};

/* In DP and DDP on n devices. */
struct measured {
    int n;
    struct held first, other, rank, last_rank; /* DP's device 0 and its last, DDP's rank 0 and its last */
    double parameter_bytes;                    /* of the gradients, as they travel */
};

static const char *size_name(int size) { return size == TOTAL ? "total" : ls_memory_name((ls_memory_category)size); }

static struct held held_by(const cJSON *summary, int device) {
    struct held held;
    for (int i = 0; i < SIZES; i++) held.bytes[i] = tables_peak_bytes(summary, device, size_name(i));
    return held;
}

/* --- device by device --------------------------------------------------------------------------------------------- */

static void add_held(tables_book *book, const struct plan *plan, const char *mode, int n, const struct held *held,
                     const struct held *ddp, enum tables_bound bound) {
    char quantity[TEXT_CAPACITY];
    for (int i = 0; i < SIZES; i++) {
        snprintf(quantity, sizeof quantity, "%s, %s: %s, bytes", plan->model, plan->optimizer, size_name(i));
        tables_add(book, &(struct tables_row){.quantity = quantity,
                                              .mode = mode,
                                              .n = n,
                                              .reference = ddp->bytes[i],
                                              .ours = held->bytes[i],
                                              .bound = bound,
                                              .aside = i != TOTAL,
                                              .how = "measured: peaks of the accounting on CPU devices, a step's 64 "
                                                     "samples over all of them; the reference is rank 0 of DDP"});
    }
}

/* --- the surplus of device 0 -------------------------------------------------------------------------------------- */

struct item {
    int category;
    const char *what;
    double formula; /* NAN: a few scalars, which are shown as they are */
    double tolerance;
};

static void add_item(tables_book *book, const struct plan *plan, int n, bool shown, const struct item *item,
                     double ours) {
    char quantity[TEXT_CAPACITY];
    snprintf(quantity, sizeof quantity, "%s, %s: device 0 has more, bytes", plan->model, plan->optimizer);
    tables_add(book,
               &(struct tables_row){.quantity = quantity,
                                    .mode = item->what,
                                    .n = n,
                                    .reference = item->formula,
                                    .ours = ours,
                                    .bound = isnan(item->formula) ? TABLES_SHOWN : TABLES_WITHIN,
                                    .tolerance = item->tolerance,
                                    .aside = !shown,
                                    .how = "measured: device 0's peak less the last device's, by category, in DP; "
                                           "the reference is a formula in the bytes of parameters and samples"});
}

static void add_surplus(tables_book *book, const struct plan *plan, const struct measured *m, bool shown) {
    const double batch = BATCH, piece = batch / m->n, parameters = m->parameter_bytes;
    const struct item items[] = {
        {LS_MEMORY_PARAMETER, "parameters", 0, 0},
        {LS_MEMORY_GRADIENT, "gradients received", (m->n - 1) * parameters, 0},
        {LS_MEMORY_OPTIMIZER, "optimizer state", plan->states ? plan->states * parameters : NAN, 0.01},
        {LS_MEMORY_INPUT, "the rest of the batch, and labels", (batch - piece) * INPUT_BYTES + batch * LABEL_BYTES, 0},
        {LS_MEMORY_GATHERED_OUTPUT, "gathered outputs", batch * OUTPUT_BYTES, 0},
        {LS_MEMORY_ACTIVATION, "its own outputs, which are among those", -piece * OUTPUT_BYTES, 0},
        {LS_MEMORY_BUCKET, "buckets", 0, 0},
        {LS_MEMORY_WORKSPACE, "losses", NAN, 0},
    };
    double sum = 0;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        double more = m->first.bytes[items[i].category] - m->other.bytes[items[i].category];
        sum += more;
        if (more != 0 || items[i].formula > 0) add_item(book, plan, m->n, shown, &items[i], more);
    }
    const struct item all = {TOTAL, "all of these; reference: the totals' difference",
                             m->first.bytes[TOTAL] - m->other.bytes[TOTAL], 0};
    add_item(book, plan, m->n, shown, &all, sum);
}

/* --- ratios ------------------------------------------------------------------------------------------------------- */

static void add_ratio(tables_book *book, const char *mode, int n, double published, double ours) {
    tables_add(book,
               &(struct tables_row){.quantity = "device 0 : another",
                                    .mode = mode,
                                    .n = n,
                                    .reference = published,
                                    .ours = ours,
                                    .how = "measured: total peaks in DP; published: nvidia-smi's figures of other "
                                           "networks, which are context and no target"});
}

static void add_published(tables_book *book) {
    static const struct {
        const char *mode;
        int n;
        double first, other; /* MB, as published */
    } published[] = {
        {"published: huggingface/transformers#279", 0, 4000, 700},
        {"published: EpipolarPose#22", 0, 10761, 3651},
        {"published: Balanced-DataParallel#13", 0, 10505, 4958},
        {"published: Balanced-DataParallel#8", 2, 12179, 5245},
        {"published: BERT-pytorch#10 (about)", 0, 2, 1},
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        add_ratio(book, published[i].mode, published[i].n, published[i].first / published[i].other, NAN);
}

/* --- half precision ----------------------------------------------------------------------------------------------- */

static ls_status measure(struct held *held, const char *model, const char *precision, double timeout_s) {
    const struct tables_run run = {.mode = TABLES_SINGLE,
                                   .devices = 1,
                                   .model = model,
                                   .optimizer = "adam",
                                   .precision = precision,
                                   .batch = BATCH,
                                   .steps = STEPS};
    cJSON *summary;
    ls_status status = tables_train(&summary, &run, timeout_s);
    if (status == LS_OK) *held = held_by(summary, 0);
    cJSON_Delete(summary);
    return status;
}

/* The mlp's layers are narrower than its input, of which the half copy comes on top: there is nothing to be halved. */
static ls_status add_precision(tables_book *book, const tables_settings *settings, const char *model, bool halves) {
    static const char *const precisions[] = {"fp32", "fp16", "bf16"};
    struct held held[3];
    char quantity[TEXT_CAPACITY];
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < 3; i++)
        status = measure(&held[i], model, precisions[i], settings->timeout_s);
    for (int i = 1; status == LS_OK && i < 3; i++) {
        snprintf(quantity, sizeof quantity, "%s: activations, bytes", model);
        tables_add(book, &(struct tables_row){.quantity = quantity,
                                              .mode = precisions[i],
                                              .n = 1,
                                              .reference = held[0].bytes[LS_MEMORY_ACTIVATION] / 2,
                                              .ours = held[i].bytes[LS_MEMORY_ACTIVATION],
                                              .bound = halves ? TABLES_WITHIN : TABLES_SHOWN,
                                              .tolerance = 0.05,
                                              .how = "measured: peaks of the accounting on one CPU device, 64 samples; "
                                                     "the reference is half of what fp32 needs"});
    }
    return status;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static ls_status measure_both(struct measured *measured, const struct plan *plan, int n, double timeout_s) {
    struct tables_run run = {.mode = TABLES_DP,
                             .devices = n,
                             .model = plan->model,
                             .optimizer = plan->optimizer,
                             .precision = "fp32",
                             .batch = BATCH,
                             .steps = STEPS};
    cJSON *dp = NULL, *ddp = NULL;
    ls_status status = tables_train(&dp, &run, timeout_s);
    run.mode = TABLES_DDP;
    if (status == LS_OK) status = tables_train(&ddp, &run, timeout_s);
    if (status == LS_OK) {
        *measured = (struct measured){.n = n,
                                      .first = held_by(dp, 0),
                                      .other = held_by(dp, n - 1),
                                      .rank = held_by(ddp, 0),
                                      .last_rank = held_by(ddp, n - 1),
                                      .parameter_bytes = tables_phase_bytes(dp, n - 1, "reduce")};
    }
    cJSON_Delete(dp);
    cJSON_Delete(ddp);
    return status;
}

static void add_measured(tables_book *book, const struct plan *plan, const struct measured *measured, int count) {
    for (int i = 0; i < count; i++) {
        const struct measured *m = &measured[i];
        add_held(book, plan, "DP, device 0", m->n, &m->first, &m->rank, TABLES_SHOWN);
        if (m->n > 1) add_held(book, plan, "DP, others", m->n, &m->other, &m->rank, TABLES_SHOWN);
        if (m->n > 1) add_held(book, plan, "DDP, last rank", m->n, &m->last_rank, &m->rank, TABLES_WITHIN);
    }
}

static void add_ratios(tables_book *book, const struct plan *plan, const struct measured *measured, int count) {
    char mode[TEXT_CAPACITY];
    snprintf(mode, sizeof mode, "%s, %s", plan->model, plan->optimizer);
    for (int i = 0; i < count; i++) {
        const struct measured *m = &measured[i];
        if (m->n > 1) add_ratio(book, mode, m->n, NAN, m->first.bytes[TOTAL] / m->other.bytes[TOTAL]);
    }
}

ls_status tables_make_memory(tables_book *book, const tables_settings *settings) {
    static const int ns[N_COUNT] = {1, 2, 4, 8};
    struct measured all[PLAN_COUNT][N_COUNT];
    int count = settings->quick ? 2 : N_COUNT;
    ls_status status = LS_OK;
    for (int p = 0; p < PLAN_COUNT; p++)
        for (int i = 0; status == LS_OK && i < count; i++)
            status = measure_both(&all[p][i], &plans[p], ns[i], settings->timeout_s);
    if (status != LS_OK) return status;
    tables_text(book, "Bytes that devices hold at most. DP's device 0 holds what the others do not: the optimizer, all "
                      "gradients, all outputs, the whole batch. A rank of DDP holds the same whatever its number. "
                      "(tables.csv has every category.)");
    for (int p = 0; p < PLAN_COUNT; p++) add_measured(book, &plans[p], all[p], count);
    tables_text(book, "Item by item, for N = %d: what device 0 has more than another device.", ns[count > 2 ? 2 : 1]);
    for (int p = 0; p < PLAN_COUNT; p++)
        for (int i = 1; i < count; i++) add_surplus(book, &plans[p], &all[p][i], i == (count > 2 ? 2 : 1));
    tables_text(book, "Half precision halves activations where the layers are what is large. The mlp's layers are "
                      "narrower than its input, whose half copy comes on top, so there is little to halve.");
    status = add_precision(book, settings, "mlp", false);
    if (status == LS_OK) status = add_precision(book, settings, "convnet", true);
    tables_text(book, "How much more device 0 holds, as a ratio. The published ones are of other networks on GPUs (and "
                      "hold their frameworks' own memory, too): they show the range, and are no target.");
    for (int p = 0; p < PLAN_COUNT; p++) add_ratios(book, &plans[p], all[p], count);
    add_published(book);
    return status;
}
