/* recording — from probes to a folder of trace files.
 *   idea  : probes are switched between steps, with the devices idle, so that all work launched while they are on also
 *           runs while they are on. Everything else happens after the run: records become a trace (trace/resolve.h),
 *           the run's own facts are added, and every rank writes its own file
 *   cost  : while recording, that of probes (base/probe.h). After the run, memory and time in proportion to the
 *           records: about 128 bytes each, and three times that for the trace
 *   fails : a rank that cannot write its file reports it, and the others, which wait for it there, end with it; no
 *           merged file is written then */
#include "common/report/recording.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/base/results.h"
#include "common/base/secret.h"
#include "common/base/statistics.h"
#include "common/trace/chrome.h"
#include "common/trace/resolve.h"

/* --- the folder --------------------------------------------------------------------------------------------------- */

static ls_status make_folder(const char *path, bool *made) {
    struct stat info;
    *made = mkdir(path, 0777) == 0;
    int error = *made ? 0 : errno;
    if (error == EEXIST) error = stat(path, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
    if (error == 0 && access(path, W_OK | X_OK) != 0) error = errno;
    return error == 0 ? LS_OK : ls_fail(LS_ERR_IO, "cannot write the trace to %s: %s", path, strerror(error));
}

ls_status ls_recording_check(const ls_train_options *options) {
    bool made = false;
    if (!options->trace) return LS_OK;
    ls_status status = ls_trace_check_folder(options->trace);
    if (status == LS_OK) status = make_folder(options->trace, &made);
    if (made) (void)rmdir(options->trace);
    return status;
}

/* --- the steps ---------------------------------------------------------------------------------------------------- */

/* Agrees on whether devices share cores on any machine of the job, so that all files have times of one kind, and on the
 * run's number, which rank 0 draws. */
static ls_status agree_on_run(ls_recording *r) {
    enum { DIGITS = 12 }; /* exact in a double, and in JSON */
    ls_parallel *p = r->parallel;
    char drawn[DIGITS + 1] = "0";
    ls_status status = p->rank == 0 ? ls_secret_make(drawn, DIGITS) : LS_OK;
    double told[] = {r->options->virtual_time || !ls_parallel_has_cores(p), (double)strtoull(drawn, NULL, 16)};
    ls_status summed = ls_sum_over_ranks(p, told, 2);
    r->virtual_time = told[0] > 0;
    r->run = (uint64_t)told[1];
    return status != LS_OK ? status : summed;
}

ls_status ls_recording_open(ls_recording *r, const ls_train_options *options, ls_parallel *parallel,
                            ls_step_times *times, int64_t done, int64_t total_steps) {
    *r = (ls_recording){.options = options, .parallel = parallel, .times = times};
    if (!options->trace) return LS_OK;
    int64_t warm = done + times->warmup;
    r->first = total_steps > warm ? warm : done;
    r->most = options->trace_steps;
    if (total_steps - r->first < r->most) r->most = total_steps > r->first ? total_steps - r->first : 0;
    bool made;
    ls_status status = parallel->rank == 0 ? make_folder(options->trace, &made) : LS_OK;
    if (status == LS_OK) status = agree_on_run(r);
    if (status != LS_OK || times->how != LS_TIME_STEPS) return status;
    r->step_ms = calloc((size_t)r->most + 1, sizeof *r->step_ms);
    return r->step_ms
               ? LS_OK
               : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to record %" PRId64 " steps", options->trace_steps);
}

/* Waits until all work enqueued before the switch has run. */
static ls_status wait_for_devices(const ls_recording *r) {
    const ls_parallel *p = r->parallel;
    ls_status status = ls_step_times_pause(r->times);
    for (int d = 0; status == LS_OK && d < p->local_device_count; d++) status = ls_device_synchronize(p->devices[d]);
    return status;
}

ls_status ls_recording_begin_step(ls_recording *r, bool has_batch) {
    ls_status status = LS_OK;
    if (r->options->trace && !r->runs && r->steps == 0 && (int64_t)r->parallel->step == r->first) {
        status = wait_for_devices(r);
        if (status == LS_OK) ls_probe_start(r->virtual_time);
        r->runs = status == LS_OK;
    }
    if (has_batch) ls_recording_has_batch(r);
    return status;
}

void ls_recording_has_batch(const ls_recording *r) {
    if (r->runs) ls_probe_step((int32_t)r->parallel->step);
}

ls_status ls_recording_end_step(ls_recording *r, double step_ms) {
    if (!r->runs) return LS_OK;
    if (r->step_ms) r->step_ms[r->steps] = step_ms;
    ls_probe_instant(LS_PROBE_MARK, "step", 0, (uint32_t)r->parallel->step);
    ls_probe_step(-1);
    if (++r->steps < r->most) return LS_OK;
    ls_status status = wait_for_devices(r);
    ls_probe_stop();
    r->runs = false;
    return status;
}

void ls_recording_no_step(const ls_recording *r) {
    if (r->runs) ls_probe_step(-1);
}

/* --- the trace ---------------------------------------------------------------------------------------------------- */

/* The median of the recorded steps if each of them is timed, otherwise of the run's. */
static double median_ms(const ls_recording *r, double run_median_ms) {
    if (!ls_device_computes(r->parallel->devices[0])) return NAN;
    if (r->step_ms) {
        ls_sort(r->step_ms, (size_t)r->steps);
        return ls_quantile(r->step_ms, (size_t)r->steps, 0.5);
    }
    return run_median_ms > 0 ? run_median_ms : NAN;
}

static void describe_run(ls_trace *trace, const ls_recording *r, double run_median_ms) {
    const ls_parallel *p = r->parallel;
    const ls_train_options *o = r->options;
    const ls_device *device = p->devices[0];
    size_t outputs = ls_model_outputs(p->model);
    struct ls_trace_about *about = ls_trace_about(trace);
    *about = (struct ls_trace_about){
        .mode = p->mode->option,
        .model = o->model,
        .precision = ls_dtype_name((ls_dtype)o->precision),
        .optimizer = ls_train_optimizer_name(o),
        .device_kind = ls_device_kind_name(ls_device_kind_of(device)),
        .device_name = ls_device_model_name(device),
        .backend = p->backend,
        .run = r->run,
        .stream_mode = ls_device_stream_mode(device),
        .devices = p->device_count,
        .world_size = p->world_size,
        .recorded_ranks = ls_device_computes(device) ? p->world_size : 1,
        .batch_size = o->batch_size,
        .micro_batches = p->micro_batches,
        .input_bytes = ls_model_input_nbytes(p->model),
        .output_bytes = outputs * sizeof(float),
        .answer_bytes = ls_model_answer_nbytes(p->model),
        .virtual_time = r->virtual_time,
        .first_step = (int)r->first,
        .steps = (int)r->steps,
        .median_step_ms = median_ms(r, run_median_ms),
    };
    if (p->mode->describe) p->mode->describe(p, about);
    const char **texts[] = {&about->mode,      &about->model,       &about->precision,
                            &about->optimizer, &about->device_kind, &about->device_name,
                            &about->backend,   &about->algorithm,   &about->stream_mode};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) *texts[t] = ls_trace_text(trace, *texts[t]);
    for (size_t i = 0; i < ls_model_parameter_count(p->model); i++) {
        const struct ls_tensor *tensor = ls_model_parameter(p->model, i);
        ls_trace_add_parameter(trace, &(struct ls_trace_parameter){.name = tensor->name, .count = tensor->count});
    }
}

