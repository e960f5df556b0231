/* measure — the times of jobs, alone and beside others. */
#ifndef LABS_REPLAY_CALIBRATE_MEASURE_H
#define LABS_REPLAY_CALIBRATE_MEASURE_H

#include "labs/replay/calibrate/calibrate.h"

struct calibrate_worker; /* the state of a device's thread: devices.c */

typedef ls_status (*calibrate_job_fn)(const struct calibrate_worker *worker, int argument);

struct calibrate_job {
    calibrate_job_fn call;
    int argument;
};

struct calibrate_measurement {
    calibrate_spread *to; /* microseconds of an operation */
    struct calibrate_job job;
    int operations; /* of a call */
};

/* Measures one device's jobs on the calling thread, which is bound to it: each in every round; long ones in some
 * rounds. */
ls_status calibrate_measure(const struct calibrate_measurement *measurements, int count,
                            const struct calibrate_worker *worker, bool quick);

/* Runs workers[0]'s job on the calling thread, alternately alone and while `others` more workers repeat `beside`. */
struct calibrate_pairs {
    calibrate_spread alone, together; /* microseconds of a call; factor: see calibrate_factor */
    double factor;
};
ls_status calibrate_measure_beside(struct calibrate_pairs *pairs, const struct calibrate_worker *const *workers,
                                   struct calibrate_job job, struct calibrate_job beside, int others, bool quick);

/* workers[0] writes data that workers[1] has just read (together), and once more (alone): take_back.c. */
ls_status calibrate_take_back(struct calibrate_pairs *pairs, const struct calibrate_worker *const *workers,
                              struct calibrate_job write, struct calibrate_job read, bool quick);

ls_status calibrate_bind(const struct calibrate_worker *worker); /* devices.c: binds the calling thread to its device */

#endif
