/* mpi_server — replaces mpirun: gives Open MPI its ranks, and sends their addresses between the hosts.
 *   idea  : the lowest rank of each host starts ls_pmix, the server for MPI_Init. Its frames (ls_pmix.c) contain the
 *           data that the ranks of a host publish. A thread sends them to the other hosts through the bootstrap store,
 *           under the name of the host's lowest rank, while MPI_Init waits
 *   cost  : some hundred bytes per rank and two exchanges, while the first group forms
 *   order : the hosts' answers are concatenated in the order of the hosts, the same on all
 *   mpirun: a job that it has started does the same, and mpirun takes it for a job without MPI
 *   fails : the store names the rank that did not arrive. ls_pmix ends when its standard input is closed: when this
 *           process ends for any reason, or when MPI is initialised */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/comm/mpi/mpi_group.h"

enum { FRAME_BYTES = 64 << 10, KEY_CAPACITY = 128, PATIENCE_MS = 2000, ENTRIES = 128 };

/* There is one per process, and it may still be needed by its thread when the group has failed. */
static struct {
    ls_bootstrap bootstrap;
    char group[64];
    int leaders[LS_COMM_MAX_RANKS], hosts, host; /* the hosts' lowest ranks; which host is this one */
    pid_t pid;
    int fd; /* its standard streams */
    pthread_t thread;
    bool serves;
    atomic_bool failed;
    char frame[FRAME_BYTES], environment[FRAME_BYTES];
} server;

bool ls_mpi_server_has_failed(void) { return atomic_load(&server.failed); }

static void key_of(char key[KEY_CAPACITY], const char *what, int number, int rank) {
    snprintf(key, KEY_CAPACITY, "%s/mpi/%s%d/rank%d", server.group, what, number, rank);
}

/* --- frames ------------------------------------------------------------------------------------------------------- */

static bool read_all(void *bytes, size_t nbytes) {
    for (size_t done = 0; done < nbytes;) {
        ssize_t moved = recv(server.fd, (char *)bytes + done, nbytes - done, 0);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return false;
        done += (size_t)moved;
    }
    return true;
}

static bool read_frame(size_t *nbytes) {
    uint64_t size;
    if (!read_all(&size, sizeof size) || size > sizeof server.frame) return false;
    *nbytes = (size_t)size;
    return read_all(server.frame, *nbytes);
}

static bool write_all(const void *bytes, size_t nbytes) {
    for (size_t done = 0; done < nbytes;) {
        ssize_t moved = send(server.fd, (const char *)bytes + done, nbytes - done, MSG_NOSIGNAL);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return false;
        done += (size_t)moved;
    }
    return true;
}

/* --- the exchange between hosts ----------------------------------------------------------------------------------- */

/* Puts this host's frame into the store, and copies all hosts' frames, in their order, to `all`. */
static ls_status exchange(int fence, size_t nbytes, char *all, size_t *used) {
    char key[KEY_CAPACITY];
    const ls_bootstrap *store = &server.bootstrap;
    key_of(key, "fence", fence, server.leaders[server.host]);
    ls_status status = store->set(store->context, key, server.frame, nbytes);
    *used = 0;
    for (int h = 0; status == LS_OK && h < server.hosts; h++) {
        size_t got = 0;
        key_of(key, "fence", fence, server.leaders[h]);
        status = store->get(store->context, key, all + *used, FRAME_BYTES - *used, &got);
        *used += got;
    }
    return status;
}

static void *serve(void *argument) {
    static char all[FRAME_BYTES];
    size_t nbytes, used;
    (void)argument;
    for (int fence = 0; read_frame(&nbytes); fence++) {
        uint64_t size;
        if (exchange(fence, nbytes, all, &used) != LS_OK) {
            atomic_store(&server.failed, true);
            break;
        }
        size = used;
        if (!write_all(&size, sizeof size) || !write_all(all, used)) break;
    }
    return NULL;
}

/* --- starting ls_pmix --------------------------------------------------------------------------------------------- */

/* Whether the variable is from an mpirun that has started this process, and would make MPI ask that one. The user's own
 * variables stay. */
static bool is_mpiruns(const char *entry) {
    static const char *const names[] = {"PMIX_", "OMPI_MCA_ess", "OMPI_MCA_orte", "OMPI_MCA_pmix"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static void forget_mpirun(void) {
    char name[256];
    for (size_t i = 0; environ[i];) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(environ[i], "="), environ[i]);
        if (is_mpiruns(environ[i]))
            unsetenv(name); /* the entries after it move up */
        else
            i++;
    }
}

