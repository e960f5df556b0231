/* A key-value store for the rendezvous of a job's ranks. One process serves it, all are clients.
 *
 * Keys are text of 1 to DDP_STORE_KEY_MAX bytes, values 0 to DDP_STORE_VALUE_MAX bytes of anything. Each operation is
 * atomic. Waiting operations end at the client's deadline.
 *
 * Where: host and port of TCP over IPv4, or a host "unix:NAME", a Unix socket in the abstract namespace of this machine
 * (the port is then ignored): it has no file, so nothing is left behind.
 *
 * Admission. Over a Unix socket: processes of the same user, which the kernel confirms to both sides. Over TCP: clients
 * that know the token. Without a token the server listens on loopback only, and any user of the machine is admitted. A
 * client presents its pass before any other request, and is refused by name if it belongs to another job. The token is
 * sent unencrypted: it protects against attackers who can reach the port, not against those who can read the traffic or
 * impersonate the server; for that, use a trusted network or a tunnel.
 *
 * A process without a pass can at most hold a few connections for a second each. A client with a pass can at most fill
 * the store, DDP_STORE_KEYS_MAX keys and DDP_STORE_TOTAL_MAX bytes.
 *
 * Errors: LS_ERR_TIMEOUT (a key was not set, or the server not reached, in time), LS_ERR_PEER (the server ended, or
 * belongs to another user), LS_ERR_INVALID (key or value out of bounds, buffer too small, not a number),
 * LS_ERR_NO_MEMORY (the store is full), LS_ERR_USAGE (a required token is missing; the server refuses the pass). Each
 * message names the key and the store's address. After a timeout or a lost connection the next operation reconnects.
 * Threads: one at a time per client; any number of clients per process. */
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

/* Serves an empty store from a thread of this process, to clients whose pass matches `pass`. Values of `host`:
 *     "unix"                    a Unix socket with an unpredictable name
 *     "127.0.0.1", "localhost"  this machine's loopback (any 127.x.y.z)
 *     anything else             all IPv4 addresses of the machine; LS_ERR_USAGE without a token
 * Port 0: a free one. A client that sends malformed data, or stops in the middle of a request, is dropped; so is one
 * that presents no pass within a second. Other clients are not affected. */
ls_status ddp_store_serve_job(ddp_store_server **out, const char *host, int port, const ddp_store_pass *pass);

/* The same for clients of ddp_store_connect: an empty pass. */
ls_status ddp_store_serve(ddp_store_server **out, const char *host, int port);

/* The address for clients: the host ("unix:NAME" for "unix"), valid while the server exists, and the port (for tests,
 * which let the system choose one). */
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

/* Disconnects. If this handle also serves the store (rank 0), it first waits at most a second for the other ranks to
 * disconnect, so that they can still read keys that this rank has read. NULL is a no-op. */
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

/* The participants of a meeting, by rank, and the data that each passed. */
enum { DDP_SAID_NBYTES = 64 };
typedef struct ddp_meeting {
    int64_t number; /* 1, 2, ...: of this store */
    int count;
    int rank[LS_COMM_MAX_RANKS];
    unsigned char said[LS_COMM_MAX_RANKS][DDP_SAID_NBYTES];
} ddp_meeting;

/* A repeated rendezvous: waits for all other members, and for new clients if fewer than `least` participate. All get
 * the same list. A client is a member from its first meeting until its connection ends. Members that do not arrive
 * within the timeout of another member are excluded, and their connections closed: a later operation of theirs
 * reconnects, as a non-member. LS_ERR_TIMEOUT: fewer than `least` arrived, or this is not a member and the members did
 * not arrive. */
ls_status ddp_store_meet(ddp_store *store, int least, const void *said, size_t nbytes, ddp_meeting *meeting);

/* Whether a meeting is due: a member has left, or a client waits for one. */
ls_status ddp_store_is_due(ddp_store *store, bool *due);

/* The view that process groups use to find each other. Valid while `store` is. */
ls_bootstrap ddp_store_bootstrap(ddp_store *store);

#endif
