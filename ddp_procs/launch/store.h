/* A key-value store: how the ranks of a job find each other. One process serves it, all are clients.
 *
 * Keys are text of 1 to DDP_STORE_KEY_MAX bytes, values 0 to DDP_STORE_VALUE_MAX bytes of anything. Each operation is
 * atomic. Waiting operations end at the deadline that the client was opened with.
 *
 * Where: host and port of TCP over IPv4, or a host "unix:NAME", a Unix socket in the abstract namespace of this machine
 * (the port means nothing then): it has no file, so nothing stays behind.
 *
 * Who may come in. Over a Unix socket: processes of the same user, as the kernel confirms to both sides. Over TCP:
 * clients that know the token. Without a token the server listens on loopback only, and any user of the machine may
 * come. A client shows its pass before anything else is served, and is refused by name if it belongs to another job.
 * The token goes over the network as it is: it keeps out those who can reach the port, not those who can read the
 * traffic or take the server's place; for that, use a network that you trust, or a tunnel.
 *
 * What a stranger can do: hold a few connections for a second each. What a client with a pass can: at most fill the
 * store, DDP_STORE_KEYS_MAX keys and DDP_STORE_TOTAL_MAX bytes.
 *
 * Errors: LS_ERR_TIMEOUT (a key or the server did not come in time), LS_ERR_PEER (the server ended, or belongs to
 * another user), LS_ERR_INVALID (key or value out of bounds, buffer too small, no number to add to), LS_ERR_NO_MEMORY
 * (the store is full), LS_ERR_USAGE (no token where one is needed; a pass that the server refuses). Each message names
 * the key and the store's place. After a timeout or a lost connection the next operation connects anew. Threads: one at
 * a time per client; any number of clients per process. */
#ifndef DDP_LAUNCH_STORE_H
#define DDP_LAUNCH_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/comm/comm.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/launch/store_pass.h"

/* Groups store names and ids of some hundred bytes, ranks their options: a few KiB each. */
#define DDP_STORE_KEY_MAX 1024
#define DDP_STORE_VALUE_MAX ((size_t)64 << 10)
#define DDP_STORE_KEYS_MAX 4096
#define DDP_STORE_TOTAL_MAX ((size_t)8 << 20) /* bytes of all keys and values */

/* --- the server ----------------------------------------------------------------------------------------------------- */

typedef struct ddp_store_server ddp_store_server;

/* Serves an empty store from a thread of this process, to those whose pass goes with `pass`. `host` says where:
 *     "unix"                    a Unix socket with a name that nobody can foresee
 *     "127.0.0.1", "localhost"  this machine's loopback (any 127.x.y.z)
 *     anything else             all IPv4 addresses of the machine; LS_ERR_USAGE without a token
 * Port 0: one that is free. A client that sends nonsense, or stays in the middle of a request, is dropped; so is one
 * that has shown no pass within a second. The others do not notice. */
ls_status ddp_store_serve_job(ddp_store_server **out, const char *host, int port, const ddp_store_pass *pass);

/* The same for clients of ddp_store_connect: an empty pass. */
ls_status ddp_store_serve(ddp_store_server **out, const char *host, int port);

/* Where clients find it: the host ("unix:NAME" for "unix"), valid while the server is, and the port that it listens on
 * (for tests, which let the system choose one). */
const char *ddp_store_server_host(const ddp_store_server *server);
int ddp_store_server_port(const ddp_store_server *server);

/* Whether a client of that rank has been admitted since the server began. Safe in any thread. */
bool ddp_store_server_has_joined(const ddp_store_server *server, int rank);

/* Whether a client of that rank has a connection now. Safe in any thread. */
bool ddp_store_server_is_present(const ddp_store_server *server, int rank);

/* Whether a meeting has been held (ddp_store_meet). Safe in any thread. */
bool ddp_store_server_has_met(const ddp_store_server *server);

/* How long a client may stay in the middle of a request, or leave a reply unread, before it is dropped. Default 10
 * s. For tests, which would wait for that long. */
void ddp_store_server_set_patience(ddp_store_server *server, double patience_s);

/* Ends the thread, drops all clients, forgets all keys; before that it waits at most `linger_s` for the clients to
 * leave by themselves. NULL is a no-op. */
void ddp_store_server_stop(ddp_store_server *server, double linger_s);

/* --- the clients ---------------------------------------------------------------------------------------------------- */

typedef struct ddp_store ddp_store;

/* How long operations wait from now on, timeout_s > 0. */
void ddp_store_set_timeout(ddp_store *store, double timeout_s);

/* Connects and shows the pass, trying again until the server is there or timeout_s (> 0) is over. */
ls_status ddp_store_join(ddp_store **out, const char *host, int port, const ddp_store_pass *pass, double timeout_s);

/* The same with an empty pass. */
ls_status ddp_store_connect(ddp_store **out, const char *host, int port, double timeout_s);

/* The store of the job that `self` belongs to: rank 0 also serves it, unless the launcher does. `self->launched` must
 * be true. The pass has `self->job`, and for a token LS_JOB_TOKEN of the environment, the same for all ranks (the
 * launcher makes one). Where all ranks are on this machine and there is no launcher's socket, the store is on loopback,
 * whatever MASTER_ADDR says. A rank 0 that serves without a token says in one line that any user of the machine can
 * come in. */
ls_status ddp_store_open(ddp_store **out, const ddp_rank *self, double timeout_s);

/* The IPv4 address of this end of the connection; false: there is no connection, or none over TCP. */
bool ddp_store_own_address(const ddp_store *store, char address[DDP_IPV4_CAPACITY]);

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

/* Whether the key exists now. */
ls_status ddp_store_check(ddp_store *store, const char *key, bool *exists);

/* Who came to a meeting, by rank, and what each said. */
enum { DDP_SAID_NBYTES = 64 };
typedef struct ddp_meeting {
    int64_t number; /* 1, 2, ...: of this store */
    int count;
    int rank[LS_COMM_MAX_RANKS];
    unsigned char said[LS_COMM_MAX_RANKS][DDP_SAID_NBYTES];
} ddp_meeting;

/* Meets all other members, who are those that have met before and still live, and whoever else comes; at least `least`.
 * All get the same list. A client is a member from its first meeting on, until its connection ends. Members that do not
 * come within the timeout of another member are left out, and their connections closed: a later operation of
 * theirs connects anew, as no member. LS_ERR_TIMEOUT: fewer than `least` came, or this is no member and the members did not
 * come. */
ls_status ddp_store_meet(ddp_store *store, int least, const void *said, size_t nbytes, ddp_meeting *meeting);

/* Whether the members have a reason to meet: one of them has gone, or somebody waits. */
ls_status ddp_store_is_due(ddp_store *store, bool *due);

/* The view that process groups use to find each other. Valid while `store` is. */
ls_bootstrap ddp_store_bootstrap(ddp_store *store);

#endif
