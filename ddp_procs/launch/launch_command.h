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
    char **argv;   /* of the program, if Python runs it; owned; NULL otherwise */
    char host[256];
} ddp_command;

/* Reads the command line. Strings point into argv and the environment, or into *command, which must not be moved.
 * LS_ERR_USAGE with one line, also for torchrun's options that are not supported. Call ddp_command_free in any case. */
ls_status ddp_command_parse(ddp_command *command, int argc, char **argv);

void ddp_command_free(ddp_command *command);

#endif
