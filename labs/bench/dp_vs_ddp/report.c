/* report: what the bench prints, and the same as a file. The first screen holds the answers and a table per model; the
 * details are all other tables. The file has both; stdout has the details with --all. */
#include <stdio.h>

#include "labs/bench/dp_vs_ddp/bench.h"

static ls_status put_screen(FILE *file, const bench_results *results) {
    const bench_settings *settings = results->settings;
    ls_status status = LS_OK;
    bench_put_answers(file, results);
    fputc('\n', file);
    bench_print_machine(file, results->machine);
    if (settings->gpus) {
        fprintf(file, "devices: %d GPU%s, %s\n", settings->processors, settings->processors == 1 ? "" : "s",
                results->device_name);
    }
    for (int m = 0; status == LS_OK && m < results->model_count; m++)
        status = bench_print_table(file, &results->models[m], settings);
    bench_print_notes(file, results);
    return status;
}

static ls_status put_details(FILE *file, const bench_results *results) {
    ls_status status = LS_OK;
    for (int m = 0; status == LS_OK && m < results->model_count; m++)
        status = bench_print_details(file, &results->models[m], results->settings);
    bench_print_legend(file, results->settings, results->models[0].virtual_count > 0);
    return status;
}

ls_status bench_put_report(FILE *file, const void *results) {
    ls_status status = put_screen(file, results);
    return status == LS_OK ? put_details(file, results) : status;
}

ls_status bench_report(const bench_results *results, const char *folder) {
    ls_status status = put_screen(stdout, results);
    if (status == LS_OK && results->settings->all) status = put_details(stdout, results);
    printf("\nAll tables and what their columns mean: %s/" BENCH_REPORT_FILE ", or --all (make: ALL=1)\n"
           "The numbers: %s/dp_vs_ddp*.csv, dp_vs_ddp.json\n",
           folder, folder);
    return status;
}
