/* sweep: the work of each rank of a group.
 *   idea  : for each size, all cases are checked and get their number of operations per run; then the cases alternate
 *           run by run, so that other load on the machine affects all cases equally; then all cases are checked again,
 *           in the slots that the timed loops used.
 *   terms : slot, run: bench_comm.h
 *   order : every rank makes the same decisions, because they follow from all ranks' times, which are on the board. A
 *           rank writes its own entry of the board before a barrier and reads the others' after it; the next loop
 *           begins with a barrier
 *   fails : a rank that fails aborts its groups, whose other ranks then fail with LS_ERR_PEER */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/device/device.h"
#include "labs/bench/comm/bench_comm.h"

enum {
    CHECKED_SLOTS = 8,
    CHECKED_BYTES = 1 << 20, /* of a rank's slots, unless a single one is larger */
    ITERATIONS_MAX = 100000,
    WHAT_CAPACITY = 160
};

struct sweep {
    comm_rank *self;
    ls_stream *stream;
    comm_patterns *patterns;
    char *memory[COMM_CASES_MAX]; /* the slots, which several cases may share; freed by their owner */
    size_t next_slot[COMM_CASES_MAX];
    size_t checks;
};

/* --- memory ---------------------------------------------------------------------------------------------------------- */

static ls_status allocate(const struct sweep *sweep, int owner, char **out) {
    const comm_settings *settings = sweep->self->settings;
    size_t nbytes = comm_slots_bytes(settings, sweep->self->group->n, owner);
    void *memory = NULL;
    if (!comm_is_private(sweep->self->group->variant)) {
        ls_status status = ls_comm_alloc_shared(sweep->self->comms[owner], NULL, nbytes, &memory);
        *out = memory;
        return status;
    }
    if (posix_memalign(&memory, 4096, nbytes) != 0)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %zu bytes of buffers; try smaller --sizes",
                       nbytes);
    memset(memory, 0, nbytes); /* so that no timed access causes a page fault */
    *out = memory;
    return LS_OK;
}

static ls_status allocate_all(struct sweep *sweep) {
    const comm_settings *settings = sweep->self->settings;
    ls_status status = LS_OK;
    for (int c = 0; status == LS_OK && c < settings->case_count; c++) {
        int owner = comm_owner(settings, c);
        if (owner == c) status = allocate(sweep, c, &sweep->memory[c]);
        sweep->memory[c] = sweep->memory[owner];
    }
    return status;
}

static void free_private(struct sweep *sweep) {
    for (int c = 0; c < sweep->self->settings->case_count; c++)
        if (comm_owner(sweep->self->settings, c) == c) free(sweep->memory[c]);
}

/* --- operations ------------------------------------------------------------------------------------------------------ */

static comm_slots slots_of(const struct sweep *sweep, const comm_row *row) {
    return comm_slots_of(row->operation, row->n, row->count, sweep->self->settings);
}

static comm_slot slot_at(const struct sweep *sweep, const comm_row *row, const comm_slots *slots, size_t index) {
    char *memory = sweep->memory[row->case_index] + index * slots->stride_bytes;
    return (comm_slot){.operation = row->operation,
                       .n = row->n,
                       .rank = sweep->self->rank,
                       .count = row->count,
                       .salt = sweep->checks * CHECKED_SLOTS + index,
                       .send = memory,
                       .receive = memory + slots->receive_offset};
}

static comm_call call_of(const struct sweep *sweep, const comm_row *row) {
    return (comm_call){.comm = sweep->self->comms[row->case_index],
                       .stream = sweep->stream,
                       .count = row->count,
                       .dtype = sweep->self->settings->dtype,
                       .reduce = sweep->self->settings->reduce};
}

static ls_status barrier(const struct sweep *sweep, const comm_row *row) {
    ls_status status = ls_comm_barrier(sweep->self->comms[row->case_index], sweep->stream);
    return status == LS_OK ? ls_stream_synchronize(sweep->stream) : status;
}

static void describe(char what[WHAT_CAPACITY], const comm_row *row) {
    snprintf(what, WHAT_CAPACITY, "%s%s%s, %s, %s buffers, N %d, %zu bytes", row->operation->name,
             row->algorithm[0] ? " " : "", row->algorithm, comm_variant_backend(row->variant),
             comm_variant_buffers(row->variant), row->n, row->nbytes);
}

/* --- checking and counting ------------------------------------------------------------------------------------------- */

static struct ls_allreduce_cost per_operation(const ls_comm_traffic *before, const ls_comm_traffic *after,
                                              size_t count) {
    return (struct ls_allreduce_cost){.sent_messages = (after->sent_messages - before->sent_messages) / count,
                                      .sent_bytes = (after->sent_bytes - before->sent_bytes) / count,
                                      .received_messages =
                                          (after->received_messages - before->received_messages) / count,
                                      .received_bytes = (after->received_bytes - before->received_bytes) / count};
}

