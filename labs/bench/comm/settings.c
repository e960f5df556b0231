/* settings: the command line. Lists of names are checked against the tables of operations and algorithms, so a new row
 * of either table is accepted without a change here. */
#define _GNU_SOURCE
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/base/room.h"
#include "common/comm/mpi_plugin.h"
#include "labs/bench/comm/bench_comm.h"
#include "labs/bench/shared/settings.h"

static const char *const backends[] = {"shm", "threads", "mpi", "all", NULL};
static const char *const buffers[] = {"shared", "private", "both", NULL};
static const char *const reductions[] = {"sum", "min", "max", NULL};
static const char *const dtypes[] = {"fp32", "fp16", "bf16", "int32", "int64", "fp64", NULL};

enum { COMPARE_ROUNDS = 3 };

/* The indices of the two tables above. */
enum { BACKEND_SHM, BACKEND_THREADS, BACKEND_MPI, BACKEND_ALL };
enum { BUFFERS_SHARED, BUFFERS_PRIVATE, BUFFERS_BOTH };

#define CACHE_BYTES ((size_t)32 << 20)

/* --- the machine's cache ----------------------------------------------------------------------------------------------- */

/* The size of the outermost level; 32 MiB if unknown. */
static size_t last_level_cache_bytes(void) {
    static const hwloc_obj_type_t levels[] = {HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE,
                                              HWLOC_OBJ_L5CACHE};
    size_t nbytes = 0;
    hwloc_topology_t topology;
    if (ls_address_space_left() < LS_ROOM_BESIDE_THREADS || hwloc_topology_init(&topology) != 0) return CACHE_BYTES;
    bool loaded = hwloc_topology_load(topology) == 0;
    for (size_t i = 0; loaded && i < sizeof levels / sizeof *levels; i++) {
        hwloc_obj_t cache = hwloc_get_obj_by_type(topology, levels[i], 0);
        if (cache && cache->attr->cache.size > 0) nbytes = (size_t)cache->attr->cache.size;
    }
    hwloc_topology_destroy(topology);
    return nbytes > 0 ? nbytes : CACHE_BYTES;
}

/* --- sizes ------------------------------------------------------------------------------------------------------------- */

/* Reads "64M" at the beginning of *text, and advances *text. False: there is no size. */
static bool take_size(const char **text, size_t *nbytes) {
    static const char units[] = "KMG";
    char *end;
    if (**text < '0' || **text > '9') return false;
    errno = 0;
    unsigned long long value = strtoull(*text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    *text = unit ? end + 1 : end;
    if (errno != 0 || value == 0 || value > (SIZE_MAX >> 8) >> shift) return false;
    *nbytes = (size_t)value << shift;
    return true;
}

static ls_status add_size(comm_settings *settings, size_t nbytes) {
    if (settings->size_count == COMM_SIZES_MAX)
        return ls_fail(LS_ERR_USAGE, "--sizes: too many sizes; expected at most %d", COMM_SIZES_MAX);
    settings->sizes[settings->size_count++] = nbytes;
    return LS_OK;
}

static int compare_sizes(const void *left, const void *right) {
    size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return (a > b) - (a < b);
}

static void sort_sizes(comm_settings *settings) {
    qsort(settings->sizes, (size_t)settings->size_count, sizeof settings->sizes[0], compare_sizes);
    int kept = 0;
    for (int i = 0; i < settings->size_count; i++)
        if (i == 0 || settings->sizes[i] != settings->sizes[kept - 1]) settings->sizes[kept++] = settings->sizes[i];
    settings->size_count = kept;
}

/* Reads ":64M" or ":64M:2" after the first size. */
static ls_status add_range(comm_settings *settings, const char *all, const char *text, size_t from) {
    size_t to, factor = 4;
    text++;
    bool good = take_size(&text, &to);
    if (good && *text == ':') {
        text++;
        good = take_size(&text, &factor);
    }
    if (!good || *text != '\0' || factor < 2 || from > to)
        return ls_fail(LS_ERR_USAGE, "--sizes: expected FROM:TO or FROM:TO:FACTOR, as in 8:64M:2, found '%s'", all);
    ls_status status = LS_OK;
    for (size_t nbytes = from; status == LS_OK && nbytes <= to; nbytes *= factor) status = add_size(settings, nbytes);
    return status;
}

ls_status comm_parse_sizes(comm_settings *settings, const char *text) {
    const char *at = text;
    ls_status status = LS_OK;
    settings->size_count = 0;
    for (;;) {
        size_t nbytes;
        if (!take_size(&at, &nbytes))
            return ls_fail(LS_ERR_USAGE,
                           "--sizes: expected a list of sizes, as in 8,1K,64M, or a range, as in 8:64M, found '%s'",
                           text);
        if (*at == ':' && settings->size_count == 0) return add_range(settings, text, at, nbytes);
        status = add_size(settings, nbytes);
        if (status != LS_OK || *at == '\0') break;
        if (*at++ != ',') return ls_fail(LS_ERR_USAGE, "--sizes: expected a comma after each size in '%s'", text);
    }
    sort_sizes(settings);
    return status;
}

/* --- names ------------------------------------------------------------------------------------------------------------- */

/* Reads the name at the beginning of *list, and advances *list past the comma, or sets it to NULL at the end. */
static void take_name(const char **list, char name[64]) {
    size_t nbytes = strcspn(*list, ",");
    snprintf(name, 64, "%.*s", (int)(nbytes < 64 ? nbytes : 63), *list);
    *list = (*list)[nbytes] == ',' ? *list + nbytes + 1 : NULL;
}

static ls_status add_case(comm_settings *settings, const comm_operation *operation, const char *algorithm) {
    int count = settings->flight_cost && comm_is_all_reduce(operation) ? 2 : 1;
    for (int c = 0; c < settings->case_count; c++)
        if (settings->cases[c].operation == operation && strcmp(settings->cases[c].algorithm, algorithm) == 0)
            return LS_OK;
    if (settings->case_count + count > COMM_CASES_MAX)
        return ls_fail(LS_ERR_USAGE, "--op, --allreduce: too many operations; expected at most %d together",
                       COMM_CASES_MAX);
    for (int i = 0; i < count; i++)
        settings->cases[settings->case_count++] = (comm_case){operation, algorithm, .unrecorded = i > 0};
    return LS_OK;
}

static ls_status add_algorithms(comm_settings *settings, const comm_operation *operation, const char *list) {
    ls_status status = LS_OK;
    if (strcmp(list, "all") == 0) {
        for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; status == LS_OK && row->name; row++)
            status = add_case(settings, operation, row->name);
        return status;
    }
    while (status == LS_OK && list) {
        char name[64];
        take_name(&list, name);
        const ls_allreduce_algorithm *row = ls_allreduce_find(name);
        if (!row) {
            char known[256];
            ls_allreduce_names(known, sizeof known);
            return ls_fail(LS_ERR_USAGE, "--allreduce: unknown algorithm '%s'; expected all, %s", name, known);
        }
        status = add_case(settings, operation, row->name);
    }
    return status;
}

