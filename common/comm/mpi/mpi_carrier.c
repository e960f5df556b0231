/* mpi_carrier — a group's part in Open MPI: its ranks and tags there, and the ranks that share a host.
 *   idea  : Open MPI moves bytes; sums are made by our kernels, in the order of the ranks (mpi_operations.c). If
 *           several hosts have several ranks each, an all-reduce has two levels: the ranks of a host are a group over
 *           shared memory, which does the first and the last part, and MPI does the middle, between ranks of the same
 *           place
 *   auto  : hierarchical, if every host has the same number of ranks, more than one, at equal distances; else direct
 *   cost  : no object is created in MPI; for hierarchical, a group over shared memory
 *   order : messages are distinguished by the sender and by tags, which are derived from the group's name
 *   fails : an unsupported option is refused by name on all ranks */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/mpi/mpi_group.h"
#include "common/comm/mpi_plugin.h"
#include "common/device/plugin.h"

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* The ranks of a node: `size` ranks, each `distance` after the one before. */
struct node {
    int first, size, distance;
};

static bool is_in(const ls_comm *comm, int rank, int other) {
    int size = comm->ranks_per_node;
    return comm->host[ls_job_rank(comm, rank)] == comm->host[ls_job_rank(comm, other)] && rank / size == other / size;
}

/* The node of a rank; size 0: its ranks are not at equal distances. */
static struct node find_node(const ls_comm *comm, int rank) {
    struct node node = {.first = -1, .distance = 1};
    for (int r = 0, last = 0; r < comm->world_size; r++) {
        if (!is_in(comm, rank, r)) continue;
        if (node.first < 0) node.first = r;
        if (node.size == 1) node.distance = r - last;
        if (node.size > 1 && r - last != node.distance) return (struct node){0};
        last = r;
        node.size++;
    }
    return node;
}

/* Whether all nodes have as many ranks as this one's, so that each rank has a peer of its place on each. */
static bool have_equal_nodes(const ls_comm *comm, const struct node *own) {
    bool equal = own->size > 0;
    for (int r = 0; r < comm->world_size; r++) equal = equal && find_node(comm, r).size == own->size;
    return equal;
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* Chooses the algorithm, the same on all ranks. */
static ls_status choose(ls_comm *comm, const ls_comm_options *options, const struct node *node) {
    const char *named = options->allreduce;
    bool equal = have_equal_nodes(comm, node), nested = equal && node->size > 1 && node->size < comm->world_size;
    if (!named && nested) comm->allreduce = ls_allreduce_find("hierarchical");
    if (!named || strcmp(named, "direct") == 0 || strcmp(named, "naive") == 0) return LS_OK;
    if (strcmp(named, "hierarchical") != 0)
        return ls_comm_break(comm, LS_ERR_UNSUPPORTED, NULL,
                             "--allreduce %s works in the memory of one machine; with --backend mpi choose direct, "
                             "hierarchical or naive",
                             named);
    if (equal) return LS_OK;
    return ls_comm_break(comm, LS_ERR_UNSUPPORTED, NULL,
                         "--allreduce hierarchical needs the same number of ranks on each host, at equal distances");
}

enum { GROUPS = 1 << 26 }; /* and LS_MPI_TAGS each: below MPI_TAG_UB of Open MPI's TCP */

static ls_status join_inner(ls_comm *comm, struct ls_mpi_group *g, const ls_comm_options *options,
                            const struct node *node) {
    char name[96];
    snprintf(name, sizeof name, "%s/node%d", options->group ? options->group : "group0", node->first);
    const ls_comm_options inner = {.rank = (comm->rank - node->first) / node->distance,
                                   .world_size = node->size,
                                   .timeout_s = options->timeout_s,
                                   .bootstrap = options->bootstrap,
                                   .group = name,
                                   .job = comm->job,
                                   .first = ls_job_rank(comm, node->first),
                                   .stride = comm->stride * node->distance,
                                   .unrecorded = true};
    void *stage = NULL;
    ls_status status = ls_comm_create_shm(&g->inner, &inner);
    if (status == LS_OK) status = ls_comm_alloc_shared(g->inner, NULL, LS_MPI_STAGE_BYTES, &stage);
    g->stage = stage;
    if (status != LS_OK) (void)ls_comm_abort(comm, "the rank could not join the group of its host's ranks");
    return status;
}

static ls_status join(ls_comm *comm, const ls_comm_options *options) {
    struct node node = find_node(comm, comm->rank);
    ls_status status = choose(comm, options, &node);
    struct ls_mpi_group *g = status == LS_OK ? calloc(1, sizeof *g) : NULL;
    if (status == LS_OK && !g)
        status = ls_comm_break(comm, LS_ERR_NO_MEMORY, NULL, "cannot allocate memory for a group over MPI");
    if (status != LS_OK) return status;
    comm->carrier_state = g;
    g->tag = (int)(comm->name_hash % GROUPS) * LS_MPI_TAGS;
    status = ls_mpi_join_world(comm, options, &g->all);
    bool nested = strcmp(comm->allreduce->name, "hierarchical") == 0 && node.size > 1;
    int place = comm->rank - node.first;
    for (int r = 0; nested && node.size < comm->world_size && r < comm->world_size; r++) {
        if (r - find_node(comm, r).first != place) continue;
        if (r == comm->rank) g->across.self = g->across.count;
        g->across.rank[g->across.count++] = g->all.rank[r];
    }
    return status == LS_OK && nested ? join_inner(comm, g, options, &node) : status;
}

static ls_status run(const ls_operation *operation) {
    return ls_is_point_to_point(&operation->what) ? ls_mpi_run_message(operation) : ls_mpi_run_collective(operation);
}

/* If the group has failed, memory that MPI may still use is not freed. */
static void leave(ls_comm *comm) {
    struct ls_mpi_group *g = comm->carrier_state;
    if (!g) return;
    ls_comm_destroy(g->inner);
    if (!ls_comm_is_broken(comm)) free(g->memory);
    free(g);
}

static const struct ls_carrier carrier = {.name = "mpi", .join = join, .run = run, .leave = leave};

extern const struct ls_mpi_plugin ls_mpi_plugin;
const struct ls_mpi_plugin ls_mpi_plugin = {.version = LS_PLUGIN_VERSION, .carrier = &carrier};
