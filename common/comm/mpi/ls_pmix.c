/* ls_pmix — the server that gives Open MPI's processes of one host their ranks, if no mpirun has started them.
 *   idea  : MPI_Init expects a PMIx server, which tells each process its rank and exchanges the data that the processes
 *           publish (their addresses). libpmix contains such a server, without the exchange between hosts, which is the
 *           task of its host process: here the process that started this one, over its standard streams
 *               out  the environment of a rank, "NAME=value\n" each; then for each fence the data that this host's ranks
 *                    publish
 *               in   for each fence the data that all hosts' ranks publish
 *           as frames: 8 bytes of length, and then that many bytes
 *   cost  : it runs while MPI_Init does; the ranks close their connections after that
 *   fails : it ends with its standard input, so it never outlives the process that started it; it writes no file
 * usage: ls_pmix NAME HOST HOST-OF-RANK-0,HOST-OF-RANK-1,... */
#define _GNU_SOURCE
#include <pmix.h>
#include <pmix_server.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 64, TEXT = 4096, JOB_FACTS = 12, RANK_FACTS = 6 };

static int host_of[RANKS_MAX], ranks, hosts, host;

static void fail(const char *what, pmix_status_t status) {
    fprintf(stderr, "ls_pmix: error: %s: %s\n", what, PMIx_Error_string(status));
    exit(1);
}

static void check(const char *what, pmix_status_t status) {
    if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) fail(what, status);
}

/* --- frames ------------------------------------------------------------------------------------------------------- */

static bool move_all(ssize_t (*move)(int, void *, size_t), int fd, void *bytes, size_t nbytes) {
    for (size_t done = 0; done < nbytes;) {
        ssize_t moved = move(fd, (char *)bytes + done, nbytes - done);
        if (moved <= 0) return false;
        done += (size_t)moved;
    }
    return true;
}

static ssize_t write_some(int fd, void *bytes, size_t nbytes) { return write(fd, bytes, nbytes); }

static void send_frame(void *bytes, size_t size) {
    uint64_t nbytes = size;
    if (!move_all(write_some, STDOUT_FILENO, &nbytes, sizeof nbytes) ||
        !move_all(write_some, STDOUT_FILENO, bytes, size))
        _exit(0); /* the process that started it is gone */
}

static char *receive_frame(size_t *size) {
    uint64_t nbytes;
    if (!move_all(read, STDIN_FILENO, &nbytes, sizeof nbytes)) _exit(0);
    char *bytes = malloc(nbytes + 1);
    if (!bytes || !move_all(read, STDIN_FILENO, bytes, nbytes)) _exit(0);
    *size = nbytes;
    return bytes;
}

/* --- the library's requests to its host process ------------------------------------------------------------------- */

/* The current fence: all ranks take part in each, so there is one at a time. */
static pmix_modex_cbfunc_t fence_done;
static void *fence_context;

static pmix_status_t begin_fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo,
                                 char *data, size_t ndata, pmix_modex_cbfunc_t done, void *context) {
    (void)procs, (void)nprocs, (void)info, (void)ninfo;
    fence_done = done;
    fence_context = context;
    send_frame(data, ndata);
    return PMIX_SUCCESS;
}

