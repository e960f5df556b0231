/* store_session: the phases of a client in the server: hello, admission; then request by request.
 *   fails : a client that sends an invalid hello or request, that leaves in the middle of one, or sends out of turn, is
 *           to be closed; its incomplete request is dropped. */
#include "ddp_procs/launch/store_session.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp_procs/launch/store_meeting.h"

ddp_session *ddp_session_open(int fd, double deadline_us) {
    ddp_session *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return NULL;
    }
    c->fd = fd;
    c->deadline_us = deadline_us;
    return c;
}

void ddp_session_close(ddp_service *service, ddp_session *c) {
    ddp_meeting_leave(service, c);
    if (c->admitted) {
        service->admitted_count--;
        ddp_admission_leave(&service->admission, c->rank);
    }
    close(c->fd);
    free(c->body);
    free(c->reply);
    free(c);
}

/* --- replies ---------------------------------------------------------------------------------------------------------- */

/* False: no memory for the reply, drop the client. */
static bool start_reply(ddp_session *c, ddp_store_result result, ddp_bytes value) {
    c->reply_nbytes = DDP_REPLY_HEADER_NBYTES + value.nbytes;
    c->reply = malloc(c->reply_nbytes);
    if (!c->reply) return false;
    ddp_reply_header_write(c->reply, &(ddp_reply_header){result, value.nbytes});
    if (value.nbytes) memcpy(c->reply + DDP_REPLY_HEADER_NBYTES, value.data, value.nbytes);
    free(c->body);
    c->body = NULL;
    c->phase = DDP_WRITING;
    c->done = 0;
    return true;
}

static bool start_number_reply(ddp_session *c, ddp_store_result result, int64_t number) {
    unsigned char bytes[8];
    ddp_i64_write(bytes, number);
    return start_reply(c, result, result == DDP_RESULT_OK ? (ddp_bytes){bytes, sizeof bytes} : (ddp_bytes){NULL, 0});
}

/* --- requests ---------------------------------------------------------------------------------------------------------- */

/* Answers a complete request, or lets it wait for its key. */
static bool execute(ddp_service *service, ddp_session *c) {
    ddp_store_table *table = service->table;
    ddp_bytes value = {c->body + c->request.key_nbytes, c->request.value_nbytes};
    const ddp_bytes *found;
    int64_t sum = 0;
    ddp_store_result result;
    switch (c->request.operation) {
    case DDP_OP_SET: return start_reply(c, ddp_store_table_set(table, c->key, value), (ddp_bytes){NULL, 0});
    case DDP_OP_ADD:
        result = ddp_store_table_add(table, c->key, ddp_i64_read(value.data), &sum);
        return start_number_reply(c, result, sum);
    case DDP_OP_GET:
        found = ddp_store_table_find(table, c->key);
        if (found) return start_reply(c, DDP_RESULT_OK, *found);
        c->phase = DDP_WAITING;
        c->deadline_us = INFINITY;
        return true;
    case DDP_OP_CHECK: return start_number_reply(c, DDP_RESULT_OK, ddp_store_table_find(table, c->key) != NULL);
    case DDP_OP_MEET: return ddp_meeting_enter(service, c);
    case DDP_OP_IS_DUE: return start_number_reply(c, DDP_RESULT_OK, ddp_meeting_is_due(service));
    }
    return false;
}

/* --- phases: each does what it can without blocking; false: drop the client -------------------------------------------- */

/* One recv, up to `nbytes` in total; *complete: all have arrived. */
static bool receive(ddp_session *c, unsigned char *bytes, size_t nbytes, bool *complete) {
    *complete = c->done == nbytes;
    if (*complete) return true;
    ssize_t got = recv(c->fd, bytes + c->done, nbytes - c->done, 0);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    c->done += (size_t)got;
    *complete = c->done == nbytes;
    return true;
}

/* The reason to refuse a client with this hello, or DDP_RESULT_OK. */
static ddp_store_result check_hello(ddp_service *service, const ddp_hello *hello) {
    if (service->admitted_count >= DDP_CLIENTS_MAX) return DDP_RESULT_FULL;
    return ddp_admit(&service->admission, hello);
}

