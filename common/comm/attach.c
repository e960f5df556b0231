/* attach — gives an existing group a path for operations on GPU memory.
 *   idea  : on wrong input NCCL hangs without a message. So everything is compared first, over the group's host memory:
 *           all ranks must ask for the same path, have a GPU of their own and the same NCCL. A comparison is a meeting
 *           in the host's channel at which each rank announces one number
 *   cost  : a meeting per comparison, some microseconds; then NCCL's own initialisation, a second for two GPUs and many
 *           seconds for eight
 *   fails : a rank that fails breaks the group with its reason, which the others report at their next meeting. A last
 *           meeting confirms that all have succeeded */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/comm/carrier.h"
#include "common/comm/comm_internal.h"
#include "common/comm/nccl_plugin.h"
#include "common/comm/wait.h"
#include "common/device/plugin.h"

#define WITHOUT_NCCL "; --backend shm stages through host memory"

/* Announces this rank's number and fills `numbers` with those of all ranks. The round keeps the meetings of one kind
 * apart. */
static ls_status exchange(ls_comm *comm, ls_operation_kind kind, uint64_t round, uint64_t mine, uint64_t *numbers) {
    ls_announcement what = {.sequence = round, .offset = mine, .kind = (int32_t)kind, .root = -1};
    numbers[comm->rank] = mine;
    ls_status status = ls_comm_check(comm, &what);
    if (status != LS_OK || comm->world_size == 1) return status;
    status = ls_comm_meet(comm, LS_CHANNEL_HOST, &what);
    for (int r = 0; status == LS_OK && r < comm->world_size; r++)
        numbers[r] = ls_comm_announced(comm, LS_CHANNEL_HOST, r)->offset;
    return status;
}

/* Two ranks whose numbers are equal (or, if not `equal`, differ from rank 0's); false: there are none. */
static bool find_pair(const uint64_t *numbers, int count, bool equal, int *first, int *second) {
    for (*first = 0; *first < (equal ? count : 1); ++*first) {
        for (*second = *first + 1; *second < count; ++*second)
            if ((numbers[*first] == numbers[*second]) == equal) return true;
    }
    return false;
}

/* --- which GPU ---------------------------------------------------------------------------------------------------- */

/* A GPU's place and its number in 64 bits; the number is only for messages. */
#define PLACE_BITS 48
#define PLACE_MASK (((uint64_t)1 << PLACE_BITS) - 1)
#define NO_NCCL UINT64_MAX

static uint64_t pack(const struct ls_nccl_identity *identity) {
    return (identity->gpu & PLACE_MASK) | (uint64_t)(identity->index & 0x7fff) << PLACE_BITS;
}

static int index_of(uint64_t packed) { return (int)(packed >> PLACE_BITS); }

static const struct ls_nccl_plugin *open_plugin(char *why, size_t capacity) {
    return ls_plugin_open("ls_nccl.so", "ls_nccl_plugin", why, capacity);
}

static bool have_shared_gpu(const ls_comm *comm, const uint64_t *gpus, char *text, size_t capacity) {
    uint64_t places[LS_COMM_MAX_RANKS];
    int first, second;
    for (int r = 0; r < comm->world_size; r++)
        places[r] = (gpus[r] & PLACE_MASK) | (uint64_t)comm->host[ls_job_rank(comm, r)] << PLACE_BITS;
    if (!find_pair(places, comm->world_size, true, &first, &second)) return false;
    snprintf(text, capacity, "ranks %d and %d share GPU %d", ls_job_rank(comm, first), ls_job_rank(comm, second),
             index_of(gpus[first]));
    return true;
}

ls_status ls_comm_find_nccl_obstacle(ls_comm *comm, const ls_device *device, ls_status *obstacle, char *text,
                                     size_t capacity) {
    char why[512] = "";
    struct ls_nccl_identity identity;
    uint64_t gpus[LS_COMM_MAX_RANKS];
    const struct ls_nccl_plugin *plugin = open_plugin(why, sizeof why);
    bool known = plugin && plugin->identify(device, &identity, why, sizeof why) == LS_OK;
    *obstacle = LS_ERR_UNSUPPORTED;
    text[0] = '\0';
    ls_status status = exchange(comm, LS_OPERATION_COMPARE_GPUS, 0, known ? pack(&identity) : NO_NCCL, gpus);
    if (status != LS_OK) return status;
    for (int r = 0; r < comm->world_size; r++) {
        if (gpus[r] != NO_NCCL) continue;
        if (known) snprintf(text, capacity, "rank %d cannot use NCCL", ls_job_rank(comm, r));
        if (!known) snprintf(text, capacity, "%s", why);
        return LS_OK;
    }
    *obstacle = have_shared_gpu(comm, gpus, text, capacity) ? LS_ERR_USAGE : LS_OK;
    return LS_OK;
}

