/* threads_group — a group whose ranks are threads of this process.
 *   idea  : the control area is anonymous memory, mapped once; each endpoint points to it. Every address means the same
 *           to all ranks, so buffers are read and written in place. Nothing else differs from shared memory: the same
 *           steps, the same algorithms
 *   order : the endpoint destroyed last frees the control area, so a rank that still waits for a rank that has left can
 *           read there that it has
 *   fails : a rank may give up (a missed deadline, an abort) while a slower one still works in its buffer. An operation
 *           that fails therefore returns only when no other rank is inside of one (ls_comm_leave): its caller may then
 *           free the buffer */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/hash.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

static ls_status make_control_area(const ls_comm_options *options, void **out) {
    *out = NULL;
    if (options->world_size == 1) return LS_OK; /* a group of one has no other ranks */
    void *base = mmap(NULL, ls_control_nbytes(options->world_size), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a process group of %d threads: %s",
                       options->world_size, strerror(errno));
    *out = base;
    return LS_OK;
}

/* Groups of one process have no names, so probes call them by their number. */
static uint64_t next_name(void) {
    static _Atomic uint64_t made;
    uint64_t number = atomic_fetch_add(&made, 1);
    return ls_hash(LS_HASH_SEED, &number, sizeof number);
}

static void leave(ls_comm *comm) {
    if (comm->segment && atomic_fetch_sub(&comm->segment->endpoints, 1) == 1) munmap(comm->base, comm->control_nbytes);
}

static const struct ls_transport transport = {.name = "threads",
                                              .shares_buffers = true,
                                              .fill = ls_region_fill_private,
                                              .empty = ls_region_empty_private,
                                              .leave = leave};

static ls_status make_endpoint(ls_comm **out, const ls_comm_options *options, int rank, void *control_area,
                               uint64_t name_hash) {
    ls_comm *comm = *out = ls_group_endpoint(&transport, options, rank);
    if (!comm) return LS_ERR_NO_MEMORY;
    comm->name_hash = name_hash;
    if (!control_area) return LS_OK;
    ls_segment_attach(comm, control_area);
    atomic_fetch_add(&comm->segment->endpoints, 1);
    comm->windows[0] = (ls_window){.nbytes = LS_OFFSET_NOTHING}; /* offsets are addresses */
    atomic_store(&comm->window_count, 1);
    return LS_OK;
}

ls_status ls_comm_create_threads(ls_comm **out, const ls_comm_options *options) {
    bool sensible = options->world_size >= 1 && options->world_size <= LS_COMM_MAX_RANKS;
    int world_size = sensible ? options->world_size : 0;
    void *control_area = NULL;
    for (int r = 0; r < world_size; r++) out[r] = NULL;
    ls_status status = ls_group_check_options(options);
    if (status == LS_OK) status = make_control_area(options, &control_area);
    uint64_t name_hash = next_name();
    for (int r = 0; r < world_size && status == LS_OK; r++)
        status = make_endpoint(&out[r], options, r, control_area, name_hash);
    if (status == LS_OK) return LS_OK;
    if (control_area && !out[0]) munmap(control_area, ls_control_nbytes(world_size));
    for (int r = 0; r < world_size; r++) {
        ls_comm_destroy(out[r]); /* the last one frees the control area */
        out[r] = NULL;
    }
    return status;
}
