/* mirror_connect — connects the leaders of a group's hosts.
 *   idea  : each leader listens on its host's address, at a port of its own, and publishes both, with a random word, in
 *           the bootstrap store. It connects to the leaders of lower ranks and accepts those of higher ranks. Both
 *           sides of a connection send the other's word as a greeting, which only ranks of this job can know
 *   order : a host accepts hosts of higher rank only after it has connected to all lower ones, so the lowest that is
 *           not connected is always served
 *   cost  : a connection between each two hosts, once per group
 *   fails : every wait ends at the deadline. A host that did not connect, refuses, or does not answer is named with its
 *           ranks and address, and with the variable to set. Connections from outside the job are dropped */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/comm/mirror.h"
#include "common/comm/wait.h"

#define LS_WORD_BYTES 33       /* 32 hexadecimal digits and a zero byte */
#define LS_LOOK_AGAIN_US 5e4   /* interval of checks that the group may still form */
#define LS_GREETING_US 2e6     /* for the greeting of a new connection */
#define LS_UNREACHABLE_MS 5000 /* without an acknowledgement; half the deadline, if that is shorter */
#define LS_WHICH_NETWORK "set LS_SOCKET_IFNAME to the interface of the network (on rank 0's host: MASTER_ADDR)"

/* The data that a leader publishes. */
struct card {
    ls_hello hello;
    char address[16], word[LS_WORD_BYTES];
    int32_t port;
};

struct greeting {
    char word[LS_WORD_BYTES]; /* the receiver's */
    int32_t leader;
    int64_t now_ms; /* the sender's clock */
};

/* A connection that is being made. */
struct joining {
    ls_comm *comm;
    const ls_comm_options *options;
    double until_us;
    struct card mine;
    int listener;
};

static double left_us(const struct joining *j) {
    double left = j->until_us - ls_now_us();
    return left > 0 ? left : 0;
}

static void key_of(char *key, size_t capacity, const struct joining *j, int leader) {
    snprintf(key, capacity, "%s/mirror/rank%d", j->options->group ? j->options->group : "group0",
             ls_job_rank(j->comm, leader));
}

static const char *host_text(char text[LS_RANKS_TEXT_CAPACITY], const struct joining *j, const ls_mirror_host *host) {
    return ls_comm_ranks_text(text, host->ranks, j->comm);
}

/* --- cards and greetings -------------------------------------------------------------------------------------------- */

static ls_status listen_here(struct joining *j) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t nbytes = sizeof address;
    struct card *mine = &j->mine;
    mine->hello = ls_handshake_hello(j->comm);
    snprintf(mine->address, sizeof mine->address, "%s", j->comm->address);
    if (inet_pton(AF_INET, mine->address, &address.sin_addr) != 1)
        return ls_comm_break(
            j->comm, LS_ERR_INVALID, NULL,
            "rank %d: \"%s\" is not an IPv4 address by which other hosts can reach this one; " LS_WHICH_NETWORK,
            ls_job_rank(j->comm, j->comm->rank), mine->address);
    if (ls_secret_make(mine->word, sizeof mine->word - 1) != LS_OK) return LS_ERR_SYSTEM;
    j->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (j->listener < 0 || bind(j->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(j->listener, LS_COMM_MAX_RANKS) != 0 ||
        getsockname(j->listener, (struct sockaddr *)&address, &nbytes) != 0)
        return ls_comm_break(j->comm, LS_ERR_SYSTEM, NULL,
                             "rank %d cannot listen on %s for the other hosts: %s; " LS_WHICH_NETWORK,
                             ls_job_rank(j->comm, j->comm->rank), mine->address, strerror(errno));
    mine->port = ntohs(address.sin_port);
    return LS_OK;
}

static ls_status publish(const struct joining *j) {
    char key[128];
    key_of(key, sizeof key, j, j->comm->rank);
    const ls_bootstrap *bootstrap = j->options->bootstrap;
    ls_status status = bootstrap->set(bootstrap->context, key, &j->mine, sizeof j->mine);
    if (status != LS_OK) (void)ls_comm_abort(j->comm, "the rank cannot store its host's address");
    return status;
}

