/* hosts — the network between the hosts of a job (--hosts): the times of all-reduces of all its ranks.
 *   idea  : the times are a table, for jobs with the same layout. For others, replay's ring over M hosts takes base +
 *           2 (W - 1) hop + 2 (M - 1) network_hop + 2 (W - 1) / W S / network (cost.h). base and hop are the node
 *           file's; a straight line through the message of 64 KiB, which is longer than the messages of one round, and
 *           the largest gives the other two
 *   order : size after size, each four times the last, until a run takes LONGEST_US; rank 0 tells the other ranks the
 *           number of runs, and whether there is a next size
 *   time  : rank 0's clock, from the end of a barrier to its own result: hosts have clocks of their own. A barrier ends
 *           some hops later on another host, which the time of the smallest message includes
 *   fails : rank 0 opens the node file before it joins; the others wait for it until the deadline */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/bytes_text.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/table.h"
#include "ddp_procs/groups.h"
#include "labs/replay/calibrate/calibrate.h"

#define LONGEST_US 1e6
#define ALL_RUNS_US 4e6 /* of a size, but at least LEAST_RUNS */

enum {
    SMALLEST_BYTES = 1 << 10,
    SIZES = 9,
    QUICK_SIZES = 7,
    LINE_FROM = 3,
    LEAST_RUNS = 11,
    MOST_RUNS = 51,
    QUICK_RUNS = 3,
    WARM_UP = 2
};

struct hosts {
    const calibrate_settings *settings;
    ddp_rank self;
    ddp_hosts hosts;
    ls_device *device;
    ls_stream *stream;
    ddp_store *store;
    ddp_groups groups;
    float *buffer;
    calibrate_row rows[SIZES];
    int row_count;
};

/* --- measuring ---------------------------------------------------------------------------------------------------- */

static ls_status time_run(struct hosts *h, size_t count, double *us) {
    ls_comm *comm = h->groups.job;
    for (size_t i = 0; i < count; i++) h->buffer[i] = 1;
    ls_status status = ls_comm_barrier(comm, h->stream);
    if (status == LS_OK) status = ls_stream_synchronize(h->stream);
    double begin_us = ls_now_us();
    if (status == LS_OK) status = ls_comm_all_reduce(comm, h->stream, h->buffer, count, LS_FP32, LS_REDUCE_SUM);
    status = ls_comm_settle(h->stream, status);
    *us = ls_now_us() - begin_us;
    return status;
}

/* Broadcasts rank 0's time to all ranks. */
static ls_status share(struct hosts *h, double *us) {
    float value = (float)*us;
    ls_status status = ls_comm_settle(h->stream, ls_comm_broadcast(h->groups.job, h->stream, &value, 1, LS_FP32, 0));
    *us = value;
    return status;
}

/* *us: the time of the last run before those that count. */
static ls_status time_size(struct hosts *h, uint64_t nbytes, double *us) {
    double runs_us[MOST_RUNS];
    size_t count = nbytes / sizeof(float);
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < WARM_UP; i++) status = time_run(h, count, us);
    if (status == LS_OK) status = share(h, us);
    int runs = (int)fmin(MOST_RUNS, fmax(LEAST_RUNS, ALL_RUNS_US / *us));
    if (h->settings->quick) runs = QUICK_RUNS;
    for (int i = 0; status == LS_OK && i < runs; i++) status = time_run(h, count, &runs_us[i]);
    if (status != LS_OK) return status;
    h->rows[h->row_count++] =
        (calibrate_row){.ranks = h->self.world_size, .bytes = nbytes, .us = calibrate_spread_of(runs_us, runs)};
    return LS_OK;
}

static ls_status time_sizes(struct hosts *h) {
    uint64_t largest = (uint64_t)SMALLEST_BYTES << (2 * ((h->settings->quick ? QUICK_SIZES : SIZES) - 1));
    void *memory = NULL;
    ls_status status = ls_comm_alloc_shared(h->groups.job, h->device, largest, &memory);
    h->buffer = memory;
    double us = 0;
    for (uint64_t nbytes = SMALLEST_BYTES; status == LS_OK && nbytes <= largest && 4 * us <= LONGEST_US; nbytes *= 4) {
        if (h->self.rank == 0) ls_note("all-reduces of %llu KiB", (unsigned long long)nbytes >> 10);
        status = time_size(h, nbytes, &us);
    }
    (void)calibrate_straighten(h->rows, h->row_count);
    return status;
}