static pmix_status_t agree(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *context) {
    (void)proc, (void)object, (void)done, (void)context;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_server_module_t module = {.client_connected = agree, .client_finalized = agree, .fence_nb = begin_fence};

static atomic_int pending;

static void end_operation(pmix_status_t status, void *context) {
    check(context, status);
    atomic_fetch_sub(&pending, 1);
}

static void await(const char *what, pmix_status_t status) {
    check(what, status);
    if (status == PMIX_OPERATION_SUCCEEDED) atomic_fetch_sub(&pending, 1);
    while (atomic_load(&pending) > 0) usleep(1000);
}

/* --- the data that it gives to ranks ------------------------------------------------------------------------------ */

/* "0,1;2,3" of all hosts' ranks, or "0,1" of one host's. */
static void list_ranks(char text[TEXT], int first_host, int end_host) {
    size_t used = 0;
    text[0] = '\0';
    for (int h = first_host; h < end_host; h++) {
        const char *separator = h > first_host ? ";" : "";
        for (int r = 0; r < ranks; r++) {
            if (host_of[r] != h) continue;
            used += (size_t)snprintf(text + used, TEXT - used, "%s%d", separator, r);
            separator = ",";
        }
    }
}

static int rank_on_host(int rank) {
    int place = 0;
    for (int r = 0; r < rank; r++) place += host_of[r] == host_of[rank];
    return place;
}

static int ranks_of(int of_host) {
    int count = 0;
    for (int r = 0; r < ranks; r++) count += host_of[r] == of_host;
    return count;
}

static void load_number(pmix_info_t *info, const char *key, uint32_t value) {
    PMIX_INFO_LOAD(info, key, &value, PMIX_UINT32);
}

static void load_rank(pmix_info_t *info, int rank) {
    pmix_data_array_t *array;
    PMIX_DATA_ARRAY_CREATE(array, RANK_FACTS, PMIX_INFO);
    pmix_info_t *facts = array->array;
    pmix_rank_t number = (pmix_rank_t)rank;
    uint16_t place = (uint16_t)rank_on_host(rank);
    char name[16];
    snprintf(name, sizeof name, "host%d", host_of[rank]);
    PMIX_INFO_LOAD(&facts[0], PMIX_RANK, &number, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&facts[1], PMIX_LOCAL_RANK, &place, PMIX_UINT16);
    PMIX_INFO_LOAD(&facts[2], PMIX_NODE_RANK, &place, PMIX_UINT16);
    load_number(&facts[3], PMIX_NODEID, (uint32_t)host_of[rank]);
    load_number(&facts[4], PMIX_APPNUM, 0);
    PMIX_INFO_LOAD(&facts[5], PMIX_HOSTNAME, name, PMIX_STRING);
    PMIX_LOAD_KEY(info->key, PMIX_PROC_DATA);
    info->value.type = PMIX_DATA_ARRAY;
    info->value.data.darray = array;
}

static void register_job(const char *name) {
    char names[TEXT] = "", all[TEXT], peers[TEXT], *node_map, *rank_map;
    pmix_nspace_t nspace;
    pmix_info_t *info;
    size_t n = 0, used = 0;
    for (int h = 0; h < hosts; h++) used += (size_t)snprintf(names + used, TEXT - used, "%shost%d", h ? "," : "", h);
    list_ranks(all, 0, hosts);
    list_ranks(peers, host, host + 1);
    check("the hosts' names", PMIx_generate_regex(names, &node_map));
    check("the hosts' ranks", PMIx_generate_ppn(all, &rank_map));
    PMIX_INFO_CREATE(info, JOB_FACTS + (size_t)ranks);
    PMIX_INFO_LOAD(&info[n++], PMIX_NODE_MAP, node_map, PMIX_STRING);
    PMIX_INFO_LOAD(&info[n++], PMIX_PROC_MAP, rank_map, PMIX_STRING);
    PMIX_INFO_LOAD(&info[n++], PMIX_JOBID, name, PMIX_STRING);
    PMIX_INFO_LOAD(&info[n++], PMIX_LOCAL_PEERS, peers, PMIX_STRING);
    load_number(&info[n++], PMIX_UNIV_SIZE, (uint32_t)ranks);
    load_number(&info[n++], PMIX_JOB_SIZE, (uint32_t)ranks);
    load_number(&info[n++], PMIX_APP_SIZE, (uint32_t)ranks);
    load_number(&info[n++], PMIX_MAX_PROCS, (uint32_t)ranks);
    load_number(&info[n++], PMIX_JOB_NUM_APPS, 1);
    load_number(&info[n++], PMIX_NUM_NODES, (uint32_t)hosts);
    load_number(&info[n++], PMIX_LOCAL_SIZE, (uint32_t)ranks_of(host));
    load_number(&info[n++], PMIX_NODE_SIZE, (uint32_t)ranks_of(host));
    for (int r = 0; r < ranks; r++) load_rank(&info[n++], r);
    PMIX_LOAD_NSPACE(nspace, name);
    atomic_store(&pending, 1);
    await("the job", PMIx_server_register_nspace(nspace, ranks_of(host), info, n, end_operation, "the job"));
}

static void register_ranks(const char *name) {
    char text[TEXT], **environment = NULL;
    pmix_proc_t proc;
    size_t used = 0;
    for (int r = 0; r < ranks; r++) {
        if (host_of[r] != host) continue;
        PMIX_LOAD_PROCID(&proc, name, (pmix_rank_t)r);
        atomic_store(&pending, 1);
        await("a rank", PMIx_server_register_client(&proc, getuid(), getgid(), NULL, end_operation, "a rank"));
    }
    check("the environment", PMIx_server_setup_fork(&proc, &environment));
    for (char **entry = environment; *entry; entry++)
        if (strncmp(*entry, "PMIX_RANK=", 10) != 0 && used + strlen(*entry) + 2 < TEXT)
            used += (size_t)snprintf(text + used, TEXT - used, "%s\n", *entry);
    send_frame(text, used);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: ls_pmix NAME HOST HOST-OF-RANK-0,HOST-OF-RANK-1,...\n");
        return 2;
    }
    host = atoi(argv[2]);
    for (char *entry = strtok(argv[3], ","); entry && ranks < RANKS_MAX; entry = strtok(NULL, ",")) {
        host_of[ranks] = atoi(entry);
        if (host_of[ranks] >= hosts) hosts = host_of[ranks] + 1;
        ranks++;
    }
    setenv("PMIX_MCA_gds", "hash", 1); /* the other components keep files */
    check("the server", PMIx_server_init(&module, NULL, 0));
    register_job(argv[1]);
    register_ranks(argv[1]);
    for (;;) {
        size_t nbytes;
        char *all = receive_frame(&nbytes);
        fence_done(PMIX_SUCCESS, all, nbytes, fence_context, free, all);
    }
}
