/* output — the measurements, as text and as a node file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/bytes_text.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/table.h"
#include "labs/replay/calibrate/calibrate.h"

enum { SOURCE_CAPACITY = 400 };

/* --- for people --------------------------------------------------------------------------------------------------- */

static void put_row(ls_table *table, const char *what, const calibrate_spread *us, double amount, const char *unit) {
    ls_table_cell(table, "%s", what);
    ls_table_cell(table, "%.3f", us->median);
    ls_table_cell(table, "%.3f .. %.3f", us->low, us->high);
    ls_table_cell(table, "%.3f", us->fast);
    ls_table_cell(table, "%d", us->runs);
    if (amount > 0) {
        ls_table_cell(table, "%.2f %s", calibrate_rate(amount, us->median), unit);
    } else {
        ls_table_cell(table, "%s", "");
    }
}

static const struct {
    const char *text, *table; /* as printed, and as the member of the node file */
} operations[LS_NODE_OPERATIONS] = {[LS_NODE_ALL_REDUCE] = {"all-reduce", "all_reduce_us"},
                                    [LS_NODE_ALL_GATHER] = {"all-gather", "all_gather_us"},
                                    [LS_NODE_REDUCE_SCATTER] = {"reduce-scatter", "reduce_scatter_us"}};

static void put_collectives(ls_table *table, const calibrate_figures *f, enum ls_node_operation operation) {
    char what[128], size[LS_BYTES_TEXT_CAPACITY];
    const calibrate_table *measured = &f->tables[operation];
    for (const calibrate_row *row = measured->rows; row < measured->rows + measured->row_count; row++) {
        ls_bytes_text(size, (double)row->bytes);
        snprintf(what, sizeof what, "%s of %s, %d ranks", operations[operation].text, size, row->ranks);
        put_row(table, what, &row->us, calibrate_bus_bytes(operation, row), "GB/s bus");
    }
}

static void put_all(ls_table *table, const calibrate_figures *f) {
    char what[80], size[LS_BYTES_TEXT_CAPACITY];
    for (int i = 0; i < f->batch_count; i++) {
        snprintf(what, sizeof what, "fp32 layer of %d x %d, %d samples", f->width, f->width, f->batches[i]);
        put_row(table, what, &f->fp32_us[i], f->gemm_flops[i], "GFLOP/s");
    }
    for (int i = 0; i < f->batch_count; i++) {
        snprintf(what, sizeof what, "bf16 layer of %d x %d, %d samples", f->width, f->width, f->batches[i]);
        put_row(table, what, &f->bf16_us[i], f->gemm_flops[i], "GFLOP/s");
    }
    for (int i = 0; i < CALIBRATE_PASSES; i++) {
        ls_bytes_text(size, f->pass_of_bytes[i]);
        snprintf(what, sizeof what, "pass over %s of memory%s", size,
                 2 * f->pass_of_bytes[i] > f->pass_bytes[i] ? ", by pieces" : "");
        put_row(table, what, &f->pass_us[i], f->pass_bytes[i], "GB/s");
    }
    char copy[96];
    ls_bytes_text(size, f->copy_bytes);
    snprintf(copy, sizeof copy, "copy of %s between devices", size);
    put_row(table, "launch of an operation", &f->launch_us, 0, "");
    put_row(table, "the smallest operation, launch included", &f->smallest_us, 0, "");
    put_row(table, "event: a record, or a stream's wait", &f->event_us, 0, "");
    put_row(table, "synchronize with a stream that is done", &f->sync_us, 0, "");
    put_row(table, "hand-off between two threads, one way", &f->hand_over_us, 0, "");
    put_row(table, "the same to one that has not gone to sleep", &f->awake_us, 0, "");
    put_row(table, "collective operation of one rank", &f->collective_us, 0, "");
    put_row(table, "smallest copy between devices", &f->copy_smallest_us, 0, "");
    put_row(table, copy, &f->copy_us, f->copy_bytes, "GB/s");
    if (f->cores > 1) put_row(table, "the same beside one the other way", &f->copy_both_us, f->copy_bytes, "GB/s");
    if (f->taken_bytes > 0) {
        ls_bytes_text(size, f->taken_bytes);
        snprintf(what, sizeof what, "writing %s that another core has read", size);
        put_row(table, what, &f->taken_us, f->taken_bytes, "GB/s");
        put_row(table, "writing them once more", &f->kept_us, f->taken_bytes, "GB/s");
    }
    for (int o = 0; o < LS_NODE_OPERATIONS; o++) put_collectives(table, f, (enum ls_node_operation)o);
}

