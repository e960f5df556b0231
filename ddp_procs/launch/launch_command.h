/* The command line of ddprun, which is torchrun's as far as one machine needs it (docs/recipe.md has the table). */
#ifndef DDP_LAUNCH_LAUNCH_COMMAND_H
#define DDP_LAUNCH_LAUNCH_COMMAND_H

#include <stdbool.h>

#include "common/base/status.h"
#include "ddp_procs/launch/launch_options.h"

typedef struct ddp_command {
    ddp_launch_options launch;
    bool help;     /* --help or --version: answered, nothing else is set */
    bool show_env; /* --env: there may be no program */
    char **argv;   /* of the program, where that is run by Python; owned, NULL otherwise */
    char host[256];
} ddp_command;

/* Reads it; strings point into argv and the environment, or into *command, which must stay in its place. LS_ERR_USAGE with
 * one line, also for what torchrun has and one machine cannot do. Call ddp_command_free in any case. */
ls_status ddp_command_parse(ddp_command *command, int argc, char **argv);

void ddp_command_free(ddp_command *command);

#endif
