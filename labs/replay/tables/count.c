#include "labs/replay/tables/count.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define TIMEOUT_S 60

struct rank {
    int number, ranks;
    ls_comm *comm;
    size_t count;
    struct ls_allreduce_cost *counted;
    pthread_t thread;
    bool started;
    ls_status status;
};

enum { PERIOD = 61 }; /* of the values, in elements */

/* Small integers, whose sums are exact in any order. */
static float value_of(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 3) % PERIOD); }

static ls_status check(const struct rank *self, const float *values) {
    float sums[PERIOD] = {0};
    for (size_t i = 0; i < PERIOD; i++)
        for (int r = 0; r < self->ranks; r++) sums[i] += value_of(r, i);
    for (size_t i = 0; i < self->count; i++) {
        if (!(values[i] == sums[i % PERIOD])) {
            return ls_fail(LS_ERR_INVALID, "%s over %d threads: element %zu of rank %d is %g; expected %g",
                           ls_comm_allreduce(self->comm), self->ranks, i, self->number, (double)values[i],
                           (double)sums[i % PERIOD]);
        }
    }
    return LS_OK;
}

static ls_status reduce(const struct rank *self, ls_device *device, float *values) {
    ls_stream *stream = ls_device_stream(device, LS_STREAM_COMM);
    ls_comm_traffic before, after;
    for (size_t i = 0; i < self->count; i++) values[i] = value_of(self->number, i);
    ls_comm_traffic_read(self->comm, &before);
    ls_status status = ls_comm_all_reduce(self->comm, stream, values, self->count, LS_FP32, LS_REDUCE_SUM);
    if (status == LS_OK) status = ls_stream_synchronize(stream);
    ls_comm_traffic_read(self->comm, &after);
    *self->counted = (struct ls_allreduce_cost){.sent_messages = after.sent_messages - before.sent_messages,
                                                .sent_bytes = after.sent_bytes - before.sent_bytes,
                                                .received_messages = after.received_messages - before.received_messages,
                                                .received_bytes = after.received_bytes - before.received_bytes};
    return status == LS_OK ? check(self, values) : status;
}

static void *rank_main(void *argument) {
    struct rank *self = argument;
    ls_device *device = NULL;
    void *values = NULL;
    const ls_device_options options = {
        .kind = LS_DEVICE_CPU, .index = self->number, .devices_on_node = self->ranks, .place = self->number};
    self->status = ls_device_open(&device, &options);
    if (self->status == LS_OK) {
        self->status = ls_device_alloc(device, LS_MEMORY_BUCKET, self->count * sizeof(float), "values", &values);
    }
    if (self->status == LS_OK) self->status = reduce(self, device, values);
    if (self->status != LS_OK) (void)ls_comm_abort(self->comm, "it ended with an error of its own");
    if (device) ls_device_free(device, values);
    ls_device_close(device);
    return NULL;
}

ls_status tables_count_allreduce(struct ls_allreduce_cost counted[LS_COMM_MAX_RANKS],
                                 const ls_allreduce_algorithm *algorithm, int ranks, size_t count) {
    struct rank all[LS_COMM_MAX_RANKS];
    ls_comm *comms[LS_COMM_MAX_RANKS] = {NULL};
    const ls_comm_options options = {.world_size = ranks, .timeout_s = TIMEOUT_S, .allreduce = algorithm->name};
    ls_status status = ls_comm_create_threads(comms, &options);
    for (int r = 0; r < ranks; r++) {
        all[r] = (struct rank){.number = r, .ranks = ranks, .comm = comms[r], .count = count, .counted = &counted[r]};
        if (status != LS_OK) continue;
        int error = pthread_create(&all[r].thread, NULL, rank_main, &all[r]);
        all[r].started = error == 0;
        if (error == 0) continue;
        status = ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error));
        (void)ls_comm_abort(comms[r], "it did not start");
    }
    for (int r = 0; r < ranks; r++) {
        if (all[r].started) pthread_join(all[r].thread, NULL);
        if (status == LS_OK || (status == LS_ERR_PEER && all[r].status != LS_OK)) status = all[r].status;
    }
    for (int r = 0; r < ranks; r++) ls_comm_destroy(comms[r]);
    return status;
}
