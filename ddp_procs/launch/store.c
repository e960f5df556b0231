/* store: the client's side. A connection begins with the client's pass (store_enter.h); then each operation is one
 * request and one reply (store_protocol.h).
 *   fails : a connection on which a reply is still owed (after a timeout) or lost is closed, and the next operation
 *           makes a new one; so a late reply is never matched with a later request. */
#define _GNU_SOURCE
#include "ddp_procs/launch/store.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "ddp_procs/launch/store_connect.h"
#include "ddp_procs/launch/store_enter.h"
#include "ddp_procs/launch/store_pass.h"
#include "ddp_procs/launch/store_protocol.h"

#define SERVER_LINGER_S 1.0
#define MEETING_GRACE_S 5.0 /* the server's timeout ends before the client's */

struct ddp_store {
    ddp_store_door door;
    int fd; /* -1: connects at the next operation */
    double timeout_s;
    bool is_member;           /* it has been at a meeting */
    ddp_store_server *server; /* if this handle also serves the store */
};

/* One operation: the request, and the storage for the reply. */
typedef struct exchange {
    ddp_store_operation operation;
    const char *key;
    ddp_bytes given; /* the request's value */
    void *value;
    size_t capacity, nbytes; /* of the buffer for the reply's value; its size */
} exchange;

static void disconnect(ddp_store *store) {
    if (store->fd >= 0) close(store->fd);
    store->fd = -1;
}

/* --- one request, one reply ----------------------------------------------------------------------------------------- */

static ls_status check(const ddp_store *store, const exchange *x) {
    const char *name = ddp_store_operation_name(x->operation);
    size_t key_nbytes = strlen(x->key);
    if (key_nbytes < 1 || key_nbytes > DDP_STORE_KEY_MAX)
        return ls_fail(LS_ERR_INVALID, "store at %s: %s with a key of %zu bytes; expected 1 to %d", store->door.place,
                       name, key_nbytes, DDP_STORE_KEY_MAX);
    if (x->given.nbytes > DDP_STORE_VALUE_MAX)
        return ls_fail(LS_ERR_INVALID, "store at %s: %s of key '%s' with %zu bytes; expected at most %zu",
                       store->door.place, name, x->key, x->given.nbytes, DDP_STORE_VALUE_MAX);
    return LS_OK;
}

static ls_status send_request(const ddp_store *store, const exchange *x, double until_us) {
    unsigned char head[DDP_REQUEST_HEADER_NBYTES + DDP_STORE_KEY_MAX];
    size_t key_nbytes = strlen(x->key);
    const ddp_request_header header = {x->operation, key_nbytes, x->given.nbytes};
    ddp_request_header_write(head, &header);
    memcpy(head + DDP_REQUEST_HEADER_NBYTES, x->key, key_nbytes);
    ls_status status = ddp_socket_send(store->fd, head, DDP_REQUEST_HEADER_NBYTES + key_nbytes, until_us);
    return status == LS_OK ? ddp_socket_send(store->fd, x->given.data, x->given.nbytes, until_us) : status;
}

/* LS_ERR_FORMAT: the bytes received are not a reply. A value larger than x->capacity stays in the socket. */
static ls_status receive_reply(const ddp_store *store, exchange *x, ddp_store_result *result, double until_us) {
    unsigned char bytes[DDP_REPLY_HEADER_NBYTES];
    ddp_reply_header header;
    ls_status status = ddp_socket_receive(store->fd, bytes, sizeof bytes, until_us);
    if (status != LS_OK) return status;
    if (!ddp_reply_header_read(&header, bytes)) return LS_ERR_FORMAT;
    *result = header.result;
    x->nbytes = header.nbytes;
    if (x->nbytes > x->capacity) return LS_OK;
    return ddp_socket_receive(store->fd, x->value, x->nbytes, until_us);
}

