/* A run of DataParallel (or on a single device), for dp_train and for programs that use the library. */
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
    ls_device_choice choice; /* the devices that these settings select */
};

/* The defaults that --help shows. */
struct dp_settings dp_settings_defaults(void);

/* Parses the command line. LS_ERR_USAGE with one line; *help: --help was given and has been printed. */
ls_status dp_settings_parse(struct dp_settings *s, int argc, char **argv, bool *help);

/* Everything that a run creates; zero-filled: nothing is created yet. */
struct dp_session {
    int count;
    ls_device *devices[LS_MAX_DEVICES];
    ls_model *model;
    ls_dataset *train, *test;
    ls_parallel *parallel;
};

/* Creates it according to the settings, which it checks and completes. Close it also after a failure. */
ls_status dp_session_open(struct dp_session *session, struct dp_settings *s);
void dp_session_close(struct dp_session *session);

/* Trains according to the settings, on devices of this process, and frees everything it has created. */
ls_status dp_run(struct dp_settings *s, ls_train_result *result);

#endif
