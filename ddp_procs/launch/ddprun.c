/* ddprun: runs a program as N ranks on this machine. The work is in launch.c. */
#include "common/base/log.h"
#include "ddp_procs/launch/launch.h"
#include "ddp_procs/launch/launch_command.h"
#include "ddp_procs/launch/launch_environment.h"

int main(int argc, char **argv) {
    ddp_command command;
    ls_log_init("ddprun", -1, false);
    ls_status status = ddp_command_parse(&command, argc, argv);
    if (status == LS_OK && !command.help)
        status = command.show_env ? ddp_environment_print(&command.launch) : ddp_launch(&command.launch);
    ddp_command_free(&command);
    return ls_status_exit_code(status);
}
