/* A run of DataParallel (or plainly, on one device): what dp_train does, and programs that use the library. */
#ifndef DP_RUN_H
#define DP_RUN_H

#include "common/seam/devices.h"
#include "common/train/loop.h"

struct dp_settings {
    ls_train_options train;
    int devices; /* 0: all */
    ls_int_list device_ids;
    int output_device; /* -1: the first */
    int replicate;
    bool single;
    ls_device_choice choice; /* what these come to */
};

/* The defaults that --help shows. */
struct dp_settings dp_settings_defaults(void);

/* Reads the command line. LS_ERR_USAGE with one line; *help: --help was asked for, and is answered. */
ls_status dp_settings_parse(struct dp_settings *s, int argc, char **argv, bool *help);

/* Everything that a run builds and takes down; zero-filled: nothing is built yet. */
struct dp_session {
    int count;
    ls_device *devices[LS_MAX_DEVICES];
    ls_model *model;
    ls_dataset *train, *test;
    ls_parallel *parallel;
};

/* Builds it as the settings say, which it checks and completes. Close it also after a failure. */
ls_status dp_session_open(struct dp_session *session, struct dp_settings *s);
void dp_session_close(struct dp_session *session);

/* Trains as the settings say, on devices of this process, and takes down all that it has built. */
ls_status dp_run(struct dp_settings *s, ls_train_result *result);

#endif