/* --- NCCL --------------------------------------------------------------------------------------------------------- */

static const char *version_text(char text[32], uint64_t code) {
    unsigned unit = code < 10000 ? 1000 : 10000; /* before 2.9 */
    snprintf(text, 32, "%u.%u.%u", (unsigned)code / unit, (unsigned)code % unit / 100, (unsigned)code % 100);
    return text;
}

static ls_status compare_gpus(ls_comm *comm, const struct ls_nccl_identity *identity) {
    uint64_t gpus[LS_COMM_MAX_RANKS];
    char text[LS_TEXT_CAPACITY];
    ls_status status = exchange(comm, LS_OPERATION_ATTACH_NCCL, 1, pack(identity), gpus);
    if (status != LS_OK || !have_shared_gpu(comm, gpus, text, sizeof text)) return status;
    return ls_comm_break(comm, LS_ERR_INVALID, NULL, "%s: NCCL needs a GPU per rank" WITHOUT_NCCL, text);
}

static ls_status compare_versions(ls_comm *comm, const struct ls_nccl_identity *identity) {
    uint64_t versions[LS_COMM_MAX_RANKS];
    int first, second;
    char first_text[32], second_text[32];
    ls_status status = exchange(comm, LS_OPERATION_ATTACH_NCCL, 2, (uint64_t)identity->version, versions);
    if (status != LS_OK || !find_pair(versions, comm->world_size, false, &first, &second)) return status;
    return ls_comm_break(comm, LS_ERR_INVALID, NULL,
                         "rank %d has NCCL %s, rank %d has %s: all ranks need the same (which libnccl.so.2 does "
                         "LD_LIBRARY_PATH find?)" WITHOUT_NCCL,
                         ls_job_rank(comm, first), version_text(first_text, versions[first]), ls_job_rank(comm, second),
                         version_text(second_text, versions[second]));
}

/* Rank 0 makes the id; the others request it once all know that it exists. */
static ls_status share_id(ls_comm *comm, const struct ls_nccl_plugin *plugin, const ls_comm_options *options,
                          unsigned char *id) {
    char key[128], why[512] = "";
    uint64_t made[LS_COMM_MAX_RANKS];
    const ls_bootstrap *bootstrap = options->bootstrap;
    snprintf(key, sizeof key, "%s/nccl/id", options->group ? options->group : "group0");
    ls_status status = LS_OK;
    if (comm->rank == 0) {
        status = plugin->make_id(id, why, sizeof why);
        if (status != LS_OK) return ls_comm_break(comm, status, NULL, "NCCL made no id: %s" WITHOUT_NCCL, why);
        if (comm->world_size > 1) status = bootstrap->set(bootstrap->context, key, id, LS_NCCL_ID_NBYTES);
        if (status != LS_OK) (void)ls_comm_abort(comm, "NCCL's id could not be stored");
    }
    if (status == LS_OK) status = exchange(comm, LS_OPERATION_ATTACH_NCCL, 3, 0, made);
    if (status != LS_OK || comm->rank == 0) return status;
    size_t nbytes = 0;
    status = bootstrap->get(bootstrap->context, key, id, LS_NCCL_ID_NBYTES, &nbytes);
    if (status != LS_OK) (void)ls_comm_abort(comm, "NCCL's id could not be fetched");
    if (status == LS_OK && nbytes != LS_NCCL_ID_NBYTES)
        return ls_comm_break(comm, LS_ERR_INVALID, NULL, "the store's key %s does not hold NCCL's id", key);
    return status;
}

