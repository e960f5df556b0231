/* shm_handshake — the leader (the group's lowest rank on this host; on one host rank 0) creates the group's file and
 * passes its descriptor to the others.
 *   idea  : the leader listens on a Unix socket in the abstract namespace, whose random name is published in the
 *           bootstrap store; each other rank connects, sends its rank, and gets the descriptor (SCM_RIGHTS) or an error
 *   order : callers are served one after the other, in any order of ranks; one message each way
 *   fails : every socket call ends at the deadline. Both sides refuse processes of other users (SO_PEERCRED). A caller
 *           that stays silent is dropped. Ranks that did not call in time are named */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

#define LS_HELLO_MAGIC 0x6c73636fu
#define LS_LOOK_AGAIN_US 5e4 /* interval of checks that the group may still form */
#define LS_NAME_BYTES 33     /* 32 hexadecimal digits and a zero byte */

struct answer {
    int32_t status;
    char text[220];
};

/* The descriptors that are sent with the answer. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
};

static double left_us(double until_us) {
    double left = until_us - ls_now_us();
    return left > 0 ? left : 0;
}

/* Bounds each later call on the socket; a timeout of 0 would mean none. */
static void set_deadline(int socket_fd, double wait_us) {
    if (wait_us < 1e3) wait_us = 1e3;
    struct timeval limit = {.tv_sec = (time_t)(wait_us / 1e6)};
    limit.tv_usec = (suseconds_t)(wait_us - (double)limit.tv_sec * 1e6);
    (void)setsockopt(socket_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(socket_fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static socklen_t abstract_address(struct sockaddr_un *address, const char *name) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "lockstep-%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* The rank in the job of the rank that creates the file. */
static int leader_of(const ls_comm *comm) { return ls_job_rank(comm, comm->leader); }

static void key_of(char *key, size_t capacity, const ls_comm *comm, const ls_comm_options *options) {
    snprintf(key, capacity, "%s/shm/rank%d", options->group ? options->group : "group0", leader_of(comm));
}

ls_hello ls_handshake_hello(const ls_comm *comm) {
    ls_hello hello = {.magic = LS_HELLO_MAGIC,
                      .segment_nbytes = (uint32_t)sizeof(ls_segment),
                      .rank = comm->rank,
                      .world_size = comm->world_size};
    snprintf(hello.allreduce, sizeof hello.allreduce, "%s", comm->allreduce->name);
    return hello;
}

/* --- rank 0 ------------------------------------------------------------------------------------------------------- */

static ls_status make_file(ls_comm *comm) {
    comm->fd = memfd_create("lockstep", MFD_CLOEXEC);
    if (comm->fd < 0 || ftruncate(comm->fd, (off_t)ls_control_nbytes(comm->world_size)) != 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot make the group's shared memory: %s (is ulimit -f set?)", strerror(errno));
    if (comm->transport->over_hosts && (comm->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot make an eventfd: %s", strerror(errno));
    ls_status status = ls_shm_map(comm);
    /* Until a rank is served it waits for this one (find_culprit in wait.c). */
    for (int r = comm->leader + 1; status == LS_OK && r < comm->world_size; r++) {
        if (!ls_is_on_this_host(comm, r)) continue;
        atomic_store(&comm->segment->slot[r].awaited_value, 1);
        atomic_store(&comm->segment->slot[r].awaits, comm->leader + 1);
    }
    return status;
}

static ls_status listen_on(const ls_comm *comm, char name[LS_NAME_BYTES], int *listener) {
    if (ls_secret_make(name, LS_NAME_BYTES - 1) != LS_OK) return LS_ERR_SYSTEM;
    struct sockaddr_un address;
    socklen_t nbytes = abstract_address(&address, name);
    *listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (*listener >= 0 && bind(*listener, (struct sockaddr *)&address, nbytes) == 0 &&
        listen(*listener, comm->world_size) == 0)
        return LS_OK;
    return ls_fail(LS_ERR_SYSTEM, "rank %d cannot listen for the other ranks: %s", leader_of(comm), strerror(errno));
}

/* Sends with the answer the group's file and, over several hosts, the mirror's eventfd. */
static bool send_answer(const ls_comm *comm, int connection, const struct answer *answer) {
    union control control;
    const int fds[] = {comm->fd, comm->kick_fd};
    size_t nbytes = comm->kick_fd >= 0 ? sizeof fds : sizeof *fds;
    memset(&control, 0, sizeof control);
    struct iovec data = {.iov_base = (void *)(uintptr_t)answer, .iov_len = sizeof *answer};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (answer->status == LS_OK) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(nbytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(nbytes);
        memcpy(CMSG_DATA(header), fds, nbytes);
    }
    return sendmsg(connection, &message, MSG_NOSIGNAL) == (ssize_t)sizeof *answer;
}

void ls_handshake_judge(const ls_comm *comm, const ls_hello *theirs, char *text, size_t capacity) {
    const ls_hello hello = ls_handshake_hello(comm), *mine = &hello;
    int caller = ls_job_rank(comm, theirs->rank), self = ls_job_rank(comm, comm->rank);
    text[0] = '\0';
    if (theirs->segment_nbytes != mine->segment_nbytes) {
        snprintf(text, capacity, "the ranks run different builds of this program");
    } else if (theirs->world_size != mine->world_size) {
        snprintf(text, capacity, "rank %d counts %d ranks, but rank %d counts %d", caller, theirs->world_size, self,
                 mine->world_size);
    } else if (strncmp(theirs->allreduce, mine->allreduce, sizeof mine->allreduce) != 0) {
        snprintf(text, capacity, "rank %d uses the all-reduce algorithm %.*s, but rank %d uses %s", caller,
                 (int)sizeof theirs->allreduce - 1, theirs->allreduce, self, mine->allreduce);
    }
}

static bool is_expected(const ls_comm *comm, const ls_hello *theirs, const bool *served) {
    return theirs->rank >= 0 && theirs->rank < comm->world_size && !served[theirs->rank] &&
           ls_is_on_this_host(comm, theirs->rank);
}

/* Serves one caller. Callers that send no valid greeting are dropped: they are not part of the group. */
static ls_status serve(ls_comm *comm, int connection, bool *served, double until_us) {
    ls_hello theirs;
    struct answer answer = {.status = LS_OK};
    set_deadline(connection, left_us(until_us) / 2); /* leave time for later callers */
    if (!ls_peer_is_own_user(connection) || recv(connection, &theirs, sizeof theirs, 0) != (ssize_t)sizeof theirs ||
        theirs.magic != LS_HELLO_MAGIC)
        return LS_OK;
    ls_handshake_judge(comm, &theirs, answer.text, sizeof answer.text);
    if (answer.text[0] == '\0' && !is_expected(comm, &theirs, served))
        snprintf(answer.text, sizeof answer.text, "two processes claim to be rank %d", ls_job_rank(comm, theirs.rank));
    if (answer.text[0] != '\0') answer.status = LS_ERR_INVALID;
    if (answer.status == LS_OK) atomic_store(&comm->segment->slot[theirs.rank].awaits, 0);
    bool answered = send_answer(comm, connection, &answer);
    if (answer.status != LS_OK)
        return ls_comm_break(comm, LS_ERR_INVALID, NULL, "cannot form the group: %s", answer.text);
    served[theirs.rank] = answered;
    return LS_OK;
}

static ls_status serve_all(ls_comm *comm, const ls_bootstrap *bootstrap, int listener, double until_us) {
    bool served[LS_COMM_MAX_RANKS];
    for (int r = 0; r < comm->world_size; r++) served[r] = r == comm->leader || !ls_is_on_this_host(comm, r);
    for (;;) {
        bool missing[LS_COMM_MAX_RANKS];
        int count = 0;
        for (int r = 0; r < comm->world_size; r++) count += missing[r] = !served[r];
        if (count == 0) return LS_OK;
        if (left_us(until_us) <= 0) {
            char ranks[LS_RANKS_TEXT_CAPACITY];
            return ls_comm_break(comm, LS_ERR_TIMEOUT, NULL, "%s of %d did not join the group within %g s",
                                 ls_comm_ranks_text(ranks, missing, comm), comm->world_size, comm->timeout_s);
        }
        if (bootstrap->is_over && bootstrap->is_over(bootstrap->context))
            return ls_comm_break(comm, LS_ERR_PEER, NULL, "the group cannot form: its ranks have changed meanwhile");
        set_deadline(listener, bootstrap->is_over ? fmin(left_us(until_us), LS_LOOK_AGAIN_US) : left_us(until_us));
        int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return ls_fail(LS_ERR_SYSTEM, "rank %d cannot accept the other ranks: %s", leader_of(comm),
                           strerror(errno));
        if (connection < 0) continue;
        ls_status status = serve(comm, connection, served, until_us);
        close(connection);
        if (status != LS_OK) return status;
    }
}

ls_status ls_handshake_host(ls_comm *comm, const ls_comm_options *options, double until_us) {
    char name[LS_NAME_BYTES], key[128];
    int listener = -1;
    key_of(key, sizeof key, comm, options);
    ls_status status = make_file(comm);
    if (status == LS_OK) status = listen_on(comm, name, &listener);
    const ls_bootstrap *bootstrap = options->bootstrap;
    if (status == LS_OK) status = bootstrap->set(bootstrap->context, key, name, sizeof name);
    if (status == LS_OK) status = serve_all(comm, bootstrap, listener, until_us);
    if (listener >= 0) close(listener);
    return status;
}

/* --- the other ranks ---------------------------------------------------------------------------------------------- */

static ls_status connect_to(const ls_comm *comm, int connection, const char *name, double until_us) {
    struct sockaddr_un address;
    socklen_t nbytes = abstract_address(&address, name);
    int result, self = ls_job_rank(comm, comm->rank);
    do {
        set_deadline(connection, left_us(until_us));
        result = connect(connection, (struct sockaddr *)&address, nbytes);
    } while (result != 0 && errno == EINTR && left_us(until_us) > 0);
    if (result != 0 && (errno == EAGAIN || errno == EINTR))
        return ls_fail(LS_ERR_TIMEOUT, "rank %d: rank %d did not accept the connection within %g s", self,
                       leader_of(comm), comm->timeout_s);
    if (result != 0)
        return ls_fail(
            LS_ERR_PEER,
            "rank %d cannot reach rank %d, which has given up, has died, or runs on another machine (a group "
            "is of one machine): %s",
            self, leader_of(comm), strerror(errno));
    if (!ls_peer_is_own_user(connection))
        return ls_fail(LS_ERR_PEER, "the process that poses as rank %d belongs to another user", leader_of(comm));
    return LS_OK;
}

/* Takes the descriptors from the message, or sets -1. */
static void take_descriptors(ls_comm *comm, struct msghdr *message) {
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    int fds[] = {-1, -1};
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len <= CMSG_LEN(sizeof fds))
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    comm->fd = fds[0];
    comm->kick_fd = fds[1];
}

static ls_status receive_answer(ls_comm *comm, int connection, double until_us) {
    union control control;
    struct answer answer;
    struct iovec data = {.iov_base = &answer, .iov_len = sizeof answer};
    ssize_t nbytes;
    int self = ls_job_rank(comm, comm->rank);
    struct msghdr message;
    do {
        message = (struct msghdr){
            .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
        set_deadline(connection, left_us(until_us));
        nbytes = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    } while (nbytes < 0 && errno == EINTR && left_us(until_us) > 0);
    if (nbytes < 0 && (errno == EAGAIN || errno == EINTR))
        return ls_fail(LS_ERR_TIMEOUT, "rank %d: rank %d did not answer within %g s", self, leader_of(comm),
                       comm->timeout_s);
    if (nbytes != (ssize_t)sizeof answer)
        return ls_fail(LS_ERR_PEER, "rank %d: rank %d gave up or died while the group formed", self, leader_of(comm));
    take_descriptors(comm, &message);
    if (answer.status == LS_OK && comm->fd >= 0 && (comm->kick_fd >= 0) == comm->transport->over_hosts) return LS_OK;
    if (answer.status == LS_OK)
        return ls_fail(LS_ERR_SYSTEM,
                       "rank %d got no descriptor of the group's memory; check the limit on open files (ulimit -n)",
                       self);
    answer.text[sizeof answer.text - 1] = '\0';
    return ls_fail(LS_ERR_INVALID, "cannot form the group: %s", answer.text);
}

ls_status ls_handshake_join(ls_comm *comm, const ls_comm_options *options, double until_us) {
    char name[LS_NAME_BYTES], key[128];
    size_t nbytes = 0;
    key_of(key, sizeof key, comm, options);
    const ls_bootstrap *bootstrap = options->bootstrap;
    char why[512];
    ls_log_sink before = ls_log_capture(why, sizeof why);
    ls_status status = bootstrap->get(bootstrap->context, key, name, sizeof name, &nbytes);
    ls_log_restore(before);
    if (status != LS_OK) return ls_fail(status, "rank %d did not arrive to form the group: %s", leader_of(comm), why);
    if (nbytes != sizeof name || name[LS_NAME_BYTES - 1] != '\0')
        return ls_fail(LS_ERR_INVALID, "the store's key %s does not hold a socket name", key);
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connection < 0) return ls_fail(LS_ERR_SYSTEM, "cannot open a Unix socket: %s", strerror(errno));
    ls_hello hello = ls_handshake_hello(comm);
    status = connect_to(comm, connection, name, until_us);
    if (status == LS_OK) {
        /* A failure to send shows as a missing answer. */
        (void)!send(connection, &hello, sizeof hello, MSG_NOSIGNAL);
        status = receive_answer(comm, connection, until_us);
    }
    close(connection);
    return status == LS_OK ? ls_shm_map(comm) : status;
}
