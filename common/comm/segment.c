/* segment — the layout of the control area, and the encoding of a buffer's address for other ranks. */
#include "common/comm/comm_internal.h"

static size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

static size_t mailboxes_offset(void) { return round_up(sizeof(ls_segment), LS_PAGE_BYTES); }

static size_t arrivals_offset(int world_size) {
    size_t pairs = (size_t)world_size * (size_t)world_size;
    return mailboxes_offset() + round_up(pairs * sizeof(ls_mailbox), LS_PAGE_BYTES);
}

static size_t stage_offset(int world_size) {
    size_t arrivals_nbytes = (size_t)world_size * LS_CHANNEL_COUNT * 2 * sizeof(ls_arrival);
    return arrivals_offset(world_size) + round_up(arrivals_nbytes, LS_PAGE_BYTES);
}

static size_t flight_offset(int world_size) {
    return round_up(stage_offset(world_size) + (size_t)world_size * 2 * LS_STAGE_BYTES, LS_PAGE_BYTES);
}

size_t ls_control_nbytes(int world_size) {
    return round_up(flight_offset(world_size) + (size_t)world_size * sizeof(ls_flight_log), LS_PAGE_BYTES);
}

void ls_segment_attach(ls_comm *comm, void *base) {
    comm->base = base;
    comm->segment = base;
    if (!comm->broken) comm->broken = &comm->segment->broken;
    comm->arrivals = (ls_arrival *)(void *)(comm->base + arrivals_offset(comm->world_size));
    comm->control_nbytes = ls_control_nbytes(comm->world_size);
    if (!comm->flight && !comm->unrecorded)
        comm->flight = (ls_flight_log *)(void *)(comm->base + flight_offset(comm->world_size));
    ls_flight_join(comm);
}

ls_mailbox *ls_segment_mailbox(const ls_comm *comm, int from, int to) {
    return (ls_mailbox *)(void *)(comm->base + mailboxes_offset()) + (size_t)from * (size_t)comm->world_size +
           (size_t)to;
}

ls_arrival *ls_segment_arrival(const ls_comm *comm, ls_channel_kind channel, int rank, uint64_t step) {
    return &comm->arrivals[((size_t)rank * LS_CHANNEL_COUNT + channel) * 2 + step % 2];
}

char *ls_segment_stage(const ls_comm *comm, int rank, uint64_t slice) {
    return comm->base + stage_offset(comm->world_size) + ((size_t)rank * 2 + slice % 2) * LS_STAGE_BYTES;
}

uint64_t ls_segment_offset(const ls_comm *comm, const void *buffer) {
    int count = atomic_load_explicit(&comm->window_count, memory_order_acquire);
    for (const ls_window *window = comm->windows; window < comm->windows + count; window++) {
        uint64_t inside = (uintptr_t)buffer - (uintptr_t)window->base; /* wraps to a large number below the window */
        if (inside < window->nbytes) return window->offset + inside;
    }
    return LS_OFFSET_STAGED;
}

char *ls_segment_address(const ls_comm *comm, uint64_t offset) {
    int count = atomic_load_explicit(&comm->window_count, memory_order_acquire);
    const ls_window *window = comm->windows;
    while (window + 1 < comm->windows + count && offset - window->offset >= window->nbytes) window++;
    return (char *)((uintptr_t)window->base + (uintptr_t)(offset - window->offset));
}
