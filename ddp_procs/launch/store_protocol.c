/* store_protocol: the store's messages as bytes. */
#include "ddp_procs/launch/store_protocol.h"

#include <string.h>

static const uint32_t hello_magic = 0x3148534cu;   /* "LSH1" on the wire; the digit counts versions */
static const uint32_t request_magic = 0x314b534cu; /* "LSK1" */
static const uint32_t reply_magic = 0x3152534cu;   /* "LSR1" */

static void write_number(unsigned char *bytes, uint64_t value, int nbytes) {
    for (int i = 0; i < nbytes; i++) bytes[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t read_number(const unsigned char *bytes, int nbytes) {
    uint64_t value = 0;
    for (int i = 0; i < nbytes; i++) value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

void ddp_i64_write(unsigned char bytes[8], int64_t value) { write_number(bytes, (uint64_t)value, 8); }

int64_t ddp_i64_read(const unsigned char bytes[8]) {
    uint64_t bits = read_number(bytes, 8);
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- the hello -------------------------------------------------------------------------------------------------------- */

enum { CLIENT_AT = 16, JOB_AT = CLIENT_AT + DDP_CLIENT_NBYTES, TOKEN_AT = JOB_AT + LS_JOB_CAPACITY };

void ddp_hello_write(unsigned char bytes[DDP_HELLO_NBYTES], const ddp_hello *hello) {
    memset(bytes, 0, DDP_HELLO_NBYTES);
    write_number(bytes, hello_magic, 4);
    write_number(bytes + 4, (uint64_t)hello->pass.world_size, 4);
    write_number(bytes + 8, (uint64_t)hello->pass.rank, 4);
    memcpy(bytes + CLIENT_AT, hello->client, DDP_CLIENT_NBYTES);
    memcpy(bytes + JOB_AT, hello->pass.job, strlen(hello->pass.job));
    memcpy(bytes + TOKEN_AT, hello->pass.token, strlen(hello->pass.token));
}

/* Only the last byte of the token is checked here: store_admit compares it, in constant time. */
bool ddp_hello_read(ddp_hello *hello, const unsigned char bytes[DDP_HELLO_NBYTES]) {
    uint64_t world_size = read_number(bytes + 4, 4), rank = read_number(bytes + 8, 4);
    if (read_number(bytes, 4) != hello_magic || read_number(bytes + 12, 4) != 0) return false;
    if (world_size > LS_COMM_MAX_RANKS || rank >= (world_size > 0 ? world_size : 1)) return false;
    if (bytes[CLIENT_AT] == 0 || bytes[TOKEN_AT - 1] != 0 || bytes[DDP_HELLO_NBYTES - 1] != 0) return false;
    *hello = (ddp_hello){.pass = {.world_size = (int)world_size, .rank = (int)rank}};
    memcpy(hello->client, bytes + CLIENT_AT, DDP_CLIENT_NBYTES);
    memcpy(hello->pass.job, bytes + JOB_AT, LS_JOB_CAPACITY);
    memcpy(hello->pass.token, bytes + TOKEN_AT, DDP_TOKEN_CAPACITY);
    return true;
}

/* --- requests and replies --------------------------------------------------------------------------------------------- */

void ddp_request_header_write(unsigned char bytes[DDP_REQUEST_HEADER_NBYTES], const ddp_request_header *header) {
    memset(bytes, 0, DDP_REQUEST_HEADER_NBYTES);
    write_number(bytes, request_magic, 4);
    bytes[4] = (unsigned char)header->operation;
    write_number(bytes + 8, header->key_nbytes, 4);
    write_number(bytes + 16, header->value_nbytes, 8);
}

static bool fits(uint64_t nbytes, int expected_nbytes) {
    return expected_nbytes == DDP_ANY ? nbytes <= DDP_STORE_VALUE_MAX : nbytes == (uint64_t)expected_nbytes;
}

bool ddp_request_header_read(ddp_request_header *header, const unsigned char bytes[DDP_REQUEST_HEADER_NBYTES]) {
    uint64_t key_nbytes = read_number(bytes + 8, 4), value_nbytes = read_number(bytes + 16, 8);
    if (read_number(bytes, 4) != request_magic) return false;
    if (read_number(bytes + 5, 3) != 0 || read_number(bytes + 12, 4) != 0 || read_number(bytes + 24, 8) != 0)
        return false;
    bool known = false;
    switch (bytes[4]) {
#define DDP_CASE(name, number, nbytes)                                                                                 \
    case (number): known = fits(value_nbytes, (nbytes)); break;
        DDP_STORE_OPERATIONS(DDP_CASE)
#undef DDP_CASE
    default: break;
    }
    if (!known) return false;
    if (key_nbytes < 1 || key_nbytes > DDP_STORE_KEY_MAX) return false;
    *header = (ddp_request_header){(ddp_store_operation)bytes[4], key_nbytes, value_nbytes};
    return true;
}

void ddp_reply_header_write(unsigned char bytes[DDP_REPLY_HEADER_NBYTES], const ddp_reply_header *header) {
    memset(bytes, 0, DDP_REPLY_HEADER_NBYTES);
    write_number(bytes, reply_magic, 4);
    bytes[4] = (unsigned char)header->result;
    write_number(bytes + 8, header->nbytes, 8);
}

bool ddp_reply_header_read(ddp_reply_header *header, const unsigned char bytes[DDP_REPLY_HEADER_NBYTES]) {
    uint64_t nbytes = read_number(bytes + 8, 8);
    if (read_number(bytes, 4) != reply_magic || bytes[4] > DDP_RESULT_TOO_FEW) return false;
    if (read_number(bytes + 5, 3) != 0 || nbytes > DDP_STORE_VALUE_MAX) return false;
    *header = (ddp_reply_header){(ddp_store_result)bytes[4], nbytes};
    return true;
}

const char *ddp_store_operation_name(ddp_store_operation operation) {
    switch (operation) {
#define DDP_CASE(name, number, nbytes)                                                                                 \
    case DDP_OP_##name: return #name;
        DDP_STORE_OPERATIONS(DDP_CASE)
#undef DDP_CASE
    }
    return "unknown";
}