/* Operations back to back over `count` slots that hold known data, which are then compared. */
static ls_status check(struct sweep *sweep, comm_row *row) {
    comm_slots slots = slots_of(sweep, row);
    size_t count = CHECKED_BYTES / slots.stride_bytes, step;
    if (count > CHECKED_SLOTS) count = CHECKED_SLOTS;
    if (count > slots.count) count = slots.count;
    if (count == 0) count = 1;
    step = slots.count / count;
    comm_call call = call_of(sweep, row);
    ls_comm_traffic before, after;
    char what[WHAT_CAPACITY];
    describe(what, row);
    sweep->checks++;
    for (size_t i = 0; i < count; i++) {
        comm_slot slot = slot_at(sweep, row, &slots, i * step);
        comm_fill(sweep->patterns, &slot);
    }
    ls_status status = barrier(sweep, row);
    ls_comm_traffic_read(call.comm, &before);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        comm_slot slot = slot_at(sweep, row, &slots, i * step);
        call.send = slot.send;
        call.receive = slot.receive;
        status = row->operation->enqueue(&call);
    }
    if (status == LS_OK) status = ls_stream_synchronize(sweep->stream);
    ls_comm_traffic_read(call.comm, &after);
    sweep->self->board->counted[sweep->self->rank] = per_operation(&before, &after, count);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        comm_slot slot = slot_at(sweep, row, &slots, i * step);
        status = comm_check(sweep->patterns, &slot, what);
    }
    return status == LS_OK ? barrier(sweep, row) : status;
}

static void formula_of(const struct sweep *sweep, const comm_row *row, int rank, struct ls_allreduce_cost *cost) {
    size_t element_nbytes = ls_dtype_nbytes(sweep->self->settings->dtype);
    if (!comm_is_all_reduce(row->operation)) {
        row->operation->cost(cost, row->n, rank, row->count, element_nbytes);
        return;
    }
    const char *algorithm = sweep->self->settings->cases[row->case_index].algorithm;
    ls_allreduce_find(algorithm)->cost(cost, row->n, rank, row->count, element_nbytes);
}

static size_t moved_bytes(const struct ls_allreduce_cost *cost) { return cost->sent_bytes + cost->received_bytes; }

static bool same_cost(const struct ls_allreduce_cost *a, const struct ls_allreduce_cost *b) {
    return a->sent_messages == b->sent_messages && a->sent_bytes == b->sent_bytes &&
           a->received_messages == b->received_messages && a->received_bytes == b->received_bytes;
}

/* Rank 0 calls it after a check. The row shows the first rank that differs, else the first of those that move most. */
static void compare_counts(const struct sweep *sweep, comm_row *row) {
    bool first = true;
    row->agreement = comm_is_private(row->variant) ? COMM_NOT_COMPARED : COMM_EQUAL;
    for (int r = 0; r < row->n; r++) {
        const struct ls_allreduce_cost *counted = &sweep->self->board->counted[r];
        struct ls_allreduce_cost formula = {0};
        formula_of(sweep, row, r, &formula);
        bool differs = row->agreement == COMM_EQUAL && !same_cost(counted, &formula);
        if (differs || first || (row->agreement != COMM_DIFFERS && moved_bytes(counted) > moved_bytes(&row->counted))) {
            row->counted = *counted;
            row->formula = formula;
            row->busiest_rank = r;
        }
        if (differs) row->agreement = COMM_DIFFERS;
        first = false;
    }
}

/* --- timing ---------------------------------------------------------------------------------------------------------- */

/* The slowest rank's time for `iterations` operations; the same on all ranks. */
static ls_status time_loop(struct sweep *sweep, const comm_row *row, int iterations, double *slowest_us) {
    comm_slots slots = slots_of(sweep, row);
    comm_call call = call_of(sweep, row);
    size_t slot = sweep->next_slot[row->case_index] % slots.count;
    char *memory = sweep->memory[row->case_index];
    double *elapsed_us = sweep->self->board->elapsed_us;
    ls_status status = barrier(sweep, row);
    double begin_us = ls_now_us();
    for (int i = 0; status == LS_OK && i < iterations; i++) {
        call.send = memory + slot * slots.stride_bytes;
        call.receive = (char *)call.send + slots.receive_offset;
        status = row->operation->enqueue(&call);
        if (++slot == slots.count) slot = 0;
    }
    if (status == LS_OK) status = ls_stream_synchronize(sweep->stream);
    elapsed_us[sweep->self->rank] = ls_now_us() - begin_us;
    sweep->next_slot[row->case_index] = slot;
    if (status == LS_OK) status = barrier(sweep, row);
    if (status != LS_OK) return status;
    *slowest_us = elapsed_us[0];
    for (int r = 1; r < row->n; r++)
        if (elapsed_us[r] > *slowest_us) *slowest_us = elapsed_us[r];
    return LS_OK;
}

