/* An attacker that disturbs a training job until it is killed: for tests/hostile.
 * usage: hostile_attacker SEED JOB rude|polite PLACE...     (PLACE: a port of 127.0.0.1, or @NAME of a Unix socket)
 *   rude  : garbage, idle connections, half a message, requests of all kinds on the group's keys, without a hello, or
 *           after one with a guess at the job's token
 *   polite: the same without the requests after a hello with no token, which a job without a token accepts from any
 *           process
 * Prints a dot when it has attacked every place once. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ddp_procs/launch/store_protocol.h"

enum { IDLE = 200, LONGEST_S = 120 };

static unsigned long long state;

static unsigned draw(unsigned below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

static int connect_to(const char *place) {
    struct sockaddr_in port = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    bool is_name = place[0] == '@';
    if (is_name)
        snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s", place + 1);
    else
        port.sin_port = htons((unsigned short)atoi(place));
    const struct sockaddr *address = is_name ? (const struct sockaddr *)&name : (const struct sockaddr *)&port;
    size_t length = is_name ? offsetof(struct sockaddr_un, sun_path) + strlen(place) : sizeof port;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, address, (socklen_t)length) == 0) return fd;
    usleep(500); /* a connect over loopback may need a moment */
    return fd;
}

static void say(int fd, const void *bytes, size_t nbytes) {
    (void)!send(fd, bytes, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say_hello(int fd, const char *job, const char *token) {
    unsigned char bytes[DDP_HELLO_NBYTES];
    ddp_hello hello = {.pass = {.world_size = 2, .rank = (int)draw(2)}, .client = "0123456789abcdef0123456789abcdef"};
    snprintf(hello.pass.job, sizeof hello.pass.job, "%s", job);
    snprintf(hello.pass.token, sizeof hello.pass.token, "%s", token);
    ddp_hello_write(bytes, &hello);
    if (draw(4) == 0) bytes[draw(sizeof bytes)] ^= (unsigned char)(1 + draw(255));
    say(fd, bytes, sizeof bytes - (draw(4) == 0 ? 1 + draw(sizeof bytes - 1) : 0));
}

static void say_request(int fd) {
    static const char *const keys[] = {"group0/shm/rank0", "settings/0", "settings/rank1", "group0/rank0",
                                       "store/done"};
    static unsigned char value[DDP_STORE_VALUE_MAX];
    unsigned char header[DDP_REQUEST_HEADER_NBYTES];
    const char *key = keys[draw(sizeof keys / sizeof *keys)];
    size_t nbytes = draw(2) ? DDP_STORE_VALUE_MAX : draw(64);
    ddp_request_header_write(header, &(ddp_request_header){(ddp_store_operation)(2 + draw(9)), strlen(key), nbytes});
    say(fd, header, sizeof header);
    say(fd, key, strlen(key));
    say(fd, value, nbytes);
}

static void say_garbage(int fd) {
    unsigned char bytes[1024];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)draw(256);
    if (draw(2)) memcpy(bytes, "LSH1", 4);
    for (unsigned times = 1 + draw(8); times > 0; times--) say(fd, bytes, 1 + draw(sizeof bytes));
}

static void visit(const char *place, const char *job, bool is_rude) {
    static const char *const guesses[] = {"guess", "x", "0123456789abcdef0123456789abcdef"};
    int fd = connect_to(place);
    if (fd < 0) return;
    switch (draw(3)) {
    case 0: say_garbage(fd); break;
    case 1: say_request(fd); break;
    default:
        say_hello(fd, job, is_rude && draw(3) == 0 ? "" : guesses[draw(sizeof guesses / sizeof *guesses)]);
        for (unsigned times = draw(4); times > 0; times--) say_request(fd);
    }
    char reply[512];
    (void)!recv(fd, reply, sizeof reply, MSG_DONTWAIT);
    close(fd);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    state = strtoull(argv[1], NULL, 10);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(LONGEST_S);
    int idle[IDLE];
    for (int i = 0; i < IDLE; i++) idle[i] = -1;
    for (unsigned long round = 0;; round++) {
        for (int p = 4; p < argc; p++) {
            int *slot = &idle[draw(IDLE)];
            if (*slot >= 0) close(*slot);
            *slot = connect_to(argv[p]);
            visit(argv[p], argv[2], strcmp(argv[3], "rude") == 0);
        }
        if (round == 0) {
            putchar('.');
            fflush(stdout);
        }
        usleep(500 + draw(2000)); /* leave some CPU time to the job */
    }
}
