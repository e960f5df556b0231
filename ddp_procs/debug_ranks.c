#define _GNU_SOURCE
#include "ddp_procs/debug_ranks.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/log.h"

/* "core 1", or "cores 0,1,2,3": where the calling thread, which is the device's, may run. */
static void list_cores(char *text, size_t capacity) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) == 0) {
        snprintf(text, capacity, "unknown cores");
        return;
    }
    size_t length = (size_t)snprintf(text, capacity, CPU_COUNT(&cores) == 1 ? "core" : "cores");
    char before = ' ';
    for (int core = 0; core < CPU_SETSIZE && length < capacity; core++) {
        if (!CPU_ISSET(core, &cores)) continue;
        length += (size_t)snprintf(text + length, capacity - length, "%c%d", before, core);
        before = ',';
    }
}

ls_status ddp_describe_rank(const ddp_rank *self, ls_parallel *parallel, const ls_train_options *options,
                            ls_sharing sharing, const ls_dataset *train) {
    char cores[256], share[256], name[160];
    uint64_t hash;
    ls_status status =
        ls_train_describe_share(options, parallel->data_rank, parallel->data_size, sharing, train, share, sizeof share);
    if (status == LS_OK) status = ls_model_hash(parallel->model, &hash);
    if (status != LS_OK) return status;
    list_cores(cores, sizeof cores);
    const ls_device *device = parallel->devices[0];
    if (ls_device_kind_of(device) == LS_DEVICE_CUDA) {
        snprintf(name, sizeof name, "GPU %d (%s)", ls_device_index(device), ls_device_model_name(device));
    } else {
        snprintf(name, sizeof name, "device %d", ls_device_index(device));
    }
    ls_note("rank %d of %d: pid %d, %s, %s; %s; initial weights %016" PRIx64, self->rank, self->world_size,
            (int)getpid(), name, cores, share, hash);
    return LS_OK;
}
