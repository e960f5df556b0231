/* dp_train — trains a model with one thread per device: DataParallel (or plainly, with --single). */
#include "common/base/launcher.h"
#include "common/base/log.h"
#include "common/base/results.h"
#include "dp_threads/dp_run.h"

int main(int argc, char **argv) {
    struct dp_settings settings = dp_settings_defaults();
    ls_train_result result;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = dp_settings_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    if (settings.train.show_model || settings.train.show_pytorch)
        return ls_status_exit_code(ls_results_written(ls_train_show_model(&settings.train)));
    ls_log_init(argv[0], -1, settings.train.quiet);
    ls_log_verbose(settings.train.verbose);
    status = ls_launcher_refuse_copies("train the whole thing",
                                       "start dp_train by itself, or let the launcher start ddp_train");
    if (status == LS_OK) status = dp_run(&settings, &result);
    return ls_status_exit_code(ls_results_written(status));
}