/* Prints the file's factor and, if it differs from the measured one, why. */
static void print_factor(const char *what, double measured, double written) {
    printf("  %s: %.2f times as long", what, written);
    if (measured < written) printf(" (measured %.2f, but nothing gets faster by that: chance)", measured);
    puts("");
}

static void print_sharing(const calibrate_figures *f) {
    if (f->cores == 1) {
        puts("\none core: the ranks of an all-reduce and both threads of a hand-off share it; what devices do to each\n"
             "other was not measured");
        return;
    }
    struct calibrate_node node = calibrate_conclude(f);
    printf("\nwritten, for work beside others (median of up to %d ratios, each of two runs one after the other):\n",
           f->shared_runs);
    print_factor("products while all devices do the same", f->products_crowded, node.device.product_crowding);
    print_factor("passes over memory while all devices do the same", f->passes_crowded, node.device.memory_crowding);
    print_factor("products while another device copies", f->products_beside_copies, node.collectives.slow_down);
}

static void print_rates(const calibrate_figures *f) {
    struct calibrate_node node = calibrate_conclude(f);
    char size[LS_BYTES_TEXT_CAPACITY];
    ls_bytes_text(size, f->pass_of_bytes[f->node_pass]);
    printf("\nwritten rates, from medians: what the machine does, with whatever else it does\n"
           "  products: fp32 %.4g GFLOP/s, bf16 %.4g GFLOP/s, each the best of its sizes; of fewer samples:",
           node.device.fp32_GFLOPs, node.device.fp16_GFLOPs);
    for (int i = 0; i < node.device.product_count; i++)
        printf("%s%.0f %% of %g", i % 6 == 0 ? "\n  " : ", ", 100 * node.device.products[i].share,
               node.device.products[i].rows);
    printf("\n  memory: %.4g GB/s, the pass over %s%s\n", node.device.memory_GBps, size,
           f->beyond_cache ? "" : "; for networks that no cache holds: --beyond-cache");
    for (int o = 0; o < LS_NODE_OPERATIONS; o++)
        if (f->tables[o].straightened > 0)
            printf("  %d of %d %ss took longer than a larger one (disturbed): the file has the larger one's time\n",
                   f->tables[o].straightened, f->tables[o].row_count, operations[o].text);
    if (calibrate_is_rough(f))
        puts("\nrough: the machine was busy. A quarter of the products of 256 samples, or of the copies, took more "
             "than\n"
             "1.5 times as long as the fastest tenth, or of the hand-offs more than 3 times. The file says so, too;\n"
             "measure again when nothing else runs");
}