static ls_status add_operations(comm_settings *settings, const char *list, const char *algorithms) {
    ls_status status = LS_OK;
    bool all = strcmp(list, "all") == 0;
    const comm_operation *row = comm_operations;
    while (status == LS_OK && (all ? row->name != NULL : list != NULL)) {
        const comm_operation *operation = row;
        char name[64];
        if (all) row++;
        if (!all) {
            take_name(&list, name);
            operation = comm_operation_find(name);
        }
        if (!operation) {
            char known[256] = "all";
            for (row = comm_operations; row->name; row++)
                snprintf(known + strlen(known), sizeof known - strlen(known), ", %s", row->name);
            return ls_fail(LS_ERR_USAGE, "--op: unknown operation '%s'; expected %s", name, known);
        }
        status = comm_is_all_reduce(operation) ? add_algorithms(settings, operation, algorithms)
                                               : add_case(settings, operation, "");
    }
    return status;
}

/* --- the command line -------------------------------------------------------------------------------------------------- */

struct choices {
    const char *operations, *algorithms, *sizes;
    int backend, buffers, dtype, reduce;
};

/* clang-format off */
static ls_status parse(comm_settings *s, struct choices *c, int argc, char **argv, bool *help) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is measured"},
        {.kind = LS_OPTION_STRING, .name = "op", .to.text = &c->operations, .argument = "NAME,NAME,...",
         .help = "all_reduce, broadcast, reduce, all_gather, reduce_scatter, gather, scatter, send_recv, barrier, or "
                 "all"},
        {.kind = LS_OPTION_STRING, .name = "allreduce", .to.text = &c->algorithms, .argument = "NAME,NAME,...",
         .help = "all-reduce algorithms, or all"},
        {.kind = LS_OPTION_INT_LIST, .name = "n", .to.list = &s->n, .argument = "N,N,...",
         .limits = LS_BETWEEN(2, LS_COMM_MAX_RANKS), .help = "numbers of ranks", .empty = "2,4"},
        {.kind = LS_OPTION_STRING, .name = "sizes", .to.text = &c->sizes, .argument = "SIZES",
         .help = "bytes: FROM:TO, each size four times the last, or FROM:TO:FACTOR, or a list 8,1K,64M"},
        {.kind = LS_OPTION_CHOICE, .name = "dtype", .to.number = &c->dtype, .choices = dtypes,
         .help = "type of the elements"},
        {.kind = LS_OPTION_CHOICE, .name = "reduce", .to.number = &c->reduce, .choices = reductions,
         .help = "reduction"},
        {.kind = LS_OPTION_HEADING, .help = "Where"},
        {.kind = LS_OPTION_CHOICE, .name = "backend", .to.number = &c->backend, .choices = backends,
         .help = "ranks: shm: processes; threads: threads; mpi: processes, with messages over Open MPI"},
        {.kind = LS_OPTION_CHOICE, .name = "buffers", .to.number = &c->buffers, .choices = buffers,
         .help = "with shm: buffers in the group's shared memory, as DDP's gradients are, or in each rank's own"},
        {.kind = LS_OPTION_FLAG, .name = "compare", .to.flag = &s->compare,
         .help = "all_reduce of Open MPI and of gloo beside ours, where they are installed"},
        {.kind = LS_OPTION_FLAG, .name = "flight-cost", .to.flag = &s->flight_cost,
         .help = "run each all_reduce also without the flight record, in turns, and print the difference"},
        {.kind = LS_OPTION_HEADING, .help = "How it is measured"},
        {.kind = LS_OPTION_INT, .name = "runs", .to.number = &s->runs, .argument = "R",
         .limits = LS_BETWEEN(1, COMM_RUNS_MAX), .help = "runs of each row; the figures are medians",
         .empty = "7; with --compare 9"},
        {.kind = LS_OPTION_DOUBLE, .name = "run-ms", .to.real = &s->run_ms, .argument = "MS", .limits = LS_ABOVE(0),
         .help = "length of a run in milliseconds: as many operations as fit, at least one"},
        {.kind = LS_OPTION_BYTES, .name = "cache", .to.nbytes = &s->cache_bytes, .argument = "BYTES",
         .limits = LS_BETWEEN(0, (double)((size_t)1 << 40)),
         .help = "size of the last-level cache: all ranks' buffers rotate over twice that; 0: the same buffers each "
                 "time"},
        {.kind = LS_OPTION_FLAG, .name = "check", .to.flag = &s->check_only,
         .help = "check results and counts only; measure no times"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &s->timeout_s, .argument = "SECONDS",
         .limits = LS_ABOVE(0), .help = "deadline of every wait for another rank, in seconds"},
        {.kind = LS_OPTION_HEADING, .help = "What is written"},
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->folder, .argument = "DIR",
         .help = "comm.csv and comm.json go there"},
        {.kind = LS_OPTION_STRING, .name = "json", .to.text = &s->json, .argument = "FILE", .help = "the JSON, too"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &s->quiet, .help = "no progress, no notes"},
    };
    return BENCH_PARSE(table, "Measures the collective operations over sizes, numbers of ranks and all-reduce "
                               "algorithms, and checks every result.", argc, argv, help);
}
/* clang-format on */