static int spawn(char *const *arguments) {
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    int error = posix_spawn(&server.pid, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    server.fd = ends[0];
    return error;
}

/* Starts it, and puts the environment that its ranks need into the store. */
static ls_status start(const ls_comm *comm, const char *name, char *hosts) {
    char path[4096], host[16], key[KEY_CAPACITY];
    Dl_info info;
    size_t nbytes = 0;
    int error = dladdr(&server, &info) ? 0 : ENOENT;
    const char *end = error ? NULL : strrchr(info.dli_fname, '/');
    snprintf(path, sizeof path, "%.*s/ls_pmix", end ? (int)(end - info.dli_fname) : 1, end ? info.dli_fname : ".");
    snprintf(host, sizeof host, "%d", server.host);
    error = spawn((char *[]){path, (char *)(uintptr_t)name, host, hosts, NULL});
    if (error != 0) return ls_fail(LS_ERR_SYSTEM, "cannot start %s: %s", path, strerror(error));
    if (!read_frame(&nbytes)) return ls_fail(LS_ERR_SYSTEM, "%s did not start; see the error of its own above", path);
    key_of(key, "server", 0, ls_job_rank(comm, comm->rank));
    return server.bootstrap.set(server.bootstrap.context, key, server.frame, nbytes);
}

/* Numbers the hosts in the order of their lowest ranks, and writes the number of each rank's host: "0,0,1,1". */
static void find_hosts(const ls_comm *comm, char *text, size_t capacity) {
    size_t used = 0;
    server.hosts = 0;
    for (int r = 0; r < comm->world_size; r++) {
        int rank = ls_job_rank(comm, r), h = 0;
        while (h < server.hosts && comm->host[server.leaders[h]] != comm->host[rank]) h++;
        if (h == server.hosts) server.leaders[server.hosts++] = rank;
        if (r == comm->rank) server.host = h;
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", r ? "," : "", h);
    }
}

/* The received environment variables; `set`: sets them, else removes them. */
static void apply_environment(bool set) {
    char *place = NULL, text[sizeof server.environment];
    memcpy(text, server.environment, sizeof text);
    for (char *line = strtok_r(text, "\n", &place); line; line = strtok_r(NULL, "\n", &place)) {
        char *equals = strchr(line, '=');
        if (!equals) continue;
        *equals = '\0';
        if (set)
            setenv(line, equals + 1, 1);
        else
            unsetenv(line);
    }
}

ls_status ls_mpi_server_join(ls_comm *comm, const ls_comm_options *options) {
    char hosts[LS_COMM_MAX_RANKS * 4], name[32], key[KEY_CAPACITY];
    size_t nbytes = 0;
    server.bootstrap = *options->bootstrap;
    snprintf(server.group, sizeof server.group, "%s", options->group ? options->group : "group0");
    snprintf(name, sizeof name, "lockstep-%016llx", (unsigned long long)comm->name_hash);
    server.fd = -1;
    forget_mpirun();
    find_hosts(comm, hosts, sizeof hosts);
    ls_status status = comm->rank == comm->leader ? start(comm, name, hosts) : LS_OK;
    if (status == LS_OK) {
        key_of(key, "server", 0, ls_job_rank(comm, comm->leader));
        status =
            server.bootstrap.get(server.bootstrap.context, key, server.environment, FRAME_BYTES - ENTRIES, &nbytes);
    }
    if (status != LS_OK) {
        (void)ls_comm_abort(comm, "the rank cannot start Open MPI's server");
        return status;
    }
    /* Open MPI takes this for another launcher than mpirun, JSM, whose processes look for their PMIx server by themselves. */
    snprintf(server.environment + nbytes, ENTRIES,
             "PMIX_RANK=%d\nJSM_JSRUN_PORT=0\nOMPI_MCA_pmix=ext3x\nOMPI_MCA_orte_create_session_dirs=0\n", comm->rank);
    apply_environment(true);
    server.serves = server.fd >= 0 && pthread_create(&server.thread, NULL, serve, NULL) == 0;
    return LS_OK;
}

/* Waits for the process to end, and kills it if it does not. */
static void reap(pid_t pid) {
    struct pollfd process = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (process.fd < 0 || poll(&process, 1, PATIENCE_MS) <= 0) (void)kill(pid, SIGKILL);
    if (process.fd >= 0) close(process.fd);
    (void)waitpid(pid, NULL, 0);
}

void ls_mpi_server_leave(bool in_good_order) {
    apply_environment(false);
    if (server.pid == 0) return;
    (void)shutdown(server.fd, SHUT_RDWR);
    reap(server.pid);
    server.pid = 0;
    if (server.serves && in_good_order) pthread_join(server.thread, NULL);
    if (server.serves && !in_good_order) pthread_detach(server.thread); /* the store may not have answered yet */
    if (!server.serves || in_good_order) close(server.fd);
}