ls_status calibrate_print(const calibrate_figures *f, const bench_machine *machine) {
    const ls_column columns[] = {{"measured", LS_LEFT},           {"median\nus", LS_RIGHT}, {"quartiles\nus", LS_RIGHT},
                                 {"fastest tenth\nus", LS_RIGHT}, {"runs", LS_RIGHT},       {"rate", LS_RIGHT}};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    put_all(table, f);
    printf("\nmeasured on %s, %d core%s, by %d CPU devices; rates by the median; a layer is its three products:\n"
           "forward, gradients of the input, gradients of the weights\n\n",
           machine->cpu, f->cores, f->cores == 1 ? "" : "s", f->devices);
    status = ls_table_finish(table, stdout);
    print_sharing(f);
    print_rates(f);
    return status;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

double calibrate_digits(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    return strtod(text, NULL);
}

static void add_number(cJSON *object, const char *name, double value) {
    cJSON_AddNumberToObject(object, name, calibrate_digits(value));
}

static cJSON *add_object(cJSON *root, const char *name) { return cJSON_AddObjectToObject(root, name); }

static void add_figures(cJSON *root, const struct calibrate_node *node) {
    cJSON *device = add_object(root, "device"), *host = add_object(root, "host");
    cJSON_AddStringToObject(device, "name", node->device.name);
    add_number(device, "fp32_GFLOPs", node->device.fp32_GFLOPs);
    add_number(device, "fp16_GFLOPs", node->device.fp16_GFLOPs);
    add_number(device, "memory_GBps", node->device.memory_GBps);
    add_number(device, "kernel_us", node->device.kernel_us);
    add_number(device, "memory_bytes", 0);
    cJSON *shares = cJSON_AddArrayToObject(device, "product_shares");
    for (int i = 0; i < node->device.product_count; i++) {
        const struct ls_node_product *product = &node->device.products[i];
        const double row[2] = {product->rows, calibrate_digits(product->share)};
        cJSON_AddItemToArray(shares, cJSON_CreateDoubleArray(row, 2));
    }
    add_number(device, "product_crowding", node->device.product_crowding);
    add_number(device, "memory_crowding", node->device.memory_crowding);
    if (isfinite(node->device.reclaim_GBps)) {
        add_number(device, "reclaim_GBps", node->device.reclaim_GBps);
        cJSON_AddNumberToObject(device, "reclaim_bytes", (double)node->device.reclaim_bytes);
    }
    add_number(host, "launch_us", node->host.launch_us);
    add_number(host, "event_us", node->host.event_us);
    add_number(host, "sync_us", node->host.sync_us);
    add_number(host, "hand_over_us", node->host.hand_over_us);
    add_number(host, "spin_us", node->host.spin_us);
    add_number(host, "awake_us", node->host.awake_us);
    add_number(host, "collective_us", node->host.collective_us);
    add_number(host, "lock_us", 0);
    cJSON_AddBoolToObject(host, "runs_compute", node->host.runs_compute);
    add_number(host, "cores", (double)node->host.cores);
}

static void add_links(cJSON *root, const struct calibrate_node *node, int devices) {
    cJSON *links = cJSON_AddArrayToObject(root, "links");
    for (int d = 0; d < devices; d++) {
        char name[32];
        cJSON *link = cJSON_CreateObject();
        cJSON_AddItemToArray(links, link);
        snprintf(name, sizeof name, "memory%d", d);
        cJSON_AddStringToObject(link, "name", name);
        snprintf(name, sizeof name, "gpu%d", d);
        cJSON_AddStringToObject(link, "from", name);
        cJSON_AddStringToObject(link, "to", "host");
        add_number(link, "GBps", node->link.GBps);
        add_number(link, "latency_us", node->link.latency_us);
        cJSON_AddBoolToObject(link, "duplex", node->link.duplex);
    }
}

static void add_collectives(cJSON *root, const struct calibrate_node *node, const calibrate_figures *f) {
    cJSON *collectives = add_object(root, "collectives");
    add_number(collectives, "base_us", node->collectives.base_us);
    add_number(collectives, "hop_us", node->collectives.hop_us);
    add_number(collectives, "bus_GBps", node->collectives.bus_GBps);
    add_number(collectives, "all_gather_GBps", node->collectives.all_gather_GBps);
    add_number(collectives, "reduce_scatter_GBps", node->collectives.reduce_scatter_GBps);
    add_number(collectives, "slow_down", node->collectives.slow_down);
    for (int o = 0; o < LS_NODE_OPERATIONS; o++) {
        cJSON *table = cJSON_AddArrayToObject(collectives, operations[o].table);
        for (const calibrate_row *r = f->tables[o].rows; r < f->tables[o].rows + f->tables[o].row_count; r++) {
            const double row[3] = {r->ranks, (double)r->bytes, calibrate_digits(r->written_us)};
            cJSON_AddItemToArray(table, cJSON_CreateDoubleArray(row, 3));
        }
    }
}

/* The number of runs of the shortest message, and of the longest. */
static int least_runs(const calibrate_figures *f, int operation) { return f->tables[operation].rows[0].us.runs; }
static int most_runs(const calibrate_figures *f, int operation) {
    return f->tables[operation].rows[f->tables[operation].row_count - 1].us.runs;
}

static void add_sources(cJSON *root, const calibrate_figures *f, const bench_machine *machine) {
    cJSON *sources = add_object(root, "sources"), *device = cJSON_GetObjectItemCaseSensitive(root, "device");
    const char *one_core = f->cores > 1 ? "" : "; one core, which all share";
    const struct {
        const char *figure;
        int runs;
        const char *what;
    } rows[] = {
        {"device.fp32_GFLOPs", f->fp32_us[CALIBRATE_MAIN_BATCH].runs,
         "forward and gradients of a layer, the best rate of all numbers of samples"},
        {"device.fp16_GFLOPs", f->bf16_us[CALIBRATE_MAIN_BATCH].runs, "the same in bf16"},
        {"device.memory_GBps", f->pass_us[f->node_pass].runs, "a pass of ls_scale, which reads and writes"},
        {"device.kernel_us", f->smallest_us.runs, "ls_fill of 16 floats, less a launch"},
        {"device.memory_bytes", 0, "not known: devices share the machine's memory"},
        {"device.product_shares", f->fp32_us[CALIBRATE_MAIN_BATCH].runs,
         "layers of so many samples, by that rate; what took longer than more samples gets their time"},
        {"device.product_crowding", f->shared_runs,
         "layers of 64 samples on all devices at once, by one alone just before"},
        {"device.memory_crowding", f->shared_runs,
         "passes over memory on all devices at once, by one alone just before"},
        {"device.reclaim_GBps", f->taken_us.runs, "a pass over what another core has copied, less the next one"},
        {"device.reclaim_bytes", 0, "a core's own cache (level 2), as the system tells; otherwise 1 MiB"},
        {"host.launch_us", f->launch_us.runs, "an operation that does nothing"},
        {"host.event_us", f->event_us.runs, "half of a record and a stream's wait"},
        {"host.sync_us", f->sync_us.runs, "ls_stream_synchronize with nothing to wait for"},
        {"host.hand_over_us", f->hand_over_us.runs, "two threads and two flags, half of there and back"},
        {"host.spin_us", 0, "the programs' own: cores.h"},
        {"host.awake_us", f->awake_us.runs, "the same with waits too short to go to sleep"},
        {"host.collective_us", f->collective_us.runs, "all_reduce of a float by a group of one"},
        {"host.lock_us", 0, "the programs are in C: there is no lock"},
        {"host.runs_compute", 0, "CPU devices run compute inside of the launching call"},
        {"host.cores", 0, "what this process may use"},
        {"links.GBps", f->copy_us.runs, "copies between two devices' memory"},
        {"links.latency_us", f->copy_smallest_us.runs, "copies of 64 bytes, half for each of the two links"},
        {"collectives.base_us", least_runs(f, LS_NODE_ALL_REDUCE),
         "least squares over 2 (ranks - 1) of all-reduces of 1 KiB"},
        {"collectives.hop_us", least_runs(f, LS_NODE_ALL_REDUCE), "the same fit"},
        {"collectives.bus_GBps", most_runs(f, LS_NODE_ALL_REDUCE), "the largest all-reduce of the table"},
        {"collectives.all_gather_GBps", most_runs(f, LS_NODE_ALL_GATHER), "the largest all-gather of the table"},
        {"collectives.reduce_scatter_GBps", most_runs(f, LS_NODE_REDUCE_SCATTER),
         "the largest reduce-scatter of the table"},
        {"collectives.slow_down", f->shared_runs,
         "products beside another device's copies, by products alone just before"},
        {"collectives.all_reduce_us", least_runs(f, LS_NODE_ALL_REDUCE),
         "processes over shared memory, fewer runs for the largest; what took longer than a larger one gets its time"},
        {"collectives.all_gather_us", least_runs(f, LS_NODE_ALL_GATHER),
         "the same; before each a rank writes its own part"},
        {"collectives.reduce_scatter_us", least_runs(f, LS_NODE_REDUCE_SCATTER), "the same; each writes all parts"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[SOURCE_CAPACITY];
        const char *of_device = strncmp(rows[i].figure, "device.", 7) == 0 ? rows[i].figure + 7 : NULL;
        if (of_device && !cJSON_HasObjectItem(device, of_device)) continue; /* nothing to take back */
        if (rows[i].runs > 0) {
            snprintf(text, sizeof text, "measured %s on CPU (%.60s, %d core%s), median of %d runs, %s: %s%s",
                     machine->date, machine->cpu, f->cores, f->cores == 1 ? "" : "s", rows[i].runs,
                     f->beyond_cache ? "beyond caches" : "in caches", rows[i].what, one_core);
        } else {
            snprintf(text, sizeof text, "%s", rows[i].what);
        }
        cJSON_AddStringToObject(sources, rows[i].figure, text);
    }
}

static char *make_text(const calibrate_figures *f, const bench_machine *machine) {
    struct calibrate_node node = calibrate_conclude(f);
    char description[SOURCE_CAPACITY];
    cJSON *root = cJSON_CreateObject();
    snprintf(description, sizeof description, "this machine's CPU devices (%.60s, %d core%s), as measured %s, %s%s",
             machine->cpu, f->cores, f->cores == 1 ? "" : "s", machine->date,
             f->beyond_cache ? "beyond caches" : "in caches",
             calibrate_is_rough(f) ? "; rough: the machine was busy" : "");
    cJSON_AddStringToObject(root, "description", description);
    add_number(root, "devices", f->devices);
    add_figures(root, &node);
    add_links(root, &node, f->devices);
    add_collectives(root, &node, f);
    add_sources(root, f, machine);
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    return text;
}

ls_status calibrate_write(const calibrate_figures *f, const bench_machine *machine, const char *path) {
    return calibrate_write_text(path, make_text(f, machine));
}

ls_status calibrate_write_text(const char *path, char *text) {
    ls_node *node;
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the node file");
    ls_status status = ls_node_parse(&node, path, text, strlen(text)); /* a text that is no node is not written */
    if (status == LS_OK) {
        ls_node_close(node);
        status = ls_file_write_text(path, text);
    }
    cJSON_free(text);
    return status;
}