/* Sorts the N and removes duplicates; sets the default if there are none. */
static void settle_n(comm_settings *settings) {
    ls_int_list *n = &settings->n;
    if (n->count == 0) *n = (ls_int_list){.count = 2, .values = {2, 4}};
    bench_sort_numbers(n);
}

static ls_status settle_variants(comm_settings *settings, const struct choices *choices) {
    bool all = choices->backend == BACKEND_ALL, shm = all || choices->backend == BACKEND_SHM;
    char why[600];
    bool has_mpi = (all || choices->backend == BACKEND_MPI) && ls_mpi_carrier(why, sizeof why);
    if (choices->backend == BACKEND_MPI && !has_mpi) return ls_fail(LS_ERR_UNSUPPORTED, "--backend mpi: %s", why);
    settings->variants[COMM_MPI] = has_mpi;
    settings->variants[COMM_SHM_SHARED] = shm && choices->buffers != BUFFERS_PRIVATE;
    settings->variants[COMM_SHM_PRIVATE] = shm && choices->buffers != BUFFERS_SHARED;
    settings->variants[COMM_THREADS] = all || choices->backend == BACKEND_THREADS;
    if (!(settings->timeout_s <= LS_COMM_LONGEST_TIMEOUT_S))
        return ls_fail(LS_ERR_USAGE, "--timeout is out of range; expected at most %g s", LS_COMM_LONGEST_TIMEOUT_S);
    if (settings->compare && (settings->dtype != LS_FP32 || settings->reduce != LS_REDUCE_SUM))
        return ls_fail(LS_ERR_USAGE, "--compare sums fp32; leave --dtype and --reduce out");
    for (int s = 0; settings->compare && s < settings->size_count; s++)
        if (settings->sizes[s] % 4 != 0)
            return ls_fail(LS_ERR_USAGE, "--compare: %zu bytes are not a multiple of an fp32", settings->sizes[s]);
    return LS_OK;
}

ls_status comm_parse(comm_settings *settings, int argc, char **argv, bool *help) {
    struct choices choices = {.operations = "all", .algorithms = "all", .sizes = "8:64M"};
    *settings = (comm_settings){.run_ms = 5,
                                .timeout_s = 60,
                                .folder = "build/results",
                                .cores = ls_usable_cores(),
                                .cache_bytes = last_level_cache_bytes()};
    ls_status status = parse(settings, &choices, argc, argv, help);
    if (status != LS_OK || *help) return status;
    settings->dtype = (ls_dtype)choices.dtype;
    settings->reduce = (ls_reduce_op)choices.reduce;
    settle_n(settings);
    if (settings->runs == 0) settings->runs = settings->compare ? 9 : 7;
    settings->rounds =
        settings->compare && settings->runs >= COMPARE_ROUNDS && !settings->check_only ? COMPARE_ROUNDS : 1;
    status = comm_parse_sizes(settings, choices.sizes);
    if (status == LS_OK) status = settle_variants(settings, &choices);
    return status == LS_OK ? add_operations(settings, choices.operations, choices.algorithms) : status;
}
