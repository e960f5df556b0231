/* The store's server, fed by two clients that may say anything in pieces of any size. The server's phases are static
 * functions, so this file takes them in, and drives them over socket pairs without the server's thread.
 *
 * The input is a list of pieces: a byte whose lowest bit says which client sends, and whose upper bits how many of the
 * bytes that follow (0: the client leaves). */
#define ddp_store_serve fuzz_store_serve /* its external functions are not to meet the library's */
#define ddp_store_server_port fuzz_store_server_port
#define ddp_store_server_set_patience fuzz_store_server_set_patience
#define ddp_store_server_stop fuzz_store_server_stop
#include "ddp_procs/store_server.c" // NOLINT: its phases are static functions

#include "tests/fuzz/targets/targets.h"

enum { CLIENTS = 2 };

struct peer {
    int fd; /* -1: it has left */
    client *server_side;
};

static bool is_served(const ddp_store_server *server, const client *c) {
    for (int i = 0; i < server->client_count; i++) {
        if (server->clients[i] == c) return true;
    }
    return false;
}

static void connect_peer(ddp_store_server *server, struct peer *peer) {
    int fds[2];
    fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0, "there are sockets");
    client *c = calloc(1, sizeof *c);
    fuzz_require(c != NULL, "there is memory");
    c->fd = fds[0];
    c->deadline_us = INFINITY;
    server->clients[server->client_count++] = c;
    *peer = (struct peer){fds[1], c};
}

/* What poll would have the server do: let the client go on, and then all who wait for a key. */
static void serve_peer(ddp_store_server *server, const struct peer *peer) {
    for (int i = 0; i < server->client_count; i++) {
        client *c = server->clients[i];
        if (c != peer->server_side) continue;
        bool alive = advance(server, c);
        fuzz_require(!alive || c->phase != WAITING || strlen(c->key) == c->request.key_nbytes, "a key is a string");
        if (!alive) drop(server, i);
    }
    serve_waiters(server);
}

/* Takes whatever has come, so that the server can go on. */
static void read_replies(const struct peer *peer) {
    unsigned char bytes[4096];
    while (peer->fd >= 0 && recv(peer->fd, bytes, sizeof bytes, 0) > 0) continue;
}

static void send_piece(ddp_store_server *server, struct peer *peer, const uint8_t *data, size_t nbytes) {
    if (peer->fd < 0 || !is_served(server, peer->server_side)) return;
    if (nbytes == 0) {
        close(peer->fd);
        peer->fd = -1;
    } else {
        fuzz_require(send(peer->fd, data, nbytes, MSG_NOSIGNAL) == (ssize_t)nbytes, "a socket takes a piece");
    }
    /* header, body, reply: a phase each, and a piece may end one request and begin the next */
    for (size_t i = 0; i < nbytes + 2 && is_served(server, peer->server_side); i += 16) {
        client *c = peer->server_side;
        if (c->phase == WAITING && nbytes > 0 && i > 0) break; /* its socket is silent now */
        serve_peer(server, peer);
        read_replies(peer);
    }
}

/* What is written is what is read, for all that is taken as a header. */
static void check_headers(const uint8_t *data, size_t nbytes) {
    unsigned char again[DDP_REQUEST_HEADER_NBYTES];
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
}

void fuzz_store_protocol(const uint8_t *data, size_t nbytes) {
    struct peer peers[CLIENTS];
    check_headers(data, nbytes);
    ddp_store_server *server = calloc(1, sizeof *server);
    fuzz_require(server != NULL, "there is memory");
    server->listen_fd = server->wake_fd = -1;
    server->patience_us = PATIENCE_DEFAULT_US;
    server->table = ddp_store_table_create();
    for (int i = 0; i < CLIENTS; i++) connect_peer(server, &peers[i]);
    while (nbytes > 0) {
        size_t length = data[0] >> 1;
        struct peer *peer = &peers[data[0] & 1];
        data++, nbytes--;
        if (length > nbytes) length = nbytes;
        send_piece(server, peer, data, length);
        data += length, nbytes -= length;
    }
    fuzz_require(ddp_store_table_count(server->table) >= 0, "keys are counted");
    free_server(server);
    for (int i = 0; i < CLIENTS; i++) {
        if (peers[i].fd >= 0) close(peers[i].fd);
    }
}
