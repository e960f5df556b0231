/* letter — one to many, point to point.
 *   order : W consecutive messages: the letter is back when all ranks have signed it
 *   waits : a rank waits for the letter before it signs it. Rank 0 receives into the memory that it sent: on one stream
 *           the receive runs after the send
 *   fails : rank 0 must send before it receives: a ring in which all ranks receive first never begins */
#include "labs/01-ranks/hello/hello.h"

ls_status hello_pass_letter(ls_comm *comm, ls_stream *stream, int64_t letter[HELLO_LETTER]) {
    int rank = ls_comm_rank(comm), world_size = ls_comm_world_size(comm);
    int left = (rank + world_size - 1) % world_size, right = (rank + 1) % world_size;
    ls_status status = LS_OK;
    if (rank > 0) status = ls_comm_settle(stream, ls_comm_recv(comm, stream, letter, HELLO_LETTER, LS_INT64, left));
    if (status != LS_OK) return status;
    letter[HELLO_SIGNED] += 1;
    letter[HELLO_SUM] += rank;
    if (world_size == 1) return LS_OK;
    status = ls_comm_send(comm, stream, letter, HELLO_LETTER, LS_INT64, right);
    if (status == LS_OK && rank == 0) status = ls_comm_recv(comm, stream, letter, HELLO_LETTER, LS_INT64, left);
    return ls_comm_settle(stream, status);
}
