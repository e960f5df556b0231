/* The store's server with two clients that send any bytes in pieces of any size, over socket pairs and without the
 * server's thread.
 *
 * The input is a list of pieces: a byte whose lowest bit selects the client that sends, and whose upper bits are the
 * number of bytes that follow (0: the client leaves). Both clients are admitted at first; a client that has left
 * reconnects with its next piece, and is not admitted. */
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ddp_procs/launch/store_meeting.h"
#include "ddp_procs/launch/store_session.h"
#include "tests/fuzz/targets/targets.h"

enum { CLIENTS = 2 };

struct peer {
    int fd;         /* -1: it has left */
    ddp_session *c; /* NULL: the server has closed it */
};

static void connect_peer(struct peer *peer) {
    int fds[2];
    fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0, "there are sockets");
    *peer = (struct peer){fds[1], ddp_session_open(fds[0], INFINITY)};
    fuzz_require(peer->c != NULL, "there is memory");
}

static void admit(ddp_service *service, const struct peer *peer, int rank) {
    ddp_hello hello = {.pass = service->admission.pass, .client = "01234567890123456789012345678901"};
    hello.pass.rank = peer->c->rank = rank;
    fuzz_require(ddp_admit(&service->admission, &hello) == DDP_RESULT_OK, "a rank with a pass comes in");
    peer->c->admitted = true;
    peer->c->phase = DDP_READING_HEADER;
    service->admitted_count++;
}

static void leave(ddp_service *service, struct peer *peer) {
    if (peer->c) ddp_session_close(service, peer->c);
    if (peer->fd >= 0) close(peer->fd);
    *peer = (struct peer){-1, NULL};
}

static void advance(ddp_service *service, struct peer *peer) {
    bool before = peer->c->admitted;
    bool alive = ddp_session_advance(service, peer->c);
    const ddp_session *c = peer->c;
    const unsigned char *token = c->header + DDP_HELLO_NBYTES - DDP_TOKEN_CAPACITY;
    fuzz_require(before || !c->admitted || memcmp(token, service->admission.pass.token, DDP_TOKEN_CAPACITY) == 0,
                 "nobody comes in without the token");
    fuzz_require(c->admitted || c->phase == DDP_GREETING || c->phase == DDP_WRITING, "a stranger is served nothing");
    fuzz_require(!alive || c->phase != DDP_WAITING || strlen(c->key) == c->request.key_nbytes, "a key is a string");
    if (alive) return;
    ddp_session_close(service, peer->c);
    peer->c = NULL;
}

/* All ranks that arrive are on the list, and all on the list are members. */
static void serve_meeting(ddp_service *service, struct peer peers[CLIENTS]) {
    unsigned char list[DDP_MEETING_NBYTES];
    ddp_session *sessions[CLIENTS];
    size_t nbytes = 0;
    int count = 0, waiting = 0;
    for (int i = 0; i < CLIENTS; i++)
        if (peers[i].c) sessions[count++] = peers[i].c;
    for (int i = 0; i < count; i++) waiting += sessions[i]->phase == DDP_MEETING;
    fuzz_require(waiting == service->meetings.waiting, "who waits is counted");
    if (ddp_meeting_judge(service, sessions, count, 0, list, &nbytes) != DDP_MEETING_IS_HELD) return;
    fuzz_require(nbytes == 8 + (size_t)waiting * (8 + DDP_SAID_NBYTES), "who comes is listed");
    for (int i = 0; i < CLIENTS; i++) {
        if (!peers[i].c || peers[i].c->phase != DDP_MEETING) continue;
        bool alive = ddp_session_end_meeting(service, peers[i].c, true, (ddp_bytes){list, nbytes});
        fuzz_require(peers[i].c->is_member, "who has come is a member");
        if (alive) continue;
        ddp_session_close(service, peers[i].c);
        peers[i].c = NULL;
    }
    fuzz_require(service->meetings.waiting == 0, "nobody is left waiting");
}

