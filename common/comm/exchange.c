/* exchange — moves the data of a collective operation (exchange.h describes the idea).
 *   cost  : one round: 1 step, a copy in.  direct: 2 steps, no copy.  staged: 1 + slices steps, a copy in (and out, for
 *           results in place) that overlaps with nothing but stays in the cache: slices are 256 KiB per rank
 *   safe  : two staging buffers are enough: a rank fills buffer (j + 1) % 2 before the step that ends slice j. A rank
 *           that still used that buffer would be at slice j - 1, and every rank has left that before any rank passed
 *           the step that ended it
 *   fails : ls_comm_gate finds a rank that misses a step */
#include "common/comm/exchange.h"

#include <string.h>

static bool publishes(const ls_announcement *what) { return what->offset != LS_OFFSET_NOTHING; }

/* Copies columns first .. first + count of this rank's matrix to `packed`, a matrix of `count` columns. */
static void copy_in(const ls_exchange *x, char *packed, size_t first, size_t count) {
    const char *from = (const char *)x->buffer + first * x->element_nbytes;
    size_t nbytes = count * x->element_nbytes;
    if (nbytes == 0) return;
    for (size_t part = 0; part < x->parts; part++)
        memcpy(packed + part * nbytes, from + part * x->count * x->element_nbytes, nbytes);
}

static void copy_out(const ls_exchange *x, const char *packed) {
    size_t nbytes = x->slice_count * x->element_nbytes;
    char *to = (char *)x->buffer + x->first * x->element_nbytes;
    for (size_t part = 0; part < x->parts; part++)
        memcpy(to + part * x->count * x->element_nbytes, packed + part * nbytes, nbytes);
}

/* Columns of a slice, if staged: as many as fit into a staging buffer, cut at a cache line where that is possible. */
static size_t staged_columns(const ls_exchange *x) {
    size_t columns = LS_STAGE_BYTES / (x->parts * x->element_nbytes);
    size_t line = LS_CACHE_LINE_BYTES / x->element_nbytes;
    return columns > line ? columns / line * line : columns;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* The place of a rank's message in a meeting of one round. */
static char *message_of(const ls_exchange *x, int rank, uint64_t meeting) {
    ls_arrival *arrival = ls_segment_arrival(x->comm, LS_CHANNEL_STREAM, rank, meeting);
    bool fits = x->parts * x->count * x->element_nbytes <= sizeof arrival->brief;
    return fits ? arrival->brief : arrival->message;
}

static void look_at_messages(ls_exchange *x) {
    uint64_t meeting = x->comm->channel[LS_CHANNEL_STREAM].meeting;
    x->first = 0;
    x->slice_count = x->count;
    for (int r = 0; r < x->comm->world_size; r++) {
        bool there = publishes(ls_comm_announced(x->comm, LS_CHANNEL_STREAM, r));
        x->view[r] = there ? message_of(x, r, meeting) : NULL;
        x->stride_bytes[r] = x->count * x->element_nbytes;
    }
}

static void look_at_slice(ls_exchange *x, uint64_t slice, size_t columns) {
    x->first = slice * columns;
    x->slice_count = smaller(columns, x->count - x->first);
    for (int r = 0; r < x->comm->world_size; r++) {
        uint64_t offset = ls_comm_announced(x->comm, LS_CHANNEL_STREAM, r)->offset;
        x->view[r] = NULL;
        if (offset == LS_OFFSET_STAGED) {
            x->view[r] = ls_segment_stage(x->comm, r, slice);
            x->stride_bytes[r] = x->slice_count * x->element_nbytes;
        } else if (offset != LS_OFFSET_NOTHING) {
            x->view[r] = ls_segment_address(x->comm, offset) + x->first * x->element_nbytes;
            x->stride_bytes[r] = x->count * x->element_nbytes;
        }
    }
}

static bool any_rank_staged(const ls_comm *comm) {
    for (int r = 0; r < comm->world_size; r++)
        if (ls_comm_announced(comm, LS_CHANNEL_STREAM, r)->offset == LS_OFFSET_STAGED) return true;
    return false;
}

static ls_status run_slices(ls_exchange *x, const ls_announcement *what) {
    ls_comm *comm = x->comm;
    bool staged = what->offset == LS_OFFSET_STAGED;
    size_t columns = any_rank_staged(comm) ? staged_columns(x) : x->count;
    for (uint64_t slice = 0; slice * columns < x->count; slice++) {
        size_t next = (slice + 1) * columns;
        if (staged && next < x->count)
            copy_in(x, ls_segment_stage(comm, comm->rank, slice + 1), next, smaller(columns, x->count - next));
        look_at_slice(x, slice, columns);
        ls_status status = x->run(x);
        if (status == LS_OK) status = ls_comm_gate(comm, LS_CHANNEL_STREAM, what);
        if (status != LS_OK) return status;
        if (staged && x->write_back) copy_out(x, x->view[comm->rank]);
    }
    return LS_OK;
}

ls_status ls_exchange_run(ls_exchange *x) {
    ls_comm *comm = x->comm = x->operation->comm;
    ls_announcement what = x->operation->what;
    char *view[LS_COMM_MAX_RANKS];
    size_t stride_bytes[LS_COMM_MAX_RANKS];
    x->view = view; /* not part of *x, so that entries which a small group does not use are not cleared */
    x->stride_bytes = stride_bytes;
    x->element_nbytes = ls_dtype_nbytes((ls_dtype)what.dtype);
    x->one_round = x->parts * x->count * x->element_nbytes <= x->one_round_bytes;
    what.offset = x->buffer ? ls_segment_offset(comm, x->buffer) : LS_OFFSET_NOTHING;
    if (x->buffer && x->one_round) {
        copy_in(x, message_of(x, comm->rank, comm->channel[LS_CHANNEL_STREAM].step + 1), 0, x->count);
    } else if (what.offset == LS_OFFSET_STAGED) {
        copy_in(x, ls_segment_stage(comm, comm->rank, 0), 0, smaller(staged_columns(x), x->count));
    }
    ls_status status = ls_comm_meet(comm, LS_CHANNEL_STREAM, &what);
    if (status == LS_OK && ls_probing()) ls_comm_probe_meeting(x->operation, x->algorithm);
    if (status != LS_OK || x->count == 0) return status;
    if (!x->one_round) return run_slices(x, &what);
    look_at_messages(x);
    return x->run(x);
}