static ls_status make_trace(ls_trace **trace, ls_recording *r, double run_median_ms) {
    const ls_parallel *p = r->parallel;
    const struct ls_probe_thread *threads;
    size_t count;
    if (ls_probe_lost() > 0)
        return ls_fail(LS_ERR_NO_MEMORY,
                       "cannot make the trace: %" PRIu64 " records were lost for lack of memory; lower --trace-steps",
                       ls_probe_lost());
    ls_status status = ls_probe_read(&threads, &count);
    if (status == LS_OK) status = ls_trace_create(trace);
    if (status != LS_OK) return status;
    describe_run(*trace, r, run_median_ms);
    /* records have device places, which are numbered through all devices of a node */
    int first_device = p->rank * p->local_device_count - ls_device_place(p->devices[0]);
    status = ls_trace_resolve(*trace, threads, count, p->rank, first_device, r->virtual_time);
    if (status == LS_OK) status = ls_trace_seal(*trace);
    if (status == LS_OK) r->tasks = ls_trace_task_count(*trace);
    return status;
}

/* Tells every rank whether all have succeeded so far. */
static ls_status agree(const ls_recording *r, ls_status status) {
    ls_parallel *p = r->parallel;
    double told[] = {status != LS_OK};
    ls_status heard = ls_sum_over_ranks(p, told, 1);
    if (status != LS_OK || heard != LS_OK) return status != LS_OK ? status : heard;
    if (told[0] == 0) return LS_OK;
    return ls_fail(LS_ERR_PEER, "%.0f of the ranks could not make their part of the trace; this rank ends with them",
                   told[0]);
}

ls_status ls_recording_finish(ls_recording *r, double run_median_ms) {
    if (!r->options->trace) return LS_OK;
    ls_probe_stop();
    r->runs = false;
    if (r->steps == 0) {
        if (r->parallel->rank == 0) ls_note("--trace: no step was taken, so there is no trace");
        return LS_OK;
    }
    ls_parallel *p = r->parallel;
    const char *folder = r->options->trace;
    ls_trace *trace = NULL;
    ls_status status = make_trace(&trace, r, run_median_ms);
    /* an earlier trace is removed only when there is a new one, and before the first of its files is written */
    if (status == LS_OK && p->rank == 0) status = ls_trace_clear(folder);
    status = agree(r, status);
    if (status == LS_OK) status = agree(r, ls_trace_write_rank(trace, folder, p->rank));
    if (status == LS_OK) status = ls_sum_over_ranks(p, &r->tasks, 1);
    if (status == LS_OK && p->rank == 0) status = ls_trace_merge(folder);
    if (status != LS_OK) r->tasks = 0;
    ls_trace_destroy(trace);
    return status;
}

void ls_recording_tell(const ls_recording *r) {
    if (r->tasks == 0 || r->parallel->rank > 0 || r->options->quiet) return; /* without tasks, maybe never opened */
    const ls_device *device = r->parallel->devices[0];
    int devices = r->parallel->device_count;
    ls_print("trace: %s/merged.json, %" PRId64 " step%s from step %" PRId64 " on, %.0f tasks; ", r->options->trace,
             r->steps, r->steps == 1 ? "" : "s", r->first, r->tasks);
    if (!ls_device_computes(device)) {
        ls_print("nothing was computed\n");
    } else if (r->virtual_time) {
        ls_print("virtual time: what each of %d devices needed of the cores that they shared\n", devices);
    } else {
        ls_print("measured on %d %s device%s\n", devices, ls_device_model_name(device), devices == 1 ? "" : "s");
    }
}

void ls_recording_close(ls_recording *r) {
    if (r->options && r->options->trace) ls_probe_stop();
    if (r->options && r->options->trace && !r->parallel->stuck) ls_probe_drop(); /* a stuck thread may still write */
    free(r->step_ms);
    *r = (ls_recording){0};
}
