/* A short training run of the programs beside this one, and its summary. */
#ifndef LABS_REPLAY_TABLES_TRAIN_H
#define LABS_REPLAY_TABLES_TRAIN_H

#include <cjson/cJSON.h>

#include "labs/replay/engine/plan.h"

struct tables_training {
    ls_plan_mode mode;
    int devices;           /* CPU devices; they share cores if there are fewer cores */
    const char *arguments; /* of dp_train or ddp_train, separated by blanks */
    const char *trace;     /* the folder of --trace; NULL: none */
};

/* Returns the object "summary" that the program writes; the caller frees it with cJSON_Delete. Host-blocking, at most
 * timeout_s; call it while the process has no other threads. Failures are reported. */
ls_status tables_train(cJSON **summary, const struct tables_training *training, double timeout_s);

/* The number `name` of device `device`, such as "busy_share"; with a `group`, the number in this member, such as
 * "peak_bytes" or "bytes_per_step_by_phase". NAN if there is none. */
double tables_device_number(const cJSON *summary, int device, const char *group, const char *name);

#endif
