/* A short training run of the programs beside this one, and its summary. */
#ifndef LABS_REPLAY_TABLES_TRAIN_H
#define LABS_REPLAY_TABLES_TRAIN_H

#include <cjson/cJSON.h>

#include "common/base/status.h"

enum tables_mode { TABLES_SINGLE, TABLES_DP, TABLES_DDP };

struct tables_run {
    enum tables_mode mode;
    int devices; /* CPU devices; more of them than cores share these */
    const char *model, *optimizer, *precision;
    int batch; /* samples of a step over all devices */
    int steps;
    const char *const *extra; /* further arguments, ended by NULL; NULL: none */
};

/* The object "summary" that the program writes; to be freed with cJSON_Delete. Host-blocking, at most timeout_s; call
 * it while the process has no other threads. Failures are reported. */
ls_status tables_train(cJSON **summary, const struct tables_run *run, double timeout_s);

/* Of device `device` in a summary: "busy_share" or "communication_share"; NAN if it is not there. */
double tables_device_share(const cJSON *summary, int device, const char *name);

/* The median step in milliseconds; NAN or 0 if there were too few steps. */
double tables_step_ms(const cJSON *summary);

/* Of device `device` in a summary: the peak of a category ("optimizer", ..., "total"), or the bytes that a phase
 * ("reduce") moves in a step. NAN if there is no such number. */
double tables_peak_bytes(const cJSON *summary, int device, const char *category);
double tables_phase_bytes(const cJSON *summary, int device, const char *phase);

#endif
