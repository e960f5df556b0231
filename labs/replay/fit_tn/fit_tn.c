/* fit_tn — fits T_N = T1 / N + Tcomm(N) to step times, and says which law they support.
 *
 *     build/fit_tn --points 1:100,2:52,4:28,8:15 --predict 16,32
 *     build/fit_tn --csv build/results/dp_vs_ddp.csv --model convnet --mode ddp --plot build/results/tn_fit.png */
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "labs/replay/fit_tn/fit_tn.h"

static ls_status fit(const fit_tn_settings *settings) {
    fit_tn_data data;
    fit_tn_result result;
    ls_status status = fit_tn_check_files(settings);
    if (status == LS_OK) status = fit_tn_take_points(&data, settings);
    if (status == LS_OK) status = fit_tn_fit(&result, &data);
    if (status == LS_OK) status = fit_tn_print(&result, &data, settings);
    if (status == LS_OK) status = fit_tn_write(&result, &data, settings);
    return status;
}

int main(int argc, char **argv) {
    fit_tn_settings settings;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = fit_tn_parse(&settings, argc, argv, &help);
    if (status == LS_OK && !help) status = fit(&settings);
    return ls_status_exit_code(ls_results_written(status));
}