static ls_status fail_exchange(const ddp_store *store, const exchange *x, ls_status status) {
    const char *name = ddp_store_operation_name(x->operation);
    if (status == LS_ERR_FORMAT)
        return ls_fail(LS_ERR_INVALID,
                       "the process that listens at %s does not answer as a store of this program: check the port",
                       store->door.place);
    if (status == LS_ERR_PEER)
        return ls_fail(
            status, "the store at %s closed the connection during %s of key '%s': has rank 0, or the launcher, ended?",
            store->door.place, name, x->key);
    if (x->operation == DDP_OP_GET)
        return ls_fail(status,
                       "key '%s' did not arrive within %g s from the store at %s: did the rank that sets it fail?",
                       x->key, store->timeout_s, store->door.place);
    return ls_fail(status, "the store at %s did not answer %s of key '%s' within %g s", store->door.place, name, x->key,
                   store->timeout_s);
}

static ls_status check_reply(ddp_store *store, const exchange *x, ddp_store_result result) {
    if (result == DDP_RESULT_NOT_A_NUMBER)
        return ls_fail(LS_ERR_INVALID,
                       "store at %s: cannot add to key '%s': the value is not a whole number, or the sum is too large",
                       store->door.place, x->key);
    if (result == DDP_RESULT_TOO_FEW)
        return ls_fail(LS_ERR_TIMEOUT, "too few ranks met at the store at %s within %g s", store->door.place,
                       store->timeout_s - MEETING_GRACE_S);
    if (result == DDP_RESULT_FULL)
        return ls_fail(LS_ERR_NO_MEMORY,
                       "the store at %s is full, key '%s' has no room: expected at most %d keys, and %zu bytes",
                       store->door.place, x->key, DDP_STORE_KEYS_MAX, DDP_STORE_TOTAL_MAX);
    if (result == DDP_RESULT_NO_MEMORY)
        return ls_fail(LS_ERR_NO_MEMORY, "the store at %s has no memory for key '%s'", store->door.place, x->key);
    if (x->nbytes <= x->capacity) return LS_OK;
    disconnect(store); /* the value that does not fit is still in the socket */
    return ls_fail(LS_ERR_INVALID, "store at %s: key '%s' holds %zu bytes, more than the expected %zu",
                   store->door.place, x->key, x->nbytes, x->capacity);
}

static double deadline_us(const ddp_store *store) { return ls_now_us() + store->timeout_s * 1e6; }

void ddp_store_set_timeout(ddp_store *store, double timeout_s) { store->timeout_s = timeout_s; }

static ls_status perform(ddp_store *store, exchange *x) {
    double until_us = deadline_us(store);
    ddp_store_result result = DDP_RESULT_OK;
    ls_status status = check(store, x);
    if (status != LS_OK) return status;
    if (store->fd < 0) status = ddp_store_enter(&store->fd, &store->door, false, until_us);
    if (status != LS_OK) return status;
    status = send_request(store, x, until_us);
    if (status == LS_OK) status = receive_reply(store, x, &result, until_us);
    if (status == LS_OK) return check_reply(store, x, result);
    disconnect(store);
    return fail_exchange(store, x, status);
}

/* For the operations whose reply is a number. */
static ls_status perform_number(ddp_store *store, exchange *x, int64_t *number) {
    unsigned char bytes[8] = {0};
    x->value = bytes;
    x->capacity = sizeof bytes;
    ls_status status = perform(store, x);
    x->value = NULL;
    if (status == LS_OK) *number = ddp_i64_read(bytes);
    return status;
}

/* --- open and close ---------------------------------------------------------------------------------------------------- */

ls_status ddp_store_join(ddp_store **out, const char *host, int port, const ddp_store_pass *pass, double timeout_s) {
    *out = NULL;
    bool is_tcp = !ddp_address_socket_name(host);
    if (strlen(host) >= DDP_HOST_CAPACITY || (is_tcp && (port < 1 || port > UINT16_MAX)) || !(timeout_s > 0))
        return ls_fail(LS_ERR_INVALID, "cannot connect to a store at %s:%d with a timeout of %g s", host, port,
                       timeout_s);
    ddp_store *store = calloc(1, sizeof *store);
    if (!store) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the store's client");
    store->fd = -1;
    store->timeout_s = timeout_s;
    store->door = (ddp_store_door){.port = port, .hello.pass = *pass};
    snprintf(store->door.host, sizeof store->door.host, "%s", host);
    ddp_address_text(store->door.place, host, port);
    ls_status status = ls_secret_make(store->door.hello.client, DDP_CLIENT_NBYTES);
    if (status == LS_OK) status = ddp_store_enter(&store->fd, &store->door, true, deadline_us(store));
    if (status != LS_OK) {
        ddp_store_close(store);
        return status;
    }
    *out = store;
    return LS_OK;
}

