/* fit_tn — fits T_N = T1 / N + Tcomm(N) to step times, and prints the law that they support.
 *
 *     build/fit_tn --points 1:100,2:52,4:28,8:15 --predict 16,32
 *     build/fit_tn --csv build/results/dp_vs_ddp.csv --model convnet --mode ddp --plot build/results/tn_fit.png */
#include <string.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "labs/bench/shared/settings.h"
#include "labs/replay/fit_tn/fit_tn.h"

/* --- the command line -------------------------------------------------------------------------------------------- */

static const char *const modes[] = {"dp", "ddp", NULL};
static const char *const hows[] = {"unsaid", "measured", "virtual", "replayed", NULL};
static const char *const scalings[] = {"auto", "strong", "weak", NULL}; /* the order of fit_tn_scaling */

struct choices {
    int mode, how, scaling;
};

/* clang-format off */
static ls_status parse(fit_tn_settings *s, struct choices *choices, int argc, char **argv, bool *help) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "The points: give one of the two"},
        {.kind = LS_OPTION_STRING, .name = "points", .to.text = &s->points, .argument = "N:MS,...",
         .help = "step times, as in 1:100,2:52,4:28,8:15"},
        {.kind = LS_OPTION_STRING, .name = "csv", .to.text = &s->csv, .argument = "FILE",
         .help = "a file of bench_dp_vs_ddp or replay"},
        {.kind = LS_OPTION_STRING, .name = "model", .to.text = &s->model, .argument = "NAME",
         .help = "rows of the CSV to take", .empty = "its only one"},
        {.kind = LS_OPTION_CHOICE, .name = "mode", .to.number = &choices->mode, .choices = modes,
         .help = "rows of the CSV to take"},
        {.kind = LS_OPTION_FLAG, .name = "oversubscribed", .to.flag = &s->oversubscribed,
         .help = "also take rows with more devices than cores, whose times only show time-slicing"},
        {.kind = LS_OPTION_CHOICE, .name = "how", .to.number = &choices->how, .choices = hows,
         .help = "how --points were obtained, for the tables' titles; a CSV names that itself"},
        {.kind = LS_OPTION_STRING, .name = "title", .to.text = &s->title, .argument = "TEXT",
         .help = "what the points are; a CSV names that itself"},
        {.kind = LS_OPTION_STRING, .name = "on", .to.text = &s->on, .argument = "TEXT",
         .help = "the machine of the points; a CSV names that itself"},
        {.kind = LS_OPTION_HEADING, .help = "The law"},
        {.kind = LS_OPTION_CHOICE, .name = "scaling", .to.number = &choices->scaling, .choices = scalings,
         .help = "strong: N devices share a batch, T1/N + Tcomm; weak: each has its own, T1 + Tcomm; auto: as the "
                 "batches of the CSV say, else strong"},
        {.kind = LS_OPTION_INT_LIST, .name = "predict", .to.list = &s->predict, .argument = "N,N,...",
         .limits = LS_BETWEEN(1, 1e6), .help = "predict T_N for these N by the chosen law"},
        {.kind = LS_OPTION_HEADING, .help = "What is written beside the tables"},
        {.kind = LS_OPTION_STRING, .name = "json", .to.text = &s->json, .argument = "FILE", .help = "the same as JSON"},
        {.kind = LS_OPTION_STRING, .name = "plot", .to.text = &s->plot, .argument = "FILE.png",
         .help = "points, curves and residuals, drawn by gnuplot; FILE.svg and the data, FILE.csv, lie beside it"},
    };
    return BENCH_PARSE(table, "Fits T_N = T1 / N + Tcomm(N) to the step times of N devices.", argc, argv, help);
}
/* clang-format on */

static ls_status check(const fit_tn_settings *s) {
    if (!s->points == !s->csv) return ls_fail(LS_ERR_USAGE, "give either --points or --csv; see --help");
    if (s->points && s->model) return ls_fail(LS_ERR_USAGE, "--model chooses rows of a --csv; leave --model out");
    size_t nbytes = s->plot ? strlen(s->plot) : 0;
    if (s->plot && (nbytes <= 4 || strcmp(s->plot + nbytes - 4, ".png") != 0))
        return ls_fail(LS_ERR_USAGE, "--plot: '%s' does not end with .png", s->plot);
    return LS_OK;
}

static ls_status parse_all(fit_tn_settings *settings, int argc, char **argv, bool *help) {
    struct choices choices = {.mode = 1};
    *settings = (fit_tn_settings){.points = NULL};
    ls_status status = parse(settings, &choices, argc, argv, help);
    if (status != LS_OK || *help) return status;
    settings->mode = modes[choices.mode];
    settings->how = choices.how > 0 ? hows[choices.how] : NULL;
    settings->scaling = (fit_tn_scaling)choices.scaling;
    return check(settings);
}

/* --- the program -------------------------------------------------------------------------------------------------- */

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
    ls_status status = parse_all(&settings, argc, argv, &help);
    if (status == LS_OK && !help) status = fit(&settings);
    return ls_status_exit_code(ls_results_written(status));
}