/* --- the network -------------------------------------------------------------------------------------------------- */

ls_status calibrate_network(struct ls_node_collectives *network, const calibrate_row *rows, int count, int hosts) {
    if (count < 2) return ls_fail(LS_ERR_INVALID, "all-reduces of 256 KiB take too long to measure a rate");
    const calibrate_row *first = &rows[0], *last = &rows[count - 1];
    double us_per_byte = (last->written_us - first->written_us) / (double)(last->bytes - first->bytes);
    double turns = 2.0 * (first->ranks - 1);
    if (!(us_per_byte > 0))
        return ls_fail(LS_ERR_INVALID, "all-reduces of more bytes take no longer: no rate can be fitted");
    network->network_GBps = calibrate_rate(turns / first->ranks, us_per_byte);
    double latency_us = first->written_us - us_per_byte * (double)first->bytes;
    network->network_hop_us = fmax(0, (latency_us - network->base_us - turns * network->hop_us) / (2.0 * (hosts - 1)));
    return LS_OK;
}

/* Prints each size with the time by the fitted line. */
static ls_status print(const struct hosts *h, const struct ls_node_collectives *network) {
    const ls_column columns[] = {{"all-reduce", LS_RIGHT}, {"median\nus", LS_RIGHT}, {"quartiles\nus", LS_RIGHT},
                                 {"runs", LS_RIGHT},       {"GB/s bus", LS_RIGHT},   {"by the line\nus", LS_RIGHT}};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    double turns = 2.0 * (h->self.world_size - 1);
    double latency_us =
        network->base_us + turns * network->hop_us + 2.0 * (h->hosts.count - 1) * network->network_hop_us;
    printf("\nmeasured: %d ranks on %d hosts, by %s\n\n", h->self.world_size, h->hosts.count,
           ls_comm_backend(h->groups.job));
    for (const calibrate_row *row = h->rows; row < h->rows + h->row_count; row++) {
        char size[LS_BYTES_TEXT_CAPACITY];
        double bus_bytes = calibrate_bus_bytes(LS_NODE_ALL_REDUCE, row);
        ls_bytes_text(size, (double)row->bytes);
        ls_table_cell(table, "%s", size);
        ls_table_cell(table, "%.1f", row->us.median);
        ls_table_cell(table, "%.1f .. %.1f", row->us.low, row->us.high);
        ls_table_cell(table, "%d", row->us.runs);
        ls_table_cell(table, "%.4f", calibrate_rate(bus_bytes, row->us.median));
        ls_table_cell(table, "%.1f", latency_us + bus_bytes / (network->network_GBps * 1e3));
    }
    status = ls_table_finish(table, stdout);
    printf("\nwritten: network_hop_us %.4g, network_GBps %.4g\n", network->network_hop_us, network->network_GBps);
    return status;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void put(cJSON *object, const char *name, cJSON *value) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, name);
    cJSON_AddItemToObject(object, name, value);
}

static cJSON *table_of(const struct hosts *h) {
    cJSON *table = cJSON_CreateArray();
    for (const calibrate_row *r = h->rows; r < h->rows + h->row_count; r++) {
        const double row[3] = {r->ranks, (double)r->bytes, calibrate_digits(r->written_us)};
        cJSON_AddItemToArray(table, cJSON_CreateDoubleArray(row, 3));
    }
    return table;
}

static void put_figures(cJSON *root, const struct hosts *h, const struct ls_node_collectives *network,
                        const char *date) {
    cJSON *collectives = cJSON_GetObjectItemCaseSensitive(root, "collectives");
    cJSON *sources = cJSON_GetObjectItemCaseSensitive(root, "sources");
    char text[400];
    snprintf(text, sizeof text,
             "measured %s between %d hosts, all-reduces of %d ranks by %s, medians of %d runs or more; the line goes "
             "through 64 KiB and the largest",
             date, h->hosts.count, h->self.world_size, ls_comm_backend(h->groups.job),
             h->rows[h->row_count - 1].us.runs);
    put(collectives, "network_hop_us", cJSON_CreateNumber(calibrate_digits(network->network_hop_us)));
    put(collectives, "network_GBps", cJSON_CreateNumber(calibrate_digits(network->network_GBps)));
    put(collectives, "network_all_reduce_us", table_of(h));
    put(sources, "collectives.network_hop_us", cJSON_CreateString(text));
    put(sources, "collectives.network_GBps", cJSON_CreateString(text));
    put(sources, "collectives.network_all_reduce_us", cJSON_CreateString(text));
}