static ls_status fetch(const struct joining *j, const ls_mirror_host *host, struct card *card) {
    char key[128], why[512], ranks[LS_RANKS_TEXT_CAPACITY];
    size_t nbytes = 0;
    const ls_bootstrap *bootstrap = j->options->bootstrap;
    key_of(key, sizeof key, j, host->leader);
    ls_log_sink before = ls_log_capture(why, sizeof why);
    ls_status status = bootstrap->get(bootstrap->context, key, card, sizeof *card, &nbytes);
    ls_log_restore(before);
    if (status != LS_OK)
        return ls_comm_break(j->comm, status, NULL, "the host with %s did not join the group: %s",
                             host_text(ranks, j, host), why);
    char text[220] = "";
    bool other_build = nbytes != sizeof *card || card->hello.segment_nbytes != j->mine.hello.segment_nbytes;
    if (other_build) snprintf(text, sizeof text, "the hosts run different builds of this program");
    if (!other_build) ls_handshake_judge(j->comm, &card->hello, text, sizeof text);
    if (text[0] == '\0') return LS_OK;
    return ls_comm_break(j->comm, LS_ERR_INVALID, NULL, "cannot form the group: %s (the host with %s)", text,
                         host_text(ranks, j, host));
}

static bool send_greeting(const struct joining *j, int fd, const struct card *to) {
    struct greeting greeting = {.leader = j->comm->rank, .now_ms = ls_coarse_now_ms()};
    memcpy(greeting.word, to->word, sizeof greeting.word);
    return send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) == (ssize_t)sizeof greeting;
}

/* False if no valid greeting of this job arrives within `wait_us`. */
static bool receive_greeting(const struct joining *j, int fd, double wait_us, struct greeting *greeting) {
    struct pollfd file = {.fd = fd, .events = POLLIN};
    double until_us = ls_now_us() + wait_us;
    size_t got = 0;
    while (got < sizeof *greeting) {
        double rest_us = until_us - ls_now_us();
        if (rest_us <= 0) return false;
        (void)poll(&file, 1, (int)(rest_us / 1e3) + 1);
        ssize_t nbytes = recv(fd, (char *)greeting + got, sizeof *greeting - got, 0);
        if (nbytes < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (nbytes <= 0) return false;
        got += (size_t)nbytes;
    }
    return ls_secret_equal(greeting->word, j->mine.word, sizeof j->mine.word);
}

static void accept_host(const struct joining *j, ls_mirror_host *host, int fd, const struct card *card,
                        int64_t clock_ms) {
    int on = 1, unreachable_ms = LS_UNREACHABLE_MS;
    if (j->comm->timeout_s * 500 < unreachable_ms) unreachable_ms = (int)(j->comm->timeout_s * 500) + 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unreachable_ms, sizeof unreachable_ms);
    host->fd = fd;
    host->clock_ms = clock_ms;
    atomic_store(&j->comm->segment->heard_ms[host->leader], ls_coarse_now_ms());
    memcpy(host->address, card->address, sizeof host->address);
    host->address[sizeof host->address - 1] = '\0';
}

/* --- to the hosts of lower ranks ------------------------------------------------------------------------------------ */

/* 0, or an errno. */
static int try_connect(const struct joining *j, int fd, const struct card *card) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)card->port)};
    struct pollfd file = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t nbytes = sizeof error;
    if (fd < 0) return errno;
    if (inet_pton(AF_INET, card->address, &address.sin_addr) != 1) return EINVAL;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    while (left_us(j) > 0) {
        if (poll(&file, 1, (int)(left_us(j) / 1e3) + 1) <= 0) continue;
        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) == 0 ? error : errno;
    }
    return ETIMEDOUT;
}

static ls_status refuse(const struct joining *j, const ls_mirror_host *host, const struct card *card, const char *why) {
    char ranks[LS_RANKS_TEXT_CAPACITY];
    bool loopback = strncmp(card->address, "127.", 4) == 0;
    return ls_comm_break(j->comm, LS_ERR_PEER, NULL,
                         "rank %d cannot reach the host with %s at %.15s, port %d: %s; %s%s",
                         ls_job_rank(j->comm, j->comm->rank), host_text(ranks, j, host), card->address, (int)card->port,
                         why, loopback ? "the address is this host's own: " : "", LS_WHICH_NETWORK);
}

static ls_status connect_to(const struct joining *j, ls_mirror_host *host) {
    struct card card;
    struct greeting greeting;
    ls_status status = fetch(j, host, &card);
    if (status != LS_OK) return status;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = try_connect(j, fd, &card);
    bool greeted = error == 0 && send_greeting(j, fd, &card) && receive_greeting(j, fd, left_us(j), &greeting);
    if (greeted) {
        accept_host(j, host, fd, &card, ls_coarse_now_ms() - greeting.now_ms);
        return LS_OK;
    }
    if (fd >= 0) close(fd);
    if (error == ETIMEDOUT) return refuse(j, host, &card, "no answer (a firewall?)");
    return refuse(j, host, &card, error ? strerror(error) : "the program that answers there belongs to another job");
}

/* --- from the hosts of higher ranks --------------------------------------------------------------------------------- */