/* The server's work after poll: serves the client, and then all clients that wait for a key, or for each other. */
static void serve_peer(ddp_service *service, struct peer peers[CLIENTS], int which) {
    advance(service, &peers[which]);
    for (int i = 0; i < CLIENTS; i++) {
        if (!peers[i].c || ddp_session_serve_waiting(service, peers[i].c)) continue;
        ddp_session_close(service, peers[i].c);
        peers[i].c = NULL;
    }
    serve_meeting(service, peers);
}

/* Reads all replies, so that the server can continue. */
static void read_replies(const struct peer *peer) {
    unsigned char bytes[4096];
    while (peer->fd >= 0 && recv(peer->fd, bytes, sizeof bytes, 0) > 0) continue;
}

static void send_piece(ddp_service *service, struct peer peers[CLIENTS], int which, const uint8_t *data,
                       size_t nbytes) {
    struct peer *peer = &peers[which];
    if (nbytes == 0) {
        close(peer->fd);
        peer->fd = -1;
        if (peer->c) serve_peer(service, peers, which);
        leave(service, peer);
        return;
    }
    if (peer->fd < 0) connect_peer(peer);
    if (!peer->c) return;
    fuzz_require(send(peer->fd, data, nbytes, MSG_NOSIGNAL) == (ssize_t)nbytes, "a socket takes a piece");
    /* header, body and reply are a phase each, and a piece may end one request and begin the next */
    for (size_t i = 0; i < nbytes + 2 && peer->c; i += 16) {
        bool waits = peer->c->phase == DDP_WAITING || peer->c->phase == DDP_MEETING;
        if (waits && i > 0) break; /* the server does not read its socket now */
        serve_peer(service, peers, which);
        read_replies(peer);
    }
}

/* For all bytes that are accepted as a header: writing it gives the bytes that were read. */
static void check_headers(const uint8_t *data, size_t nbytes) {
    unsigned char again[DDP_HELLO_NBYTES], twice[DDP_HELLO_NBYTES];
    ddp_hello hello;
    ddp_request_header request;
    ddp_reply_header reply;
    if (nbytes >= DDP_REQUEST_HEADER_NBYTES && ddp_request_header_read(&request, data)) {
        ddp_request_header_write(again, &request);
        fuzz_require(memcmp(again, data, DDP_REQUEST_HEADER_NBYTES) == 0, "a request's header has one form");
        fuzz_require(ddp_store_operation_name(request.operation)[0] != 'u', "an operation has a name");
    }
    if (nbytes >= DDP_REPLY_HEADER_NBYTES && ddp_reply_header_read(&reply, data)) {
        ddp_reply_header_write(again, &reply);
        fuzz_require(memcmp(again, data, DDP_REPLY_HEADER_NBYTES) == 0, "a reply's header has one form");
    }
    if (nbytes >= DDP_HELLO_NBYTES && ddp_hello_read(&hello, data)) { /* bytes after a text may be anything */
        ddp_hello_write(again, &hello);
        fuzz_require(ddp_hello_read(&hello, again), "what is written can be read");
        ddp_hello_write(twice, &hello);
        fuzz_require(memcmp(again, twice, DDP_HELLO_NBYTES) == 0, "a hello that was written has one form");
    }
}

void fuzz_store_protocol(const uint8_t *data, size_t nbytes) {
    struct peer peers[CLIENTS];
    ddp_service service = {.admission.pass = {.token = "token", .job = "job", .world_size = 2}, .patience_us = 1e6};
    check_headers(data, nbytes);
    service.table = ddp_store_table_create();
    fuzz_require(service.table != NULL, "there is memory");
    for (int i = 0; i < CLIENTS; i++) {
        connect_peer(&peers[i]);
        admit(&service, &peers[i], i);
    }
    while (nbytes > 0) {
        size_t length = data[0] >> 1;
        int which = data[0] & 1;
        data++, nbytes--;
        if (length > nbytes) length = nbytes;
        send_piece(&service, peers, which, data, length);
        data += length, nbytes -= length;
    }
    for (int i = 0; i < CLIENTS; i++) leave(&service, &peers[i]);
    fuzz_require(service.admitted_count == 0, "clients are counted");
    for (int i = 0; i < LS_COMM_MAX_RANKS; i++) fuzz_require(service.admission.present[i] == 0, "ranks are counted");
    ddp_store_table_destroy(service.table);
}
