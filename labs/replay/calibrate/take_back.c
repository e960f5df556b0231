/* take_back — the cost of writing data that another core has just read.
 *   idea  : DP's device 0 updates the parameters that the replicas have copied. Their cores still hold the lines, and
 *           each must be invalidated in their caches before it is written. So the other device copies a piece that fits
 *           into a core's own cache, then this one writes the piece once, which takes the lines back, and once more,
 *           which hits its own cache. The difference is the cost; both are measured in the same round
 *   fails : if a thread does not answer in time, the measurement ends */
#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/flag.h"
#include "common/base/log.h"
#include "labs/replay/calibrate/measure.h"

enum { QUICK_RUNS = 5 };

#define TIMEOUT_US 30e6

struct take_back {
    ls_flag written, read;
    const struct calibrate_worker *reader;
    struct calibrate_job read_job;
    uint32_t rounds;
    ls_status status;
};

static void *read_along(void *argument) {
    struct take_back *self = argument;
    self->status = calibrate_bind(self->reader);
    for (uint32_t i = 1; i <= self->rounds; i++) {
        if (!ls_flag_wait(&self->written, i, TIMEOUT_US, ls_now_us() + TIMEOUT_US)) return NULL;
        if (self->status == LS_OK) self->status = self->read_job.call(self->reader, self->read_job.argument);
        ls_flag_raise(&self->read);
    }
    return NULL;
}

/* Times a write. */
static ls_status time_write(const struct calibrate_worker *writer, struct calibrate_job write, double *us) {
    double begin_us = ls_now_us();
    ls_status status = write.call(writer, write.argument);
    *us = ls_now_us() - begin_us;
    return status;
}

ls_status calibrate_take_back(struct calibrate_pairs *pairs, const struct calibrate_worker *const *workers,
                              struct calibrate_job write, struct calibrate_job read, bool quick) {
    double taken_us[CALIBRATE_RUNS_MAX], kept_us[CALIBRATE_RUNS_MAX];
    int rounds = quick ? QUICK_RUNS : CALIBRATE_RUNS_MAX;
    struct take_back other = {.reader = workers[1], .read_job = read, .rounds = (uint32_t)rounds};
    pthread_t thread;
    ls_status status = write.call(workers[0], write.argument);
    int error = pthread_create(&thread, NULL, read_along, &other);
    if (error != 0) return ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error));
    bool answered = true;
    for (int r = 0; r < rounds && answered; r++) {
        uint32_t round = ls_flag_raise(&other.written);
        answered = ls_flag_wait(&other.read, round, TIMEOUT_US, ls_now_us() + TIMEOUT_US);
        if (status == LS_OK) status = time_write(workers[0], write, &taken_us[r]);
        if (status == LS_OK) status = time_write(workers[0], write, &kept_us[r]);
    }
    pthread_join(thread, NULL);
    if (!answered) return ls_fail(LS_ERR_TIMEOUT, "a thread did not answer within 30 s");
    if (status == LS_OK) status = other.status;
    if (status != LS_OK) return status;
    pairs->factor = calibrate_factor(taken_us, kept_us, rounds);
    pairs->alone = calibrate_spread_of(kept_us, rounds);
    pairs->together = calibrate_spread_of(taken_us, rounds);
    return status;
}
