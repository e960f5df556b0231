/* mpi_world — initialises MPI, once in a process.
 *   idea  : MPI_Init makes one world per process, for good. It has the ranks of the first group (the job's); later
 *           groups, of a mesh or of the ranks that are left after a failure (--elastic), use some of its ranks and
 *           their own tags: creating a communicator would be a call without a deadline, and spins. After MPI_Init the
 *           connection to the PMIx server is closed: all addresses are known by then (mpi_add_procs_cutoff), and a
 *           server that ends can no longer end this process
 *   threads: MPI_THREAD_MULTIPLE. Groups run in the threads of their streams; one thread for all would cost each
 *           operation two hand-offs
 *   order : ranks meet first, so that all know each rank's world
 *   fails : MPI_Init has no deadline: it runs in a thread that is abandoned if a peer does not arrive. Open MPI ends
 *           the process if it cannot continue (its errmgr's abort): here that is ignored, the request never completes,
 *           and the group's patrol reports the lost rank. MPI_Finalize, which waits for all ranks, is never called */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/mpi/mpi_group.h"

/* This process's part: rank -1 until MPI is initialised. `name` is the same in all processes of a world. */
static struct {
    int rank;
    uint32_t name;
    int error, threads;
    bool closed;
    atomic_bool done; /* MPI_Init has returned */
} world = {.rank = -1};

static const ls_announcement joining = {.kind = LS_OPERATION_JOIN, .root = -1};

ls_status ls_mpi_fail(ls_comm *comm, const ls_announcement *what, int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    return ls_comm_break(comm, LS_ERR_SYSTEM, what, "Open MPI: %s", text);
}

/* --- MPI_Init ----------------------------------------------------------------------------------------------------- */

/* The beginning of Open MPI 4's orte_errmgr, whose abort ends the process. */
struct errmgr {
    void (*others[3])(void);
    void (*abort)(int code, char *format, ...);
    int (*abort_peers)(void *names, size_t count, int code);
};

static void ignore_abort(int code, char *format, ...) { (void)code, (void)format; }

/* opal_show_help, which prints a page on possible causes when a peer is gone. */
static int ignore_help(const char *file, const char *topic, int header, ...) {
    (void)file, (void)topic, (void)header;
    return 0;
}

static int ignore_abort_of_peers(void *names, size_t count, int code) {
    (void)names, (void)count, (void)code;
    return 0;
}

/* Open MPI's components look up its libraries' symbols in the global scope, but this plug-in was loaded into a local
 * one. */
static void show_libraries(void) {
    Dl_info info;
    if (dladdr((void *)(uintptr_t)MPI_Init_thread, &info)) (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL);
}

/* From here on, the end of another process does not end this one. */
static void release_server(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    struct errmgr *errmgr = dlsym(RTLD_DEFAULT, "orte_errmgr");
    int (**show_help)(const char *, const char *, int, ...) = dlsym(RTLD_DEFAULT, "opal_show_help");
    if (show_help) *show_help = ignore_help;
    int (*finalize)(const void *, size_t) =
        (int (*)(const void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "PMIx_Finalize");
    if (errmgr) {
        errmgr->abort = ignore_abort;
        errmgr->abort_peers = ignore_abort_of_peers;
    }
    world.closed = errmgr && finalize && finalize(NULL, 0) == 0;
}

static void *initialise(void *argument) {
    (void)argument;
    show_libraries();
    world.error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &world.threads);
    if (world.error == MPI_SUCCESS) release_server();
    atomic_store(&world.done, true);
    return NULL;
}

/* The interface that has this host's address; on one host that is the loopback. */
static void find_interface(const ls_comm *comm, char name[IF_NAMESIZE]) {
    struct ifaddrs *interfaces = NULL;
    struct in_addr wanted;
    snprintf(name, IF_NAMESIZE, "lo");
    if (!comm->address[0] || inet_pton(AF_INET, comm->address, &wanted) != 1 || getifaddrs(&interfaces) != 0) return;
    for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
        const struct sockaddr_in *address = (const void *)i->ifa_addr;
        if (address && address->sin_family == AF_INET && address->sin_addr.s_addr == wanted.s_addr)
            snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
    }
    freeifaddrs(interfaces);
}

/* The user's settings have priority. */
static void set_defaults(const ls_comm *comm) {
    char interface[IF_NAMESIZE];
    find_interface(comm, interface);
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "tcp,self", 0); /* shared memory is ours, and leaves no files */
    if (!getenv("OMPI_MCA_btl_tcp_if_exclude")) setenv("OMPI_MCA_btl_tcp_if_include", interface, 0);
    setenv("OMPI_MCA_btl_tcp_disable_family", "6", 0);
    setenv("OMPI_MCA_mpi_add_procs_cutoff", "1024", 0);
    setenv("OMPI_MCA_opal_signal", "", 0);
    setenv("OMPI_MCA_mpi_warn_on_fork", "0", 0);
}

