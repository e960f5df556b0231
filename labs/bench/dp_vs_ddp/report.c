/* report: what the bench prints, and the same as a file. The first screen holds the answers and a table per model; the
 * details are all other tables. The file has both; stdout has the details with --all. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/bench/shared/output.h"

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

/* What PUT writes, to be freed; NULL after a report. */
static char *text_of(ls_status (*put)(FILE *file, const bench_results *results), const bench_results *results) {
    bench_text written;
    FILE *file = bench_text_open(&written);
    ls_status status = file ? put(file, results) : LS_ERR_NO_MEMORY;
    char *text = file ? bench_text_close(&written) : NULL;
    if (status == LS_OK && text) return text;
    ls_fail(text ? status : LS_ERR_NO_MEMORY, "cannot lay out the bench's tables");
    free(text);
    return NULL;
}

ls_status bench_report(const bench_results *results, const char *folder) {
    char *screen = text_of(put_screen, results), *details = text_of(put_details, results), *both = NULL;
    ls_status status = screen && details ? LS_OK : LS_ERR_NO_MEMORY;
    if (status == LS_OK && asprintf(&both, "%s%s", screen, details) < 0) {
        both = NULL;
        status = ls_fail(LS_ERR_NO_MEMORY, "no memory for the bench's tables");
    }
    if (status == LS_OK) {
        fputs(results->settings->all ? both : screen, stdout);
        printf("\nAll tables and what their columns mean: %s/" BENCH_REPORT_FILE ", or --all (make: ALL=1)\n"
               "The numbers: %s/dp_vs_ddp*.csv, dp_vs_ddp.json\n",
               folder, folder);
        status = bench_write_file(folder, BENCH_REPORT_FILE, both);
    }
    free(screen);
    free(details);
    free(both);
    return status;
}