/* The number of operations that fill a run, from loops that grow until they are long enough to time. Of two loops the
 * faster one counts, since other load may have disturbed the slower one. The loops are also the warm-up. */
static ls_status choose_iterations(struct sweep *sweep, const comm_row *row, int *iterations) {
    double run_us = sweep->self->settings->run_ms * 1e3, slowest_us = 0, again_us = 0;
    double wanted = 1;
    for (;;) {
        *iterations = (int)wanted;
        ls_status status = time_loop(sweep, row, *iterations, &slowest_us);
        if (status == LS_OK) status = time_loop(sweep, row, *iterations, &again_us);
        if (status != LS_OK) return status;
        if (again_us < slowest_us) slowest_us = again_us;
        double fitting = wanted * run_us / (slowest_us > 0.1 ? slowest_us : 0.1);
        bool told = slowest_us * 4 >= run_us || *iterations == ITERATIONS_MAX;
        wanted = told || fitting < 8 * wanted ? fitting : 8 * wanted;
        if (wanted < 1) wanted = 1;
        if (wanted > ITERATIONS_MAX) wanted = ITERATIONS_MAX;
        if (told) break;
    }
    *iterations = (int)wanted;
    return LS_OK;
}

/* The rows of a size. Only rank 0 writes to rows. */
static ls_status measure_size(struct sweep *sweep, comm_row *rows, int row_count) {
    const comm_settings *settings = sweep->self->settings;
    bool writes = sweep->self->rank == 0;
    int iterations[COMM_CASES_MAX] = {0};
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < row_count; i++) {
        status = check(sweep, &rows[i]);
        if (status == LS_OK && writes) compare_counts(sweep, &rows[i]);
        if (status == LS_OK && !settings->check_only) status = choose_iterations(sweep, &rows[i], &iterations[i]);
        if (status == LS_OK && writes) atomic_fetch_add(&sweep->self->board->measured, 1);
    }
    for (int run = sweep->self->first_run; run < sweep->self->end_run; run++) {
        for (int i = 0; status == LS_OK && i < row_count; i++) {
            double slowest_us = 0;
            status = time_loop(sweep, &rows[i], iterations[i], &slowest_us);
            if (status == LS_OK && writes) rows[i].run_us[run] = slowest_us / iterations[i];
        }
    }
    for (int i = 0; status == LS_OK && i < row_count; i++) {
        if (!settings->check_only) status = check(sweep, &rows[i]);
        if (status != LS_OK || !writes) continue;
        rows[i].run_count = sweep->self->end_run;
        rows[i].iterations = settings->check_only ? 0 : iterations[i];
        rows[i].checked = true;
    }
    return status;
}

/* --- the whole ------------------------------------------------------------------------------------------------------- */

static ls_status measure_all(struct sweep *sweep) {
    const comm_group *group = sweep->self->group;
    ls_status status = allocate_all(sweep);
    for (int first = 0, last; status == LS_OK && first < group->row_count; first = last) {
        last = first + 1;
        while (last < group->row_count && group->rows[last].size_index == group->rows[first].size_index) last++;
        status = measure_size(sweep, group->rows + first, last - first);
    }
    return status;
}

ls_status comm_sweep(comm_rank *self) {
    const comm_settings *settings = self->settings;
    struct sweep sweep = {.self = self};
    ls_device *device = NULL;
    const ls_device_options options = {
        .kind = LS_DEVICE_CPU, .index = self->rank, .devices_on_node = self->group->n, .place = self->rank};
    ls_status status = ls_device_open(&device, &options);
    if (status == LS_OK) status = ls_device_bind_thread(device);
    if (status == LS_OK) {
        sweep.stream = ls_device_stream(device, LS_STREAM_COMM);
        status = comm_patterns_create(&sweep.patterns, self->group->n, settings->dtype, settings->reduce);
    }
    if (status == LS_OK) status = measure_all(&sweep);
    for (int c = 0; status != LS_OK && c < settings->case_count; c++)
        if (self->comms[c]) (void)ls_comm_abort(self->comms[c], "it ended with an error of its own");
    ls_device_close(device);
    comm_patterns_destroy(sweep.patterns);
    if (comm_is_private(self->group->variant)) free_private(&sweep);
    return status;
}
