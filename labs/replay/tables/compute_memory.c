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

/* Behind the categories: all of them together. */
enum { TOTAL = LS_MEMORY_COUNT, SIZES = LS_MEMORY_COUNT + 1, BATCH = 64, TEXT_CAPACITY = 160 };

static const struct plan {
    const char *model, *optimizer;
    int states; /* floats that the optimizer keeps for each parameter */
} plans[] = {{"mlp", "adam", 2}, {"mlp", "sgd", 0}, {"convnet", "adam", 2}, {"convnet", "sgd", 0}};

enum { PLANS = sizeof plans / sizeof *plans, N_COUNT = 4 };
static const int ns[N_COUNT] = {1, 2, 4, 8};

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

/* One short run: what its first and its last device hold, and the bytes that the last one's gradients have. */
static ls_status measure(struct held *first, struct held *last, double *parameter_bytes, ls_plan_mode mode, int n,
                         const char *model, const char *optimizer, const char *precision, double timeout_s) {
    char arguments[TEXT_CAPACITY];
    cJSON *summary;
    snprintf(arguments, sizeof arguments,
             "--data=random:0 --model=%s --optimizer=%s --precision=%s --batch-size=%d --steps=2", model, optimizer,
             precision, BATCH);
    const struct tables_training training = {.mode = mode, .devices = n, .arguments = arguments};
    ls_status status = tables_train(&summary, &training, timeout_s);
    for (int i = 0; status == LS_OK && i < SIZES; i++) {
        first->bytes[i] = tables_device_number(summary, 0, "peak_bytes", size_name(i));
        last->bytes[i] = tables_device_number(summary, n - 1, "peak_bytes", size_name(i));
    }
    if (status == LS_OK) *parameter_bytes = tables_device_number(summary, n - 1, "bytes_per_step_by_phase", "reduce");
    cJSON_Delete(summary);
    return status;
}

static ls_status measure_both(struct measured *m, const struct plan *plan, int n, double timeout_s) {
    double ignored;
    m->n = n;
    ls_status status = measure(&m->first, &m->other, &m->parameter_bytes, LS_PLAN_DP, n, plan->model, plan->optimizer,
                               "fp32", timeout_s);
    if (status != LS_OK) return status;
    return measure(&m->rank, &m->last_rank, &ignored, LS_PLAN_DDP, n, plan->model, plan->optimizer, "fp32", timeout_s);
}

/* --- device by device --------------------------------------------------------------------------------------------- */

static void add_held(tables_book *book, const struct plan *plan, const char *mode, const struct measured *m,
                     const struct held *held, enum tables_bound bound) {
    char quantity[TEXT_CAPACITY];
    for (int i = 0; i < SIZES; i++) {
        snprintf(quantity, sizeof quantity, "%s, %s: %s, bytes", plan->model, plan->optimizer, size_name(i));
        tables_add(book, &(struct tables_row){.quantity = quantity,
                                              .mode = mode,
                                              .n = m->n,
                                              .reference = m->rank.bytes[i],
                                              .ours = held->bytes[i],
                                              .bound = bound,
                                              .aside = i != TOTAL});
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
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = item->what,
                                          .n = n,
                                          .reference = item->formula,
                                          .ours = ours,
                                          .bound = isnan(item->formula) ? TABLES_SHOWN : TABLES_WITHIN,
                                          .tolerance = item->tolerance,
                                          .aside = !shown});
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

/* --- half precision, and ratios ----------------------------------------------------------------------------------- */

/* The mlp's layers are narrower than its input, of which the half copy comes on top: there is nothing to be halved. */
static ls_status add_precision(tables_book *book, const tables_settings *settings, const char *model, bool halves) {
    static const char *const precisions[] = {"fp32", "fp16", "bf16"};
    struct held held[3], last;
    double ignored;
    char quantity[TEXT_CAPACITY];
    ls_status status = LS_OK;
    snprintf(quantity, sizeof quantity, "%s: activations, bytes", model);
    for (int i = 0; status == LS_OK && i < 3; i++) {
        status =
            measure(&held[i], &last, &ignored, LS_PLAN_SINGLE, 1, model, "adam", precisions[i], settings->timeout_s);
        if (status == LS_OK && i > 0)
            tables_add(book, &(struct tables_row){.quantity = quantity,
                                                  .mode = precisions[i],
                                                  .n = 1,
                                                  .reference = held[0].bytes[LS_MEMORY_ACTIVATION] / 2,
                                                  .ours = held[i].bytes[LS_MEMORY_ACTIVATION],
                                                  .bound = halves ? TABLES_WITHIN : TABLES_SHOWN});
    }
    return status;
}

static void add_ratio(tables_book *book, const char *mode, int n, double published, double ours) {
    tables_add(book, &(struct tables_row){
                         .quantity = "device 0 : another", .mode = mode, .n = n, .reference = published, .ours = ours});
}

static void add_ratios(tables_book *book, struct measured all[PLANS][N_COUNT], int count) {
    static const struct {
        const char *mode;
        int n;
        double first, other; /* MB, as published */
    } published[] = {{"published: huggingface/transformers#279", 0, 4000, 700},
                     {"published: EpipolarPose#22", 0, 10761, 3651},
                     {"published: Balanced-DataParallel#13", 0, 10505, 4958},
                     {"published: Balanced-DataParallel#8", 2, 12179, 5245},
                     {"published: BERT-pytorch#10 (about)", 0, 2, 1}};
    char mode[TEXT_CAPACITY];
    for (int p = 0; p < PLANS; p++) {
        snprintf(mode, sizeof mode, "%s, %s", plans[p].model, plans[p].optimizer);
        for (int i = 1; i < count; i++)
            add_ratio(book, mode, ns[i], NAN, all[p][i].first.bytes[TOTAL] / all[p][i].other.bytes[TOTAL]);
    }
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        add_ratio(book, published[i].mode, published[i].n, published[i].first / published[i].other, NAN);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

ls_status tables_compute_memory(tables_book *book, const tables_settings *settings) {
    struct measured all[PLANS][N_COUNT];
    int count = settings->quick ? 2 : N_COUNT, itemized = count > 2 ? 2 : 1;
    ls_status status = LS_OK;
    for (int p = 0; p < PLANS; p++)
        for (int i = 0; status == LS_OK && i < count; i++)
            status = measure_both(&all[p][i], &plans[p], ns[i], settings->timeout_s);
    if (status != LS_OK) return status;
    tables_group(book, "held");
    for (int p = 0; p < PLANS; p++) {
        for (int i = 0; i < count; i++) {
            const struct measured *m = &all[p][i];
            add_held(book, &plans[p], "DP, device 0", m, &m->first, TABLES_SHOWN);
            if (m->n > 1) add_held(book, &plans[p], "DP, others", m, &m->other, TABLES_SHOWN);
            if (m->n > 1) add_held(book, &plans[p], "DDP, last rank", m, &m->last_rank, TABLES_WITHIN);
        }
    }
    tables_group(book, "surplus");
    tables_text(book, "Item by item, for N = %d: what device 0 has more than another device.", ns[itemized]);
    for (int p = 0; p < PLANS; p++)
        for (int i = 1; i < count; i++) add_surplus(book, &plans[p], &all[p][i], i == itemized);
    tables_group(book, "ratios");
    add_ratios(book, all, count);
    tables_group(book, "precision");
    status = add_precision(book, settings, "mlp", false);
    return status == LS_OK ? add_precision(book, settings, "convnet", true) : status;
}
