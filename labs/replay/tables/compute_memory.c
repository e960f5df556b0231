/* Table 4: the memory of each device, DP against DDP.
 *
 *   idea    : the programs account for every allocation by category (device.h); short runs on CPU devices show the
 *             peaks, which do not depend on the number of cores
 *   surplus : DP's device 0 holds the model's only optimizer, receives the gradients and gathers the outputs of all
 *             devices, and loads the batch before it is split. Each of these has a formula, and their sum must equal
 *             the difference between device 0 and the others to the byte
 *   DDP     : has no such device; every rank holds the same as DP's device 0 for itself (a whole optimizer), with
 *             buckets in the place of gradients */
#include <math.h>
#include <stdio.h>

#include "common/device/device.h"
#include "labs/replay/tables/tables.h"
#include "labs/replay/tables/train.h"

/* A sample of either model: a picture of 28 x 28 floats, a label, ten outputs. */
enum { INPUT_BYTES = 28 * 28 * 4, LABEL_BYTES = 8, OUTPUT_BYTES = 10 * 4, BATCH = 64 };

/* TOTAL stands for all categories together. */
enum { TOTAL = LS_MEMORY_COUNT, SIZES = LS_MEMORY_COUNT + 1, TEXT_CAPACITY = 160 };

static const struct plan {
    const char *model, *optimizer, *name;
    int states; /* floats that the optimizer keeps for each parameter */
} plans[] = {{"mlp", "adam", "mlp, adam", 2},
             {"mlp", "sgd", "mlp, sgd", 0},
             {"convnet", "adam", "convnet, adam", 2},
             {"convnet", "sgd", "convnet, sgd", 0}};

enum { PLANS = sizeof plans / sizeof *plans, N_COUNT = 4 };
static const int ns[N_COUNT] = {1, 2, 4, 8};

/* The peaks of a run's first and last device, and the bytes of the last one's gradients as they are sent. */
struct held {
    double first[SIZES], last[SIZES], parameters;
};

static ls_status measure(struct held *held, ls_plan_mode mode, int n, const struct plan *plan, const char *precision,
                         double timeout_s) {
    char arguments[TEXT_CAPACITY];
    cJSON *summary;
    snprintf(arguments, sizeof arguments,
             "--data=random:0 --model=%s --optimizer=%s --precision=%s --batch-size=%d --steps=2", plan->model,
             plan->optimizer, precision, BATCH);
    const struct tables_training training = {.mode = mode, .devices = n, .arguments = arguments};
    ls_status status = tables_train(&summary, &training, timeout_s);
    for (int i = 0; status == LS_OK && i < SIZES; i++) {
        const char *name = i == TOTAL ? "total" : ls_memory_name((ls_memory_category)i);
        held->first[i] = tables_device_number(summary, 0, "peak_bytes", name);
        held->last[i] = tables_device_number(summary, n - 1, "peak_bytes", name);
    }
    held->parameters = tables_device_number(summary, n - 1, "bytes_per_step_by_phase", "reduce");
    cJSON_Delete(summary);
    return status;
}

static void add_held(tables_book *book, const struct plan *plan, const char *mode, int n, const double *reference,
                     const double *ours, enum tables_bound bound) {
    char quantity[TEXT_CAPACITY];
    for (int i = 0; i < SIZES; i++) {
        snprintf(quantity, sizeof quantity, "%s: %s, bytes", plan->name,
                 i == TOTAL ? "total" : ls_memory_name((ls_memory_category)i));
        tables_add(book, &(struct tables_row){.quantity = quantity,
                                              .mode = mode,
                                              .n = n,
                                              .reference = reference[i],
                                              .ours = ours[i],
                                              .bound = bound,
                                              .aside = i != TOTAL});
    }
}

/* --- the surplus of device 0 -------------------------------------------------------------------------------------- */

static void add_item(tables_book *book, const struct plan *plan, int n, bool shown, const char *what, double formula,
                     double tolerance, double ours) {
    char quantity[TEXT_CAPACITY];
    snprintf(quantity, sizeof quantity, "%s: device 0 has more, bytes", plan->name);
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = what,
                                          .n = n,
                                          .reference = formula,
                                          .ours = ours,
                                          .bound = isnan(formula) ? TABLES_SHOWN : TABLES_WITHIN,
                                          .tolerance = tolerance,
                                          .aside = !shown});
}

