/* hello: ranks identify themselves, and communicate by four methods: a letter passed around a ring (point to point),
 *        broadcast, all_reduce and all_gather. The program of lab 01. */
#ifndef LABS_01_RANKS_HELLO_HELLO_H
#define LABS_01_RANKS_HELLO_HELLO_H

#include <stdint.h>

#include "common/comm/comm.h"
#include "common/device/device.h"

/* The fields of a letter, as int64. */
enum {
    HELLO_WORD,   /* rank 0's, for all ranks */
    HELLO_SIGNED, /* the number of ranks that have signed it */
    HELLO_SUM,    /* the sum of their numbers */
    HELLO_LETTER
};

/* Rank 0's letter goes from rank to rank, 0 -> 1 -> ... -> W-1, and back to rank 0. Each rank signs it once before it
 * sends it on: it adds 1 to HELLO_SIGNED, and its own number to HELLO_SUM. So rank 0 ends with every rank's signature,
 * and rank r with those of ranks 0 .. r. A single rank only signs. `letter` is filled at rank 0; when the call returns,
 * no operation uses it any more. Collective; each rank sends one message and receives one (none if it is alone). */
ls_status hello_pass_letter(ls_comm *comm, ls_stream *stream, int64_t letter[HELLO_LETTER]);

/* The mistake that the last rank makes in the all_reduce. */
typedef enum hello_mismatch { HELLO_NO_MISMATCH = -1, HELLO_OTHER_COLLECTIVE, HELLO_OTHER_COUNT } hello_mismatch;

typedef struct hello_rank {
    ls_comm *comm;
    ls_stream *stream;
    int word; /* rank 0's */
    hello_mismatch mismatch;
} hello_rank;

/* Runs the four methods in order; for each, the ranks print a line to stdout in turn. Collective. */
ls_status hello_talk(const hello_rank *self);

#endif