static ls_status write_network(const struct hosts *h, const struct ls_node_collectives *network, const char *date) {
    const char *path = h->settings->out;
    ls_json *json;
    ls_status status = ls_json_open(&json, path);
    if (status != LS_OK) return status;
    cJSON *root = cJSON_Duplicate(ls_json_root(json), true);
    if (root) put_figures(root, h, network, date);
    status = calibrate_write_text(path, root ? cJSON_Print(root) : NULL);
    cJSON_Delete(root);
    ls_json_close(json);
    return status;
}

/* --- the job ------------------------------------------------------------------------------------------------------ */

static ls_status refuse_one_host(int ranks) {
    return ls_fail(LS_ERR_USAGE,
                   "--hosts measures the network between the hosts of a job, but this job has %d rank%s on one host: "
                   "start calibrate with ddprun --nnodes M on each",
                   ranks, ranks == 1 ? "" : "s");
}

/* Rank 0 needs a file to write into. Sets `network` to the file's figures within a node. */
static ls_status begin(struct hosts *h, struct ls_node_collectives *network) {
    const ddp_rank *self = &h->self;
    ls_node *node;
    ls_status status = ddp_rank_discover(&h->self);
    if (status != LS_OK) return status;
    if (!self->launched) return refuse_one_host(1);
    if (self->rank > 0) return LS_OK;
    status = ls_node_open(&node, h->settings->out);
    if (status != LS_OK)
        return ls_fail(status, "--hosts adds the network to a node file: measure the machine first, without --hosts");
    *network = *ls_node_collectives(node);
    ls_node_close(node);
    return LS_OK;
}

static ls_status join(struct hosts *h) {
    ls_device_options device = {.kind = LS_DEVICE_CPU,
                                .index = h->self.local_rank,
                                .place = h->self.local_rank,
                                .devices_on_node = h->self.local_world_size};
    ls_status status = ls_device_open(&h->device, &device);
    if (status == LS_OK) status = ls_device_bind_thread(h->device);
    if (status == LS_OK) status = ddp_store_open(&h->store, &h->self, h->settings->timeout_s);
    if (status == LS_OK) status = ddp_hosts_find(&h->hosts, h->store, &h->self, 0);
    if (status == LS_OK && h->hosts.count < 2) status = refuse_one_host(h->self.world_size);
    if (status != LS_OK) return status;
    ls_bootstrap bootstrap = ddp_store_bootstrap(h->store);
    const ddp_groups_options options = {
        .rank = h->self.rank,
        .world_size = h->self.world_size,
        .local_ranks = h->self.local_world_size,
        .sizes = {[LS_MESH_TENSOR] = 1, [LS_MESH_DATA] = h->self.world_size, [LS_MESH_PIPELINE] = 1},
        .bootstrap = &bootstrap,
        .timeout_s = h->settings->timeout_s,
        .device = h->device,
        .hosts = &h->hosts};
    h->stream = ls_device_stream(h->device, LS_STREAM_COMM);
    return ddp_groups_join(&h->groups, &options);
}

ls_status calibrate_hosts(const calibrate_settings *settings, const bench_machine *machine) {
    struct hosts h = {.settings = settings};
    struct ls_node_collectives network = {0};
    ls_status status = begin(&h, &network);
    if (status == LS_OK) ls_log_init("calibrate", h.self.rank, settings->quiet);
    if (status == LS_OK) status = join(&h);
    if (status == LS_OK) status = time_sizes(&h);
    if (status == LS_OK && h.self.rank == 0) {
        status = calibrate_network(&network, h.rows + LINE_FROM, h.row_count - LINE_FROM, h.hosts.count);
        if (status == LS_OK) status = print(&h, &network);
        if (status == LS_OK) status = write_network(&h, &network, machine->date);
    }
    ddp_groups_leave(&h.groups);
    ddp_store_close(h.store);
    ls_device_close(h.device);
    return status;
}