static bool refuse(const ddp_service *service, ddp_session *c, ddp_store_result why) {
    const ddp_store_pass *pass = &service->admission.pass;
    unsigned char size[8];
    ddp_i64_write(size, pass->world_size);
    ddp_bytes value = {NULL, 0};
    if (why == DDP_RESULT_OTHER_JOB) value = (ddp_bytes){pass->job, strlen(pass->job)};
    if (why == DDP_RESULT_OTHER_SIZE) value = (ddp_bytes){size, sizeof size};
    return start_reply(c, why, value);
}

static bool read_hello(ddp_service *service, ddp_session *c) {
    bool complete;
    ddp_hello hello;
    if (!receive(c, c->header, DDP_HELLO_NBYTES, &complete)) return false;
    if (!complete) return true;
    if (!ddp_hello_read(&hello, c->header)) return false;
    ddp_store_result why = check_hello(service, &hello);
    if (why != DDP_RESULT_OK) return refuse(service, c, why);
    c->admitted = true;
    c->rank = hello.pass.rank;
    service->admitted_count++;
    c->deadline_us = ls_now_us() + service->patience_us;
    return start_reply(c, DDP_RESULT_OK, (ddp_bytes){NULL, 0});
}

static bool read_body(ddp_service *service, ddp_session *c) {
    bool complete;
    size_t key_nbytes = c->request.key_nbytes;
    if (!receive(c, c->body, key_nbytes + c->request.value_nbytes, &complete)) return false;
    if (!complete) return true;
    if (memchr(c->body, '\0', key_nbytes)) return false;
    memcpy(c->key, c->body, key_nbytes);
    c->key[key_nbytes] = '\0';
    return execute(service, c);
}

static bool read_header(ddp_service *service, ddp_session *c) {
    bool complete;
    if (!receive(c, c->header, DDP_REQUEST_HEADER_NBYTES, &complete)) return false;
    if (c->done > 0 && isinf(c->deadline_us)) c->deadline_us = ls_now_us() + service->patience_us;
    if (!complete) return true;
    if (!ddp_request_header_read(&c->request, c->header)) return false;
    c->body = malloc(c->request.key_nbytes + c->request.value_nbytes + 1);
    if (!c->body) return false;
    c->phase = DDP_READING_BODY;
    c->done = 0;
    return read_body(service, c);
}

static bool write_reply(ddp_session *c) {
    ssize_t sent = send(c->fd, c->reply + c->done, c->reply_nbytes - c->done, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    c->done += (size_t)sent;
    if (c->done < c->reply_nbytes) return true;
    free(c->reply);
    c->reply = NULL;
    if (!c->admitted) return false; /* the reply with the refusal has been sent */
    c->phase = DDP_READING_HEADER;
    c->done = 0;
    c->deadline_us = INFINITY;
    return true;
}

bool ddp_session_advance(ddp_service *service, ddp_session *c) {
    bool alive = true;
    if (c->phase == DDP_WAITING || c->phase == DDP_MEETING)
        return false; /* its socket is readable: it left, or sends out of turn */
    if (c->phase == DDP_GREETING)
        alive = read_hello(service, c);
    else if (c->phase == DDP_READING_HEADER)
        alive = read_header(service, c);
    else if (c->phase == DDP_READING_BODY)
        alive = read_body(service, c);
    if (alive && c->phase == DDP_WRITING) alive = write_reply(c);
    return alive;
}

bool ddp_session_serve_waiting(ddp_service *service, ddp_session *c) {
    if (c->phase != DDP_WAITING) return true;
    const ddp_bytes *found = ddp_store_table_find(service->table, c->key);
    if (!found) return true;
    c->deadline_us = ls_now_us() + service->patience_us;
    return start_reply(c, DDP_RESULT_OK, *found) && write_reply(c);
}

bool ddp_session_end_meeting(ddp_service *service, ddp_session *c, bool held, ddp_bytes list) {
    ddp_meeting_end(service, c, held);
    c->phase = DDP_WRITING;
    c->deadline_us = ls_now_us() + service->patience_us;
    return start_reply(c, held ? DDP_RESULT_OK : DDP_RESULT_TOO_FEW, list) && write_reply(c);
}
