/* The protocol between the store's clients and server. Private to the files of the store.
 *
 *     hello    magic u32 | world_size u32 | rank u32 | 4 bytes 0 | client 32 bytes | job 128 bytes | token 128 bytes
 *     request  magic u32 | operation u8 | 3 bytes 0 | key_nbytes u32 | 4 bytes 0 | value_nbytes u64 | 8 bytes 0 |
 *              key | value
 *     reply    magic u32 | result u8 | 3 bytes 0 | nbytes u64 | value
 *
 * Integers are little-endian, text ends with zeros. A connection begins with the hello; one reply answers it and each
 * request, in order; a client sends the next request when it has the reply. The magics differ, so that a socket
 * connected to itself is not taken for a server. */
#ifndef DDP_LAUNCH_STORE_PROTOCOL_H
#define DDP_LAUNCH_STORE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ddp_procs/launch/store.h"

enum {
    DDP_CLIENT_NBYTES = 32,
    DDP_HELLO_NBYTES = 16 + DDP_CLIENT_NBYTES + LS_JOB_CAPACITY + DDP_TOKEN_CAPACITY,
    DDP_REQUEST_HEADER_NBYTES = 32,
    DDP_REPLY_HEADER_NBYTES = 16,
    DDP_MEET_SAID_AT = 16,
    DDP_MEET_NBYTES = DDP_MEET_SAID_AT + DDP_SAID_NBYTES,
    DDP_MEETING_NBYTES = 8 + LS_COMM_MAX_RANKS * (8 + DDP_SAID_NBYTES) /* of the longest reply */
};

/* X(name, number on the wire, bytes of the request's value); DDP_ANY: 0 to DDP_STORE_VALUE_MAX. Requests with other
 * numbers, some of which had a meaning once, are refused. */
#define DDP_ANY (-1)
#define DDP_STORE_OPERATIONS(X)                                                                                        \
    X(SET, 2, DDP_ANY)                                                                                                 \
    X(GET, 3, 0)   /* the reply comes when the key exists */                                                           \
    X(ADD, 4, 8)   /* the amount, i64; reply: the sum, i64 */                                                          \
    X(CHECK, 7, 0) /* reply: 1 or 0, i64 */                                                                            \
    X(MEET, 10,                                                                                                        \
      DDP_MEET_NBYTES) /* at least so many, i64; patience in ms, i64; what the client says; the reply comes  \
                                  * with the meeting: its number, i64, then of each who came rank, i64, and what it said */         \
    X(IS_DUE, 11, 0)   /* reply: whether the members have a reason to meet, 1 or 0, i64 */

#define DDP_STORE_ENUM(name, number, nbytes) DDP_OP_##name = (number),
typedef enum ddp_store_operation { DDP_STORE_OPERATIONS(DDP_STORE_ENUM) } ddp_store_operation;
#undef DDP_STORE_ENUM

typedef enum ddp_store_result {
    DDP_RESULT_OK = 0,
    DDP_RESULT_NOT_A_NUMBER = 1, /* ADD to a key that holds none, or over the end of int64 */
    DDP_RESULT_NO_MEMORY = 2,
    DDP_RESULT_FULL = 3,
    DDP_RESULT_TOO_FEW = 8, /* to MEET */
    /* to a hello that is refused; the connection is closed behind it */
    DDP_RESULT_OTHER_TOKEN = 4,
    DDP_RESULT_OTHER_JOB = 5,  /* value: the server's */
    DDP_RESULT_OTHER_SIZE = 6, /* value: the server's, i64 */
    DDP_RESULT_RANK_TAKEN = 7
} ddp_store_result;

typedef struct ddp_bytes {
    const void *data;
    size_t nbytes;
} ddp_bytes;

/* A client's first message. `client` is a random name that it keeps for its whole life. It tells a rank that connects
 * again from a second process that claims the same rank. */
typedef struct ddp_hello {
    ddp_store_pass pass;
    char client[DDP_CLIENT_NBYTES + 1];
} ddp_hello;

typedef struct ddp_request_header {
    ddp_store_operation operation;
    size_t key_nbytes, value_nbytes;
} ddp_request_header;

typedef struct ddp_reply_header {
    ddp_store_result result;
    size_t nbytes;
} ddp_reply_header;

void ddp_hello_write(unsigned char bytes[DDP_HELLO_NBYTES], const ddp_hello *hello);

/* False if the bytes are no hello: wrong magic or padding, a rank that cannot be, no client, text without an end. */
bool ddp_hello_read(ddp_hello *hello, const unsigned char bytes[DDP_HELLO_NBYTES]);

void ddp_request_header_write(unsigned char bytes[DDP_REQUEST_HEADER_NBYTES], const ddp_request_header *header);

/* False if the bytes are no valid header: wrong magic or padding, unknown operation, lengths that it cannot have. */
bool ddp_request_header_read(ddp_request_header *header, const unsigned char bytes[DDP_REQUEST_HEADER_NBYTES]);

void ddp_reply_header_write(unsigned char bytes[DDP_REPLY_HEADER_NBYTES], const ddp_reply_header *header);
bool ddp_reply_header_read(ddp_reply_header *header, const unsigned char bytes[DDP_REPLY_HEADER_NBYTES]);

void ddp_i64_write(unsigned char bytes[8], int64_t value);
int64_t ddp_i64_read(const unsigned char bytes[8]);

/* "GET", "SET", ... */
const char *ddp_store_operation_name(ddp_store_operation operation);

#endif