ls_status ddp_store_connect(ddp_store **out, const char *host, int port, double timeout_s) {
    return ddp_store_join(out, host, port, &(ddp_store_pass){.world_size = 0}, timeout_s);
}

/* On one machine loopback is used, whatever host name the launcher has set. */
static const char *host_of(const ddp_rank *self) {
    const char *host = self->master_host;
    bool is_local = ddp_address_socket_name(host) || ddp_address_is_loopback(host);
    return !is_local && self->local_world_size == self->world_size ? "127.0.0.1" : host;
}

static ls_status serve(ddp_store_server **server, const char *host, int port, const ddp_store_pass *pass) {
    ls_status status = ddp_store_serve_job(server, host, port, pass);
    if (status == LS_OK && pass->token[0] == '\0')
        ls_note(
            "any user of this machine can reach this job's store at %s:%d, and spoil the job: set LS_JOB_TOKEN to the "
            "same random text for all ranks, or start them with ddprun or --spawn",
            host, port);
    return status;
}

ls_status ddp_store_open(ddp_store **out, const ddp_rank *self, double timeout_s) {
    *out = NULL;
    if (!self->launched) return ls_fail(LS_ERR_INVALID, "a process that runs alone has no store to open");
    const char *host = host_of(self);
    ddp_store_pass pass;
    ddp_store_server *server = NULL;
    ls_status status = ddp_store_pass_of_rank(&pass, self);
    if (status == LS_OK) status = ddp_store_pass_check(&pass, host, self->master_port);
    if (status == LS_OK && self->hosts_store) status = serve(&server, host, self->master_port, &pass);
    if (status == LS_OK) status = ddp_store_join(out, host, self->master_port, &pass, timeout_s);
    if (status != LS_OK) {
        ddp_store_server_stop(server, 0);
        return status;
    }
    if (server) (*out)->server = server;
    return LS_OK;
}

bool ddp_store_own_address(const ddp_store *store, char address[DDP_IPV4_CAPACITY]) {
    struct sockaddr_in here = {0};
    socklen_t nbytes = sizeof here;
    return store->fd >= 0 && getsockname(store->fd, (struct sockaddr *)&here, &nbytes) == 0 &&
           here.sin_family == AF_INET && inet_ntop(AF_INET, &here.sin_addr, address, DDP_IPV4_CAPACITY);
}

void ddp_store_close(ddp_store *store) {
    if (!store) return;
    disconnect(store);
    ddp_store_server_stop(store->server, SERVER_LINGER_S);
    free(store);
}

/* --- the operations ----------------------------------------------------------------------------------------------------- */

ls_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t nbytes) {
    exchange x = {.operation = DDP_OP_SET, .key = key, .given = {value, nbytes}};
    return perform(store, &x);
}

ls_status ddp_store_get(ddp_store *store, const char *key, void *value, size_t capacity, size_t *nbytes) {
    exchange x = {.operation = DDP_OP_GET, .key = key, .value = value, .capacity = capacity};
    ls_status status = perform(store, &x);
    *nbytes = x.nbytes;
    return status;
}

ls_status ddp_store_add(ddp_store *store, const char *key, int64_t amount, int64_t *sum) {
    unsigned char bytes[8];
    ddp_i64_write(bytes, amount);
    exchange x = {.operation = DDP_OP_ADD, .key = key, .given = {bytes, sizeof bytes}};
    return perform_number(store, &x, sum);
}

