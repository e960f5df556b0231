/* store_enter: connects, shows the pass, and reads whether the store admits it.
 *   fails : a server with many connections without a pass may drop a client before it has read its hello. So if the
 *           connection is closed before the reply, it is retried for some seconds. A server that answers in another
 *           protocol is not a store. */
#include "ddp_procs/launch/store_enter.h"

#include <ctype.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/store_connect.h"

#define CLOSED_FIRST_MS 5.0
#define CLOSED_LAST_MS 200.0
enum { CLOSED_TRIES = 20 }; /* about 3 s */

typedef struct answer {
    ddp_store_result result;
    char value[LS_JOB_CAPACITY]; /* terminated */
} answer;

/* LS_ERR_FORMAT: the bytes received are not a reply. */
static ls_status send_hello(int fd, const ddp_hello *hello, answer *a, double until_us) {
    unsigned char bytes[DDP_HELLO_NBYTES], head[DDP_REPLY_HEADER_NBYTES];
    ddp_reply_header header;
    ddp_hello_write(bytes, hello);
    ls_status status = ddp_socket_send(fd, bytes, sizeof bytes, until_us);
    if (status == LS_OK) status = ddp_socket_receive(fd, head, sizeof head, until_us);
    if (status != LS_OK) return status;
    if (!ddp_reply_header_read(&header, head) || header.nbytes >= sizeof a->value) return LS_ERR_FORMAT;
    *a = (answer){.result = header.result};
    return ddp_socket_receive(fd, a->value, header.nbytes, until_us);
}

enum { JOB_TEXT_CAPACITY = LS_JOB_CAPACITY + 8 };

static const char *job_text(char text[JOB_TEXT_CAPACITY], const char *job) {
    if (job[0] == '\0') return "a job without a name";
    snprintf(text, JOB_TEXT_CAPACITY, "job '%s'", job);
    for (char *c = text; *c; c++)
        if (!isprint((unsigned char)*c)) *c = '?'; /* it may come from an untrusted server */
    return text;
}

/* The names of a client, its job's size and port, for messages. */
static const struct words {
    const char *client, *clients, *size, *port, *job;
} words[] = {{"rank", "ranks", "WORLD_SIZE", "MASTER_PORT", "LS_JOB"},
             {"host", "hosts", "--nnodes", "--master-port", "--rdzv-id"}};

static ls_status fail_refused(const ddp_store_door *door, const answer *a) {
    const ddp_store_pass *pass = &door->hello.pass;
    const struct words *w = &words[pass->of_agent];
    char theirs[JOB_TEXT_CAPACITY], mine[JOB_TEXT_CAPACITY];
    switch (a->result) {
    case DDP_RESULT_OTHER_TOKEN:
        return ls_fail(LS_ERR_USAGE,
                       "the store at %s refuses %s %d: %s; give all %s of a job the same token, and each job a port of "
                       "its own (%s)",
                       door->place, w->client, pass->rank,
                       pass->token[0] ? "its LS_JOB_TOKEN differs from the job's" : "its LS_JOB_TOKEN is not set",
                       w->clients, w->port);
    case DDP_RESULT_OTHER_JOB:
        return ls_fail(LS_ERR_USAGE,
                       "the store at %s serves %s, but this %s %d belongs to %s: give each job a port of its own "
                       "(%s), and all %s of a job the same %s",
                       door->place, job_text(theirs, a->value), w->client, pass->rank, job_text(mine, pass->job),
                       w->port, w->clients, w->job);
    case DDP_RESULT_OTHER_SIZE:
        return ls_fail(LS_ERR_USAGE,
                       "the store at %s serves a job of %d %s, but this %s %d belongs to a job of %d (%s): give each "
                       "job a port of its own (%s)",
                       door->place, (int)ddp_i64_read((const unsigned char *)a->value), w->clients, w->client,
                       pass->rank, pass->world_size, w->size, w->port);
    case DDP_RESULT_RANK_TAKEN:
        return ls_fail(LS_ERR_USAGE,
                       "the store at %s already has a %s %d: the same was started twice, or belongs to another job, "
                       "which needs a port of its own (%s)",
                       door->place, w->client, pass->rank, w->port);
    default: return ls_fail(LS_ERR_NO_MEMORY, "the store at %s cannot take another client", door->place);
    }
}

static ls_status fail_hello(const ddp_store_door *door, ls_status status) {
    if (status == LS_ERR_PEER)
        return ls_fail(status,
                       "the process that listens at %s closed the connection: has the process that serves the store "
                       "(rank 0, or the launcher) ended, or is the port another program's?",
                       door->place);
    return ls_fail(status == LS_ERR_FORMAT ? LS_ERR_INVALID : status,
                   "the process that listens at %s does not answer as a store of this program: check the port",
                   door->place);
}

ls_status ddp_store_enter(int *fd, const ddp_store_door *door, bool retry, double until_us) {
    double pause_ms = CLOSED_FIRST_MS;
    for (int tries = 1;; tries++) {
        answer a;
        ls_status status = ddp_socket_connect(fd, door->host, door->port, retry, until_us);
        if (status != LS_OK) return status;
        status = send_hello(*fd, &door->hello, &a, until_us);
        if (status == LS_OK && a.result == DDP_RESULT_OK) return LS_OK;
        close(*fd);
        *fd = -1;
        if (status == LS_OK) return fail_refused(door, &a);
        double left_ms = (until_us - ls_now_us()) * 1e-3;
        if (status != LS_ERR_PEER || tries == CLOSED_TRIES || left_ms <= 0) return fail_hello(door, status);
        poll(NULL, 0, (int)fmin(pause_ms, left_ms));
        pause_ms = fmin(2 * pause_ms, CLOSED_LAST_MS);
    }
}
