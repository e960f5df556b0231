/* run — the library's calls: the two programs' runs, with memory in place of files, and callbacks in place of lines.
 *   idea  : options are those of the programs, parsed by the same tables, so the library can do all that the programs
 *           can. Trained weights are passed through an unlinked file in the format of --save-weights: in the same way
 *           if a thread, a rank or a fork of this process has trained
 *   fails : each call begins with an empty error, and keeps the first one that any thread reports in it */
#define _GNU_SOURCE
#include "library/run.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "common/base/version.h"
#include "common/nn/network_text.h"
#include "common/report/report.h"
#include "ddp_procs/ddp_run.h"

const char *ls_version(void) { return LS_VERSION; }

ls_train_options *ls_run_options(ls_run *run) {
    return run->mode == LS_MODE_DP ? &run->settings.dp.train : &run->settings.ddp.train;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* "lockstep: error: ..." or "lockstep[rank 1]: error: ..." */
void ls_run_take_line(void *context, const char *line) {
    static const char mark[] = ": error: ";
    ls_run *run = context;
    const char *error = strstr(line, mark);
    if (error && run->error[0] == '\0') snprintf(run->error, sizeof run->error, "%s", error + sizeof mark - 1);
    if (run->on_message) run->on_message(run->message_context, line);
}

int ls_run_enter(ls_run *run) {
    run->error[0] = '\0';
    FILE *nowhere = fopen("/dev/null", "we");
    if (!nowhere) {
        snprintf(run->error, sizeof run->error, "cannot open /dev/null");
        return ls_status_exit_code(LS_ERR_SYSTEM);
    }
    ls_results_redirect(nowhere);
    ls_log_init("lockstep", -1, false);
    ls_log_redirect(ls_run_take_line, run);
    return 0;
}

int ls_run_leave(ls_run *run, ls_status status) {
    ls_log_redirect(NULL, NULL);
    fclose(ls_results());
    ls_results_redirect(NULL);
    if (status != LS_OK && run->error[0] == '\0') snprintf(run->error, sizeof run->error, "%s", ls_status_text(status));
    return ls_status_exit_code(status);
}

const char *ls_run_error(const ls_run *run) { return run ? run->error : "no memory for a run"; }

/* --- a run -------------------------------------------------------------------------------------------------------- */

static ls_status copy_arguments(ls_run *run, const char *const *options) {
    size_t count = 0;
    while (options && options[count]) count++;
    run->arguments = calloc(count + 2, sizeof *run->arguments);
    if (!run->arguments) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the options");
    for (size_t i = 0; i <= count; i++) {
        run->arguments[i] = strdup(i == 0 ? "lockstep" : options[i - 1]);
        if (!run->arguments[i]) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the options");
    }
    run->argument_count = (int)count + 1;
    return LS_OK;
}

static ls_status read_options(ls_run *run) {
    bool help = false;
    ls_status status;
    for (int i = 1; i < run->argument_count; i++)
        if (strcmp(run->arguments[i], "--help") == 0 || strcmp(run->arguments[i], "--version") == 0)
            return ls_fail(LS_ERR_USAGE, "%s is an option for programs only", run->arguments[i]);
    if (run->mode == LS_MODE_DP) {
        run->settings.dp = dp_settings_defaults();
        status = dp_settings_parse(&run->settings.dp, run->argument_count, run->arguments, &help);
    } else {
        run->settings.ddp = ddp_settings_defaults();
        status = ddp_settings_parse(&run->settings.ddp, run->argument_count, run->arguments, &help);
    }
    const ls_train_options *o = ls_run_options(run);
    bool shows = o->show_model || o->show_pytorch || (run->mode == LS_MODE_DDP && run->settings.ddp.show_schedule);
    return status == LS_OK && shows ? ls_fail(LS_ERR_USAGE, "options that print are for programs only") : status;
}

int ls_run_create(ls_run **out, ls_mode_kind mode, const char *const *options) {
    ls_run *run = *out = calloc(1, sizeof *run);
    if (!run) return ls_status_exit_code(LS_ERR_NO_MEMORY);
    run->mode = mode;
    run->embedding.weights_fd = -1;
    int entered = ls_run_enter(run);
    if (entered != 0) return entered;
    ls_status status = mode == LS_MODE_DP || mode == LS_MODE_DDP
                           ? copy_arguments(run, options)
                           : ls_fail(LS_ERR_INVALID, "mode %d does not exist", (int)mode);
    if (status == LS_OK) status = read_options(run);
    return ls_run_leave(run, status);
}

void ls_run_destroy(ls_run *run) {
    if (!run) return;
    ls_safetensors_close(run->weights);
    free(run->network);
    for (int i = 0; run->arguments && run->arguments[i]; i++) free(run->arguments[i]);
    free(run->arguments);
    free(run);
}

/* --- training data ------------------------------------------------------------------------------------------------ */

static struct ls_memory_samples samples_of(const ls_samples *s) {
    return (struct ls_memory_samples){.spec = {.channels = s->channels,
                                               .height = s->height,
                                               .width = s->width,
                                               .classes = s->classes,
                                               .target_count = s->target_count},
                                      .count = s->count,
                                      .inputs = s->inputs,
                                      .labels = s->labels,
                                      .targets = s->targets};
}

static ls_status check_samples(const struct ls_memory_samples *samples) {
    ls_dataset *dataset;
    ls_status status = ls_dataset_from_memory(&dataset, samples);
    ls_dataset_close(dataset);
    return status;
}

int ls_run_set_samples(ls_run *run, const ls_samples *train, const ls_samples *test) {
    int entered = ls_run_enter(run);
    if (entered != 0) return entered;
    struct ls_memory_samples of_train = samples_of(train), of_test = test ? samples_of(test) : of_train;
    ls_status status = check_samples(&of_train);
    if (status == LS_OK && test) status = check_samples(&of_test);
    if (status == LS_OK) {
        run->embedding.train = of_train;
        run->embedding.test = of_test;
        if (!test) run->embedding.test.count = 0;
        ls_run_options(run)->data = "memory:";
        ls_run_options(run)->evaluate = ls_run_options(run)->evaluate && test;
    }
    return ls_run_leave(run, status);
}

int ls_run_set_network(ls_run *run, const char *text) {
    int entered = ls_run_enter(run);
    if (entered != 0) return entered;
    free(run->network);
    run->network = strdup(text);
    ls_status status =
        run->network ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the network's text");
    ls_run_options(run)->model = LS_NETWORK_IN_MEMORY;
    return ls_run_leave(run, status);
}

void ls_run_on_step(ls_run *run, void (*call)(void *context, const ls_run_step *step), void *context) {
    run->on_step = call;
    run->step_context = context;
}

void ls_run_on_message(ls_run *run, void (*call)(void *context, const char *line), void *context) {
    run->on_message = call;
    run->message_context = context;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static void take_step(void *context, const struct ls_report_line *line) {
    ls_run *run = context;
    ls_run_step step = {.step = line->step, .epoch = line->epoch, .loss = line->loss, .step_ms = line->step_ms};
    run->on_step(run->step_context, &step);
}

static ls_status train_in_mode(ls_run *run, ls_train_result *result) {
    if (run->mode == LS_MODE_DP) {
        struct dp_settings settings = run->settings.dp; /* a run completes its settings */
        return dp_run(&settings, result);
    }
    if (run->settings.ddp.spawn > 0 && !ddp_is_meta(&run->settings.ddp)) return ls_run_train_spawned(run, result);
    ddp_settings settings = run->settings.ddp;
    return ddp_run_rank(&settings, "lockstep", result);
}

/* Rank 0 has written the weights; other ranks have none. */
static ls_status read_weights(ls_run *run) {
    off_t nbytes = lseek(run->embedding.weights_fd, 0, SEEK_END);
    if (nbytes <= 0) return LS_OK;
    (void)lseek(run->embedding.weights_fd, 0, SEEK_SET);
    return ls_safetensors_open_fd(&run->weights, run->embedding.weights_fd, "the trained weights");
}

static ls_status train(ls_run *run, ls_train_result *result) {
    ls_train_options *options = ls_run_options(run);
    ls_safetensors_close(run->weights);
    run->weights = NULL;
    run->embedding.on_step = run->on_step ? take_step : NULL;
    run->embedding.context = run;
    run->embedding.weights_fd = memfd_create("weights", MFD_CLOEXEC);
    if (run->embedding.weights_fd < 0) return ls_fail(LS_ERR_SYSTEM, "cannot allocate memory for the trained weights");
    options->embedding = &run->embedding;
    options->quiet = true; /* no progress bar */
    ls_network_set_memory(run->network);
    ls_status status = train_in_mode(run, result);
    ls_network_set_memory(NULL);
    if (status == LS_OK) status = read_weights(run);
    close(run->embedding.weights_fd);
    run->embedding.weights_fd = -1;
    return status;
}

int ls_run_train(ls_run *run, ls_run_result *result) {
    ls_train_result trained = {.accuracy = NAN, .final_loss = NAN};
    int entered = ls_run_enter(run);
    if (entered != 0) return entered;
    int code = ls_run_leave(run, train(run, &trained));
    if (result)
        *result = (ls_run_result){.steps = trained.steps,
                                  .epochs = trained.epochs,
                                  .final_loss = trained.final_loss,
                                  .test_accuracy = trained.accuracy,
                                  .step_ms = trained.median_step_ms,
                                  .samples_per_s = trained.samples_per_s,
                                  .weights_hash = trained.parameter_hash};
    return code;
}

/* --- results ------------------------------------------------------------------------------------------------------ */

size_t ls_run_tensor_count(const ls_run *run) { return run->weights ? ls_safetensors_count(run->weights) : 0; }

int ls_run_get_tensor(const ls_run *run, size_t index, ls_run_tensor *tensor) {
    *tensor = (ls_run_tensor){0};
    if (index >= ls_run_tensor_count(run)) return 0;
    const ls_safetensor *stored = ls_safetensors_at(run->weights, index);
    *tensor = (ls_run_tensor){.name = stored->name, .dims = stored->ndim, .count = 1};
    for (int d = 0; d < stored->ndim; d++) tensor->count *= tensor->shape[d] = stored->shape[d];
    if (stored->dtype == LS_SAFETENSOR_F32)
        tensor->values = stored->data;
    else
        tensor->integers = stored->data;
    return 1;
}
