/* The state of a run of include/lockstep.h, shared by the files of this folder. */
#ifndef LIBRARY_RUN_H
#define LIBRARY_RUN_H

#include <lockstep.h>

#include "common/checkpoint/safetensors.h"
#include "ddp_procs/settings.h"
#include "dp_threads/dp_run.h"

struct ls_run {
    ls_mode_kind mode;
    union { /* of the mode */
        struct dp_settings dp;
        ddp_settings ddp;
    } settings;
    char **arguments; /* a program's name and the options, which the settings point into */
    int argument_count;
    struct ls_embedding embedding;
    void (*on_step)(void *context, const ls_run_step *step);
    void *step_context;
    void (*on_message)(void *context, const char *line);
    void *message_context;
    char *network; /* of ls_run_set_network; NULL: none */
    char error[1024];
    ls_safetensors *weights; /* of the last training; NULL: none */
};

/* The settings that both modes have. */
ls_train_options *ls_run_options(ls_run *run);

/* Call while a run trains in this process: its messages go to the run, and results are discarded. */
int ls_run_enter(ls_run *run);
int ls_run_leave(ls_run *run, ls_status status);

/* Takes a line that the programs would print: keeps the first error, and passes the line on. */
void ls_run_take_line(void *run, const char *line);

/* Trains in ranks that are forks of this process (spawned.c). */
ls_status ls_run_train_spawned(ls_run *run, ls_train_result *result);

#endif
