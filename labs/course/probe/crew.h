/* Ranks of a probe: threads of this process, each with a CPU device and an endpoint of one group. */
#ifndef LABS_COURSE_PROBE_CREW_H
#define LABS_COURSE_PROBE_CREW_H

#include "common/comm/comm.h"
#include "common/device/device.h"

typedef struct crew_rank {
    int rank, world_size;
    void *argument; /* the same for all */
    ls_device *device;
    ls_stream *stream; /* the device's comm stream */
    ls_comm *comm;
    ls_status status; /* the body's return value */
} crew_rank;

/* How long ranks wait for each other: a deadlock ends after that. Much longer than a check takes, so that a busy
 * machine costs no points. */
#define CREW_TIMEOUT_S 4.0

/* Runs `body` on each rank, in threads; `allreduce` as in ls_comm_options, `streams` as in LS_CPU_STREAMS. Returns the
 * first failure in the order of the ranks. The ranks' error messages are not printed; the probe may observe them. */
ls_status crew_run(int world_size, const char *allreduce, const char *streams, ls_status (*body)(crew_rank *rank),
                   void *argument);

#endif