ls_status ddp_store_check(ddp_store *store, const char *key, bool *exists) {
    int64_t number = 0;
    exchange x = {.operation = DDP_OP_CHECK, .key = key};
    ls_status status = perform_number(store, &x, &number);
    *exists = number == 1;
    return status;
}

#define MEETING_KEY "meeting" /* each request has one */

static ls_status read_meeting(const ddp_store *store, const unsigned char *reply, size_t nbytes, ddp_meeting *m) {
    enum { EACH = 8 + DDP_SAID_NBYTES };
    *m = (ddp_meeting){0};
    if (nbytes < 8 || (nbytes - 8) % EACH != 0 || (nbytes - 8) / EACH > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_INVALID, "the store at %s answers MEET with the unexpected size of %zu bytes",
                       store->door.place, nbytes);
    m->number = ddp_i64_read(reply);
    for (const unsigned char *at = reply + 8; at < reply + nbytes; at += EACH, m->count++) {
        m->rank[m->count] = (int)ddp_i64_read(at);
        memcpy(m->said[m->count], at + 8, DDP_SAID_NBYTES);
    }
    return LS_OK;
}

ls_status ddp_store_meet(ddp_store *store, int least, const void *said, size_t nbytes, ddp_meeting *meeting) {
    unsigned char value[DDP_MEET_NBYTES] = {0}, reply[DDP_MEETING_NBYTES];
    ddp_i64_write(value, least);
    ddp_i64_write(value + 8, (int64_t)(store->timeout_s * 1e3));
    memcpy(value + DDP_MEET_SAID_AT, said, nbytes);
    exchange x = {.operation = DDP_OP_MEET,
                  .key = MEETING_KEY,
                  .given = {value, sizeof value},
                  .value = reply,
                  .capacity = sizeof reply};
    store->timeout_s += MEETING_GRACE_S;
    ls_status status = perform(store, &x);
    store->timeout_s -= MEETING_GRACE_S;
    store->is_member = store->is_member || status == LS_OK;
    return status == LS_OK ? read_meeting(store, reply, x.nbytes, meeting) : status;
}

ls_status ddp_store_is_due(ddp_store *store, bool *due) {
    int64_t number = 0;
    exchange x = {.operation = DDP_OP_IS_DUE, .key = MEETING_KEY};
    ls_status status = perform_number(store, &x, &number);
    *due = number == 1;
    return status;
}

static ls_status bootstrap_set(void *context, const char *key, const void *value, size_t nbytes) {
    return ddp_store_set(context, key, value, nbytes);
}

/* A member of a meeting waits for the key only until a new meeting is due. */
static ls_status await_key(ddp_store *store, const char *key) {
    double until_us = deadline_us(store);
    for (double pause_ms = 1; ls_now_us() < until_us; pause_ms = fmin(2 * pause_ms, 20)) {
        bool exists = false, due = false;
        ls_status status = ddp_store_check(store, key, &exists);
        if (status == LS_OK && !exists) status = ddp_store_is_due(store, &due);
        if (status != LS_OK || exists) return status;
        if (due) return ls_fail(LS_ERR_PEER, "key '%s' cannot arrive: the ranks form a new group", key);
        poll(NULL, 0, (int)pause_ms);
    }
    return LS_OK; /* timeout: the operation reports it */
}

static bool bootstrap_is_over(void *context) {
    ddp_store *store = context;
    bool due = false;
    return store->is_member && ddp_store_is_due(store, &due) == LS_OK && due;
}

static ls_status bootstrap_get(void *context, const char *key, void *value, size_t capacity, size_t *nbytes) {
    ddp_store *store = context;
    ls_status status = store->is_member ? await_key(store, key) : LS_OK;
    *nbytes = 0;
    if (status != LS_OK) return status;
    return ddp_store_get(context, key, value, capacity, nbytes);
}

ls_bootstrap ddp_store_bootstrap(ddp_store *store) {
    return (ls_bootstrap){.context = store, .set = bootstrap_set, .get = bootstrap_get, .is_over = bootstrap_is_over};
}
