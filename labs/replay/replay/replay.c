/* replay — computes the time of a step on a described machine: DP and DDP on any number of devices, by discrete-event
 * simulation of the two programs.
 *
 *     build/replay --node course --workload course
 *     build/replay --node dgx1-v100 --workload resnet50 --batch 256 --n 1,2,4,8
 *     build/replay --node here --trace /tmp/trace-of-one-device --mode ddp --n 2
 *     build/replay --trace /tmp/trace --as-recorded */
#include "labs/replay/replay/replay.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/results.h"

static ls_status replay_all(const replay_inputs *inputs, const replay_settings *settings) {
    replay_rows rows = {.inputs = inputs, .settings = settings};
    double began_us = ls_now_us();
    long long tasks = 0;
    ls_status status = replay_make_rows(&rows);
    for (int i = 0; i < rows.count; i++) tasks += rows.rows[i].tasks;
    if (status == LS_OK) ls_note("%lld tasks were replayed in %.2f s", tasks, (ls_now_us() - began_us) / 1e6);
    if (status == LS_OK) status = replay_print(&rows);
    if (status == LS_OK) status = replay_write_files(&rows);
    replay_rows_free(&rows);
    return status;
}

static ls_status replay(replay_settings *settings) {
    replay_inputs inputs;
    ls_status status = replay_open(&inputs, settings);
    if (status != LS_OK) return status;
    status = replay_prepare_files(settings);
    if (status == LS_OK)
        status = settings->as_recorded ? replay_recorded(&inputs, settings) : replay_all(&inputs, settings);
    replay_close(&inputs);
    return status;
}

int main(int argc, char **argv) {
    replay_settings settings;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = replay_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, settings.quiet);
    return ls_status_exit_code(ls_results_written(replay(&settings)));
}
