/* A key-value store over TCP: how the ranks of a job find each other. One process serves it, all are clients.
 *
 * Keys are text of 1 to DDP_STORE_KEY_MAX bytes, values 0 to DDP_STORE_VALUE_MAX bytes of anything. Each operation is
 * atomic. Waiting operations end at the deadline that the client was opened with.
 *
 * Errors: LS_ERR_TIMEOUT (a key or the server did not come in time), LS_ERR_PEER (the server ended), LS_ERR_INVALID (key or
 * value out of bounds, buffer too small, no number to add to). Each message names the key and host:port. After a
 * timeout or a lost connection the next operation connects anew.
 * Threads: one at a time per client; any number of clients per process. */
#ifndef DDP_STORE_H
#define DDP_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/comm/comm.h"
#include "ddp_procs/rank.h"

#define DDP_STORE_KEY_MAX 1024
#define DDP_STORE_VALUE_MAX ((size_t)16 << 20)

/* --- the server ----------------------------------------------------------------------------------------------------- */

typedef struct ddp_store_server ddp_store_server;

/* Serves an empty store from a thread of this process. It listens on 127.0.0.1 if `host` is this machine's loopback
 * ("127.0.0.1", "localhost"), else on all IPv4 addresses of the machine. Port 0: one that is free.
 * A client that sends nonsense, or stays in the middle of a request, is dropped; the others do not notice. */
ls_status ddp_store_serve(ddp_store_server **out, const char *host, int port);

/* The port that it listens on. */
int ddp_store_server_port(const ddp_store_server *server);

/* How long a client may stay in the middle of a request, or leave a reply unread, before it is dropped. Default 10
 * s. */
void ddp_store_server_set_patience(ddp_store_server *server, double patience_s);

/* Ends the thread, drops all clients, forgets all keys; before that it waits at most `linger_s` for the clients to
 * leave by themselves. NULL is a no-op. */
void ddp_store_server_stop(ddp_store_server *server, double linger_s);

/* --- the clients ---------------------------------------------------------------------------------------------------- */

typedef struct ddp_store ddp_store;

/* Connects, trying again until the server is there or timeout_s (> 0) is over. */
ls_status ddp_store_connect(ddp_store **out, const char *host, int port, double timeout_s);

/* The store of the job that `self` belongs to: rank 0 also serves it, unless the launcher does. `self->launched` must
 * be true. */
ls_status ddp_store_open(ddp_store **out, const ddp_rank *self, double timeout_s);

/* Disconnects. Where this handle also serves (rank 0), it first waits a second at most for the other ranks to close
 * theirs, so that a rank may still read what this one has seen. NULL is a no-op. */
void ddp_store_close(ddp_store *store);

/* Creates or overwrites the key, and wakes those who wait for it. */
ls_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t nbytes);

/* Waits for the key and copies its value; *nbytes is its size, also when LS_ERR_INVALID says that it exceeds
 * capacity. */
ls_status ddp_store_get(ddp_store *store, const char *key, void *value, size_t capacity, size_t *nbytes);

/* Adds to the integer that the key holds as decimal text (0 if it does not exist); *sum is the new value. A key that
 * holds no number, or a sum that int64 cannot hold, is LS_ERR_INVALID and changes nothing. */
ls_status ddp_store_add(ddp_store *store, const char *key, int64_t amount, int64_t *sum);

typedef struct ddp_bytes {
    const void *data;
    size_t nbytes;
} ddp_bytes;

/* If the key holds `expected` (or does not exist and `expected` is empty), stores `desired`. The result is what the key
 * holds then; for a key that does not exist and is not stored, it is `expected`. */
ls_status ddp_store_compare_set(ddp_store *store, const char *key, ddp_bytes expected, ddp_bytes desired, void *result,
                                size_t capacity, size_t *nbytes);

/* Waits until each of the keys has existed. */
ls_status ddp_store_wait(ddp_store *store, const char *const *keys, size_t count);

/* Whether the key exists now. */
ls_status ddp_store_check(ddp_store *store, const char *key, bool *exists);

/* *existed says whether there was such a key. */
ls_status ddp_store_delete_key(ddp_store *store, const char *key, bool *existed);

ls_status ddp_store_num_keys(ddp_store *store, int64_t *count);

/* The view that process groups use to find each other. Valid while `store` is. */
ls_bootstrap ddp_store_bootstrap(ddp_store *store);

#endif
