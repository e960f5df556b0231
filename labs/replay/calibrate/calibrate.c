/* calibrate — measures the performance of this machine's CPU devices, prints it, and writes it as a node for replay. */
#include <stdio.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/results.h"
#include "common/comm/comm.h"
#include "kernels/cpu/cpu.h"
#include "labs/bench/shared/machine.h"
#include "labs/bench/shared/settings.h"
#include "labs/replay/calibrate/calibrate.h"

/* clang-format off */
static ls_status parse(calibrate_settings *settings, int argc, char **argv, bool *help) {
    const ls_option table[] = {
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &settings->out, .argument = "FILE",
         .help = "file for the node; its folder must exist"},
        {.kind = LS_OPTION_FLAG, .name = "beyond-cache", .to.flag = &settings->beyond_cache,
         .help = "measure sizes beyond the caches, as of a network whose parameters exceed them"},
        {.kind = LS_OPTION_FLAG, .name = "hosts", .to.flag = &settings->hosts,
         .help = "measure only the network between the hosts of a job (ddprun --nnodes M), and add the result to the existing file"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &settings->timeout_s, .argument = "SECONDS",
         .limits = LS_BETWEEN(0.01, LS_COMM_LONGEST_TIMEOUT_S), .help = "with --hosts: deadline of every wait for another rank, in seconds"},
        {.kind = LS_OPTION_FLAG, .name = "quick", .to.flag = &settings->quick,
         .help = "fewer runs and sizes: a second instead of several, rough figures"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &settings->quiet, .help = "no notes"},
    };
    return BENCH_PARSE(table,
                       "Measures what this machine's CPU devices reach and writes it as a node for build/replay.",
                       argc, argv, help);
}
/* clang-format on */

static ls_status calibrate(const calibrate_settings *settings, const bench_machine *machine) {
    static calibrate_figures figures;
    ls_status status = ls_cpu_kernels_check();
    if (status == LS_OK) status = ls_file_check(settings->out);
    if (status != LS_OK || settings->hosts) return status == LS_OK ? calibrate_hosts(settings, machine) : status;
    bench_print_machine(stdout, machine);
    bench_note_load(machine);
    status = calibrate_collectives(&figures, settings);
    if (status == LS_OK) status = calibrate_devices(&figures, settings);
    if (status == LS_OK) status = calibrate_print(&figures, machine);
    if (status == LS_OK) status = calibrate_write(&figures, machine, settings->out);
    if (status == LS_OK) printf("\nwritten:\n%s\n", settings->out);
    return status;
}

int main(int argc, char **argv) {
    calibrate_settings settings = {.out = "build/results/this_machine.json", .timeout_s = 60};
    bench_machine machine;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, settings.quiet);
    bench_describe_machine(&machine);
    return ls_status_exit_code(ls_results_written(calibrate(&settings, &machine)));
}