static ls_status attach_nccl(ls_comm *comm, ls_device *device, const ls_comm_options *options) {
    char why[512] = "";
    unsigned char id[LS_NCCL_ID_NBYTES];
    struct ls_nccl_identity identity;
    uint64_t done[LS_COMM_MAX_RANKS];
    const struct ls_nccl_plugin *plugin = open_plugin(why, sizeof why);
    ls_status status = plugin ? plugin->identify(device, &identity, why, sizeof why) : LS_ERR_UNSUPPORTED;
    if (status != LS_OK) return ls_comm_break(comm, status, NULL, "NCCL cannot be used: %s" WITHOUT_NCCL, why);
    status = compare_gpus(comm, &identity);
    if (status == LS_OK) status = compare_versions(comm, &identity);
    if (status == LS_OK) status = share_id(comm, plugin, options, id);
    if (status == LS_OK) status = plugin->attach(&comm, &device, 1, id);
    if (status == LS_OK && comm->carrier == &ls_one_round_carrier) status = ls_through_gpu_attach(comm);
    if (status == LS_OK) status = exchange(comm, LS_OPERATION_ATTACH_NCCL, 4, 0, done);
    return status;
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

static void name_backend(ls_comm *comm) {
    if (comm->path->name) snprintf(comm->backend, sizeof comm->backend, "%s", comm->path->name);
    if (!comm->path->name)
        snprintf(comm->backend, sizeof comm->backend, "%s, staged",
                 comm->carrier ? comm->carrier->name : comm->transport->name);
}

static ls_status check(const ls_comm *comm, const ls_device *device) {
    if (comm->path)
        return ls_fail(LS_ERR_INVALID, "rank %d has attached a device to the group already",
                       ls_job_rank(comm, comm->rank));
    if (!ls_device_memory_is_host(device)) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "device %d is not a GPU; only a GPU's memory needs a path of its own",
                   ls_device_index(device));
}

ls_status ls_comm_attach_device(ls_comm *comm, ls_device *device, ls_comm_path path, const ls_comm_options *options) {
    uint64_t begun[LS_COMM_MAX_RANKS];
    ls_operation_kind kind = path == LS_COMM_NCCL ? LS_OPERATION_ATTACH_NCCL : LS_OPERATION_ATTACH_STAGED;
    ls_status status = check(comm, device);
    if (status == LS_OK) status = exchange(comm, kind, 0, 0, begun);
    if (status != LS_OK) return status;
    if (path == LS_COMM_NCCL) {
        status = attach_nccl(comm, device, options);
    } else if ((status = ls_staged_attach(comm, device)) != LS_OK) {
        (void)ls_comm_abort(comm, "the rank has no memory for a group's staging");
    } else {
        status = exchange(comm, kind, 1, 0, begun);
    }
    if (comm->path) name_backend(comm);
    return status;
}

static ls_status attach_all_nccl(ls_comm *const *comms, ls_device *const *devices) {
    int count = comms[0]->world_size;
    char why[512] = "", text[LS_TEXT_CAPACITY];
    unsigned char id[LS_NCCL_ID_NBYTES];
    uint64_t gpus[LS_COMM_MAX_RANKS];
    struct ls_nccl_identity identity;
    const struct ls_nccl_plugin *plugin = open_plugin(why, sizeof why);
    ls_status status = plugin ? LS_OK : LS_ERR_UNSUPPORTED;
    for (int r = 0; status == LS_OK && r < count; r++) {
        status = plugin->identify(devices[r], &identity, why, sizeof why);
        gpus[r] = pack(&identity);
    }
    if (status != LS_OK) return ls_fail(status, "NCCL cannot be used: %s", why);
    if (have_shared_gpu(comms[0], gpus, text, sizeof text))
        return ls_fail(LS_ERR_INVALID, "%s: NCCL needs a GPU per rank", text);
    status = plugin->make_id(id, why, sizeof why);
    if (status != LS_OK) return ls_fail(status, "NCCL made no id: %s", why);
    return plugin->attach(comms, devices, count, id);
}

ls_status ls_comm_attach_devices(ls_comm *const *comms, ls_device *const *devices, ls_comm_path path) {
    int count = comms[0]->world_size;
    ls_status status = LS_OK;
    for (int r = 0; status == LS_OK && r < count; r++) status = check(comms[r], devices[r]);
    bool meta = !ls_device_computes(devices[0]);
    for (int r = 0; meta && status == LS_OK && r < count; r++) ls_meta_attach(comms[r], devices[r]);
    if (status == LS_OK && !meta && path == LS_COMM_NCCL) status = attach_all_nccl(comms, devices);
    for (int r = 0; path == LS_COMM_STAGED && !meta && status == LS_OK && r < count; r++)
        status = ls_staged_attach(comms[r], devices[r]);
    for (int r = 0; r < count; r++)
        if (comms[r]->path) name_backend(comms[r]);
    return status;
}