static ls_mirror_host *host_of(const struct ls_mirror *m, int leader) {
    for (int h = 0; h < m->host_count; h++)
        if (m->hosts[h].leader == leader) return &m->hosts[h];
    return NULL;
}

/* Answers one connection's greeting; drops it if it is not from this job. */
static ls_status serve(const struct joining *j, int fd) {
    struct greeting greeting;
    struct card card;
    double wait_us = left_us(j) / 2 < LS_GREETING_US ? left_us(j) / 2 : LS_GREETING_US;
    bool known = receive_greeting(j, fd, wait_us, &greeting);
    ls_mirror_host *host = known ? host_of(j->comm->mirror, greeting.leader) : NULL;
    ls_status status = LS_OK;
    bool expected = host && host->fd < 0 && host->leader > j->comm->rank;
    if (expected) status = fetch(j, host, &card);
    if (expected && status == LS_OK && send_greeting(j, fd, &card))
        accept_host(j, host, fd, &card, ls_coarse_now_ms() - greeting.now_ms);
    else
        close(fd);
    return status;
}

static ls_status accept_others(const struct joining *j) {
    const struct ls_mirror *m = j->comm->mirror;
    const ls_bootstrap *bootstrap = j->options->bootstrap;
    struct pollfd file = {.fd = j->listener, .events = POLLIN};
    for (;;) {
        bool missing[LS_COMM_MAX_RANKS] = {false}, any = false;
        for (int h = 0; h < m->host_count; h++) {
            if (m->hosts[h].fd >= 0) continue;
            any = true;
            for (int r = 0; r < j->comm->world_size; r++) missing[r] = missing[r] || m->hosts[h].ranks[r];
        }
        if (!any) return LS_OK;
        char ranks[LS_RANKS_TEXT_CAPACITY];
        if (left_us(j) <= 0)
            return ls_comm_break(j->comm, LS_ERR_TIMEOUT, NULL,
                                 "no connection came from the host of %s to %s, port %d, within %g s: the host's ranks "
                                 "have not started, or a firewall drops connections (" LS_WHICH_NETWORK ")",
                                 ls_comm_ranks_text(ranks, missing, j->comm), j->mine.address, (int)j->mine.port,
                                 j->comm->timeout_s);
        if (bootstrap->is_over && bootstrap->is_over(bootstrap->context))
            return ls_comm_break(j->comm, LS_ERR_PEER, NULL, "the group cannot form: its ranks have changed meanwhile");
        double wait_us = left_us(j) < LS_LOOK_AGAIN_US ? left_us(j) : LS_LOOK_AGAIN_US;
        if (poll(&file, 1, (int)(wait_us / 1e3) + 1) <= 0) continue;
        int fd = accept4(j->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        ls_status status = fd >= 0 ? serve(j, fd) : LS_OK;
        if (status != LS_OK) return status;
    }
}

/* --- all of it ------------------------------------------------------------------------------------------------------ */

static ls_status make_mirror(ls_comm *comm) {
    struct ls_mirror *m = comm->mirror = calloc(1, sizeof *m);
    ls_status status = m ? LS_OK : LS_ERR_NO_MEMORY;
    if (m) m->hosts = calloc((size_t)comm->world_size, sizeof *m->hosts);
    if (m) m->comm = comm;
    if (m && (!m->hosts || ls_mirror_make_shadow(m) != LS_OK)) status = LS_ERR_NO_MEMORY;
    if (status != LS_OK)
        return ls_comm_break(comm, status, NULL, "cannot allocate memory to join this host to the others");
    for (int r = 0; r < comm->world_size; r++) {
        if (ls_is_on_this_host(comm, r)) continue;
        int h = 0, leader = ls_leader_of(comm, r);
        while (h < m->host_count && m->hosts[h].leader != leader) h++;
        if (h == m->host_count) m->hosts[m->host_count++] = (ls_mirror_host){.leader = r, .fd = -1};
        m->hosts[h].ranks[r] = true;
    }
    return LS_OK;
}

ls_status ls_mirror_connect(ls_comm *comm, const ls_comm_options *options, double until_us) {
    struct joining j = {.comm = comm, .options = options, .until_us = until_us, .listener = -1};
    ls_status status = make_mirror(comm);
    if (status == LS_OK) status = listen_here(&j);
    if (status == LS_OK) status = publish(&j);
    for (int h = 0; status == LS_OK && h < comm->mirror->host_count; h++)
        if (comm->mirror->hosts[h].leader < comm->rank) status = connect_to(&j, &comm->mirror->hosts[h]);
    if (status == LS_OK) status = accept_others(&j);
    if (j.listener >= 0) close(j.listener);
    return status;
}