static bool is_up(void *context) {
    (void)context;
    return atomic_load(&world.done) || ls_mpi_server_has_failed();
}

/* MPI_Init has no deadline. Its thread is abandoned if it does not return. */
static ls_status initialise_all(ls_comm *comm) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, initialise, NULL) != 0)
        return ls_comm_break(comm, LS_ERR_NO_MEMORY, NULL, "rank %d cannot start a thread for Open MPI",
                             ls_job_rank(comm, comm->rank));
    pthread_detach(thread);
    ls_comm_gate_open(comm, LS_CHANNEL_HOST);
    const ls_wait wait = {.peer = LS_POLLED, .channel = LS_CHANNEL_HOST, .what = &joining, .poll = is_up};
    ls_status status = ls_comm_wait(comm, &wait);
    if (status == LS_OK && !atomic_load(&world.done))
        status = ls_comm_break(comm, LS_ERR_PEER, NULL, "the hosts could not exchange Open MPI's addresses");
    return status == LS_OK ? ls_comm_gate_close(comm, LS_CHANNEL_HOST, &joining, NULL) : status;
}

static ls_status start(ls_comm *comm, const ls_comm_options *options) {
    set_defaults(comm);
    ls_status status = ls_mpi_server_join(comm, options);
    if (status == LS_OK) status = initialise_all(comm);
    ls_mpi_server_leave(status == LS_OK);
    if (status != LS_OK) return status;
    int rank = -1, size = 0;
    if (world.error != MPI_SUCCESS) return ls_mpi_fail(comm, NULL, world.error);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != comm->rank || size != comm->world_size || world.threads < MPI_THREAD_MULTIPLE || !world.closed)
        return ls_comm_break(
            comm, LS_ERR_UNSUPPORTED, NULL,
            "Open MPI makes rank %d of %d rank %d of %d%s: expected Open MPI 4.1 with MPI_THREAD_MULTIPLE", comm->rank,
            comm->world_size, rank, size, world.closed ? "" : ", and does not let its server go");
    world.rank = rank;
    world.name = (uint32_t)comm->name_hash;
    return LS_OK;
}

/* --- the worlds of the ranks -------------------------------------------------------------------------------------- */

enum { FRESH, IN_A_WORLD }; /* a rank's state: FRESH, or IN_A_WORLD + its rank there */

static uint64_t own_state(void) {
    if (world.rank < 0) return FRESH;
    return (uint64_t)world.name << 32 | (uint64_t)(IN_A_WORLD + world.rank);
}

ls_status ls_mpi_join_world(ls_comm *comm, const ls_comm_options *options, struct ls_mpi_ranks *ranks) {
    ls_announcement what = {.kind = LS_OPERATION_JOIN, .sequence = 1, .offset = own_state(), .root = -1};
    bool late[LS_COMM_MAX_RANKS];
    int late_count = 0;
    char text[LS_RANKS_TEXT_CAPACITY];
    ls_status status = ls_comm_meet(comm, LS_CHANNEL_HOST, &what);
    if (status != LS_OK) return status;
    uint64_t known = 0;
    ranks->count = comm->world_size;
    ranks->self = comm->rank;
    for (int r = 0; r < comm->world_size; r++) {
        uint64_t state = ls_comm_announced(comm, LS_CHANNEL_HOST, r)->offset;
        late[r] = state < IN_A_WORLD;
        late_count += late[r];
        if (!late[r] && known == 0) known = state >> 32 | 1ULL << 32;
        ranks->rank[r] = late[r] ? r : (int)(uint32_t)state - IN_A_WORLD;
    }
    if (late_count == comm->world_size) return start(comm, options);
    for (int r = 0; r < comm->world_size; r++)
        late[r] = late[r] || (ls_comm_announced(comm, LS_CHANNEL_HOST, r)->offset >> 32 | 1ULL << 32) != known;
    for (int r = 0; r < comm->world_size; r++)
        if (late[r])
            return ls_comm_break(comm, LS_ERR_UNSUPPORTED, NULL,
                                 "%s started later than the others, and Open MPI accepts no ranks after the start: "
                                 "start the job again, or leave --backend mpi out",
                                 ls_comm_ranks_text(text, late, comm));
    return LS_OK;
}
