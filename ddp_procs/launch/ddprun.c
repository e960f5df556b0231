/* ddprun: runs a program as N ranks on this machine. The work is in launch.c. */
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/comm/comm.h"
#include "ddp_procs/launch/launch.h"

#include <stdint.h>

int main(int argc, char **argv) {
    ddp_launch_options launch = {.nproc = 1, .grace_s = DDP_LAUNCH_GRACE_S};
    /* clang-format off */
    const ls_option options[] = {
        {.kind = LS_OPTION_INT, .name = "nproc-per-node", .to.number = &launch.nproc, .argument = "N",
         .limits = LS_BETWEEN(1, LS_COMM_MAX_RANKS), .help = "ranks to start, each a process"},
        {.kind = LS_OPTION_INT, .name = "master-port", .to.number = &launch.master_port, .argument = "PORT",
         .limits = LS_BETWEEN(0, UINT16_MAX), .empty = "one that is free",
         .help = "MASTER_PORT, for programs that meet there by themselves; ddp_train meets at a socket without a port"},
        {.kind = LS_OPTION_DOUBLE, .name = "grace", .to.real = &launch.grace_s, .argument = "SECONDS",
         .limits = LS_AT_LEAST(0),
         .help = "when a rank has failed, the others get SIGTERM, and SIGKILL after this time"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &launch.timeout_s, .argument = "SECONDS",
         .limits = LS_AT_LEAST(0), .empty = "none", .help = "end the job if it runs longer than this"},
    };
    /* clang-format on */
    const ls_command command = {
        .purpose = "Runs PROGRAM as N ranks on this machine; ends all of them when one fails.",
        .options = options,
        .count = sizeof options / sizeof options[0],
        .operands = "PROGRAM [ARGUMENT...]",
    };
    ls_parsed parsed;
    ls_log_init("ddprun", -1, false);
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    if (status == LS_OK && !parsed.help) {
        launch.argv = argv + parsed.first_operand;
        launch.program = launch.argv[0];
        status = launch.program ? ddp_launch(&launch)
                                : ls_fail(LS_ERR_USAGE, "which program is to run? ddprun [OPTION...] PROGRAM ...");
    }
    return ls_status_exit_code(status);
}
