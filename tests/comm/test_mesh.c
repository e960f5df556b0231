/* A mesh of 2 x 2 x 2: which ranks each axis sums over, and which rank all survivors name when one dies. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/comm/mesh.h"
#include "common/comm/wait.h"
#include "tests/base/test.h"
#include "tests/comm/leftovers.h"
#include "tests/comm/ranks.h"

enum { RANKS = 8, DIES = 5 };

static double timeout_s = 100; /* processes of a test end after 60 s */

static const int sizes[LS_MESH_AXES] = {2, 2, 2};
static ls_mesh meshes[RANKS]; /* threads: the meshes of all ranks */
static int next_file;         /* processes: the first free descriptor, the same before and after */

static void create_meshes(void) {
    ls_comm_options options = {.world_size = RANKS, .timeout_s = timeout_s};
    if (ls_mesh_create_threads(meshes, sizes, &options) != LS_OK) _exit(2);
}

static ls_mesh open_mesh(struct rank *rank) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ls_device_options device = {.index = rank->rank, .devices_on_node = RANKS, .place = rank->rank};
    CHECK(ls_device_open(&rank->device, &device) == LS_OK);
    rank->stream = ls_device_stream(rank->device, LS_STREAM_COMM);
    if (rank->crew) return pthread_once(&once, create_meshes), meshes[rank->rank];
    CHECK(close(next_file = dup(0)) == 0);
    struct rlimit files = {(rlim_t)(next_file + ls_mesh_descriptors(sizes)), 1024}; /* exactly enough */
    ls_mesh mesh = {0};
    ls_comm_options options = {
        .rank = rank->rank, .world_size = RANKS, .timeout_s = timeout_s, .bootstrap = &rank->bootstrap};
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0 && ls_mesh_create_shm(&mesh, sizes, &options) == LS_OK);
    return mesh;
}

static void close_mesh(struct rank *rank, ls_mesh *mesh) {
    ls_mesh_destroy(mesh);
    CHECK(rank->crew || dup(0) == next_file);
    ls_device_close(rank->device);
}

/* Sums 2^r over a group, r being the job's rank: the result identifies its members. */
static ls_status sum(struct rank *rank, ls_comm *comm, double *members) {
    *members = (double)(1 << rank->rank);
    return ls_comm_settle(rank->stream, ls_comm_all_reduce(comm, rank->stream, members, 1, LS_FP64, LS_REDUCE_SUM));
}

static void sums_body(struct rank *rank) {
    ls_mesh mesh = open_mesh(rank);
    double members;
    for (int a = 0; a < LS_MESH_AXES; a++) {
        int place = rank->rank >> a & 1, first = rank->rank & ~(1 << a);
        CHECK(ls_comm_rank(mesh.axis[a]) == place && ls_comm_world_size(mesh.axis[a]) == 2);
        CHECK(sum(rank, mesh.axis[a], &members) == LS_OK && members == (1 << first) + (1 << (first + (1 << a))));
    }
    CHECK(sum(rank, mesh.job, &members) == LS_OK && members == 255);
    close_mesh(rank, &mesh);
}

TEST(each_axis_sums_over_its_own_ranks) { run_good_ranks_on_all(RANKS, sums_body, NULL); }

static void death_body(struct rank *rank) {
    ls_mesh mesh = open_mesh(rank);
    double members;
    for (int i = 0; sum(rank, mesh.axis[*(const int *)rank->argument], &members) == LS_OK; i++)
        if (rank->rank == DIES && i == 100) (void)raise(SIGKILL);
    CHECK(strstr(rank->message, "rank 5 died") && sum(rank, mesh.job, &members) == LS_ERR_PEER);
    for (int a = 0; a < LS_MESH_AXES; a++) CHECK(sum(rank, mesh.axis[a], &members) == LS_ERR_PEER);
    close_mesh(rank, &mesh);
}

TEST(survivors_of_every_axis_name_the_jobs_rank) {
    for (int axis = 0; axis < LS_MESH_AXES; axis++)
        run_ranks_expecting(&rank_backends[0], RANKS, death_body, &axis, NULL, 255 & ~(1 << DIES), 128 + SIGKILL);
}

/* The axis on which each rank waits: rank 4 for rank 5, which stays away, and all others for a rank that waits. Rank 4
 * begins last, so the others' deadlines expire before its own. */
static void away_body(struct rank *rank) {
    static const ls_mesh_axis axes[RANKS] = {LS_MESH_PIPELINE, LS_MESH_TENSOR, LS_MESH_DATA, LS_MESH_TENSOR,
                                             LS_MESH_TENSOR,   LS_MESH_AXES,   LS_MESH_DATA, LS_MESH_TENSOR};
    ls_mesh mesh = open_mesh(rank);
    double members;
    CHECK(sum(rank, mesh.job, &members) == LS_OK); /* all have arrived */
    if (rank->rank == 4) usleep(300000);
    if (rank->rank == 5)
        while (!ls_comm_is_broken(mesh.job)) usleep(10000);
    ls_comm *group = rank->rank == 5 ? mesh.job : mesh.axis[axes[rank->rank]];
    CHECK(sum(rank, group, &members) == LS_ERR_TIMEOUT);
    CHECK(strstr(rank->message, "rank 5 did not arrive within 2 s"));
    close_mesh(rank, &mesh);
}

TEST(a_rank_that_stays_away_is_named_where_others_wait_for_those_who_wait) {
    timeout_s = 2;
    run_good_ranks(RANKS, away_body, NULL);
    timeout_s = 100;
}

LEFTOVERS_MAIN