static void add_surplus(tables_book *book, const struct plan *plan, const struct held *dp, int n, bool shown) {
    const double batch = BATCH, piece = batch / n, parameters = dp->parameters;
    const struct {
        int category;
        const char *what;
        double formula; /* NAN: a few scalars, which have no formula */
        double tolerance;
    } items[] = {
        {LS_MEMORY_PARAMETER, "parameters", 0, 0},
        {LS_MEMORY_GRADIENT, "gradients received", (n - 1) * parameters, 0},
        {LS_MEMORY_OPTIMIZER, "optimizer state", plan->states ? plan->states * parameters : NAN, 0.01},
        {LS_MEMORY_INPUT, "the rest of the batch, and labels", (batch - piece) * INPUT_BYTES + batch * LABEL_BYTES, 0},
        {LS_MEMORY_GATHERED_OUTPUT, "gathered outputs", batch * OUTPUT_BYTES, 0},
        {LS_MEMORY_ACTIVATION, "its own outputs, which are among those", -piece * OUTPUT_BYTES, 0},
        {LS_MEMORY_BUCKET, "buckets", 0, 0},
        {LS_MEMORY_WORKSPACE, "losses", NAN, 0},
    };
    double sum = 0;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        double more = dp->first[items[i].category] - dp->last[items[i].category];
        sum += more;
        if (more != 0 || items[i].formula > 0)
            add_item(book, plan, n, shown, items[i].what, items[i].formula, items[i].tolerance, more);
    }
    add_item(book, plan, n, shown, "all of these; reference: the totals' difference",
             dp->first[TOTAL] - dp->last[TOTAL], 0, sum);
}

/* --- half precision, and ratios ----------------------------------------------------------------------------------- */

/* The mlp's layers are narrower than its input, whose 16-bit copy adds memory: nothing is halved. */
static ls_status add_precision(tables_book *book, const tables_settings *settings, const struct plan *plan,
                               bool halves) {
    static const char *const precisions[] = {"fp32", "fp16", "bf16"};
    struct held held[3];
    char quantity[TEXT_CAPACITY];
    ls_status status = LS_OK;
    snprintf(quantity, sizeof quantity, "%s: activations, bytes", plan->model);
    for (int i = 0; status == LS_OK && i < 3; i++) {
        status = measure(&held[i], LS_PLAN_SINGLE, 1, plan, precisions[i], settings->timeout_s);
        if (status == LS_OK && i > 0)
            tables_add(book, &(struct tables_row){.quantity = quantity,
                                                  .mode = precisions[i],
                                                  .n = 1,
                                                  .reference = held[0].first[LS_MEMORY_ACTIVATION] / 2,
                                                  .ours = held[i].first[LS_MEMORY_ACTIVATION],
                                                  .bound = halves ? TABLES_WITHIN : TABLES_SHOWN});
    }
    return status;
}

static void add_ratio(tables_book *book, const char *mode, int n, double published, double ours) {
    tables_add(book, &(struct tables_row){
                         .quantity = "device 0 : another", .mode = mode, .n = n, .reference = published, .ours = ours});
}

/* MB, as users reported them (docs/published.md). */
static void add_published(tables_book *book) {
    add_ratio(book, "published: huggingface/transformers#279", 0, 4000.0 / 700, NAN);
    add_ratio(book, "published: EpipolarPose#22", 0, 10761.0 / 3651, NAN);
    add_ratio(book, "published: Balanced-DataParallel#13", 0, 10505.0 / 4958, NAN);
    add_ratio(book, "published: Balanced-DataParallel#8", 2, 12179.0 / 5245, NAN);
    add_ratio(book, "published: BERT-pytorch#10 (about)", 0, 2, NAN);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void add_devices(tables_book *book, const struct plan *plan, int n, const struct held *dp,
                        const struct held *ddp) {
    add_held(book, plan, "DP, device 0", n, ddp->first, dp->first, TABLES_SHOWN);
    if (n == 1) return;
    add_held(book, plan, "DP, others", n, ddp->first, dp->last, TABLES_SHOWN);
    add_held(book, plan, "DDP, last rank", n, ddp->first, ddp->last, TABLES_WITHIN);
}

ls_status tables_compute_memory(tables_book *book, const tables_settings *settings) {
    struct held dp[PLANS][N_COUNT], ddp[PLANS][N_COUNT];
    int count = settings->quick ? 2 : N_COUNT, itemized = count > 2 ? 2 : 1;
    ls_status status = LS_OK;
    for (int p = 0; p < PLANS; p++)
        for (int i = 0; status == LS_OK && i < count; i++) {
            status = measure(&dp[p][i], LS_PLAN_DP, ns[i], &plans[p], "fp32", settings->timeout_s);
            if (status == LS_OK)
                status = measure(&ddp[p][i], LS_PLAN_DDP, ns[i], &plans[p], "fp32", settings->timeout_s);
        }
    if (status != LS_OK) return status;
    tables_group(book, "held");
    for (int p = 0; p < PLANS; p++)
        for (int i = 0; i < count; i++) add_devices(book, &plans[p], ns[i], &dp[p][i], &ddp[p][i]);
    tables_group(book, "surplus");
    tables_text(book, "Item by item, for N = %d: what device 0 has more than another device.", ns[itemized]);
    for (int p = 0; p < PLANS; p++)
        for (int i = 1; i < count; i++) add_surplus(book, &plans[p], &dp[p][i], ns[i], i == itemized);
    tables_group(book, "ratios");
    for (int p = 0; p < PLANS; p++)
        for (int i = 1; i < count; i++)
            add_ratio(book, plans[p].name, ns[i], NAN, dp[p][i].first[TOTAL] / dp[p][i].last[TOTAL]);
    add_published(book);
    tables_group(book, "precision");
    status = add_precision(book, settings, &plans[0], false);
    return status == LS_OK ? add_precision(book, settings, &plans[2], true) : status;
}
