/* options_check — refuses options that contradict each other or are impossible, once the number of devices is known,
 * and warns of those without effect. */
#include <inttypes.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/comm/comm.h"
#include "common/seam/devices.h"
#include "common/seam/options.h"

enum { MOST_SAMPLES = INT32_MAX / 4 }; /* of a step; products with the number of devices stay far from overflow */

/* Sets batch_size from the options given. */
static ls_status check_batch(ls_train_options *o, int device_count) {
    if (o->accumulate < 1) return ls_fail(LS_ERR_USAGE, "--accumulate is %d; expected at least 1", o->accumulate);
    if (o->per_device_batch > MOST_SAMPLES) {
        return ls_fail(LS_ERR_USAGE, "%" PRId64 " samples on each device exceed the limit of %d", o->per_device_batch,
                       MOST_SAMPLES);
    }
    int64_t together = o->per_device_batch * device_count * o->accumulate;
    if (o->asked_batch_size > 0) o->batch_size = o->asked_batch_size;
    if (o->asked_batch_size > 0 && together > 0 && together != o->asked_batch_size) {
        return ls_fail(LS_ERR_USAGE,
                       "--batch-size %" PRId64 " and --per-device-batch %" PRId64
                       " contradict each other: on %d device%s in %d micro-batch%s the latter makes a batch of %" PRId64
                       "; give only one",
                       o->asked_batch_size, o->per_device_batch, device_count, device_count == 1 ? "" : "s",
                       o->accumulate, o->accumulate == 1 ? "" : "es", together);
    }
    if (together > 0) o->batch_size = together;
    o->asked_batch_size = o->batch_size; /* so that the option's row has the resulting value */
    if (o->batch_size < device_count) {
        return ls_fail(LS_ERR_USAGE,
                       "%d devices cannot share a batch of %" PRId64 " samples; use fewer devices or a larger batch",
                       device_count, o->batch_size);
    }
    if (o->batch_size > MOST_SAMPLES) {
        return ls_fail(LS_ERR_USAGE, "a batch of %" PRId64 " samples exceeds the limit of %d", o->batch_size,
                       MOST_SAMPLES);
    }
    return LS_OK;
}

/* A checkpoint has the position in the epoch, which a run on resident batches does not have. */
static ls_status check_resident(const ls_train_options *o) {
    if (o->resident_batches == 0) return LS_OK;
    if (o->steps == 0) return ls_fail(LS_ERR_USAGE, "--resident-batches needs --steps, since its epochs do not end");
    const char *other = o->accumulate > 1       ? "--accumulate, each of whose micro-batches would need a place"
                        : ls_train_is_stream(o) ? "a stream, which is read to its end"
                        : o->save               ? "--save: its place in the epoch would be wrong (--save-weights)"
                        : ls_train_resume(o)    ? "--resume, which goes on in the middle of an epoch"
                                                : NULL;
    return other ? ls_fail(LS_ERR_USAGE, "--resident-batches cannot be combined with %s", other) : LS_OK;
}

/* --generate needs a text to continue, and devices that compute. */
static ls_status check_generate(const ls_train_options *o) {
    if (o->generate == 0) return LS_OK;
    if (!ls_gpt_is_named(o->model))
        return ls_fail(LS_ERR_USAGE, "--generate continues a text, but %s takes images: give --model gpt", o->model);
    if (!ls_train_is_sums(o) && !ls_train_text_files(o))
        return ls_fail(LS_ERR_USAGE,
                       "--generate continues a text, but --data %s is not a text: give text:FILE or sums:SEED",
                       o->data);
    if (o->device_kind == LS_TRAIN_DEVICES_META)
        return ls_fail(LS_ERR_USAGE, "--generate cannot be combined with meta devices, which compute nothing");
    return LS_OK;
}

/* Checks that are possible before the data is opened. Its epochs may still be too short (the loop checks again). */
static ls_status check_schedule(const ls_train_options *o, int device_count) {
    int64_t steps = o->steps > 0 ? o->steps : ls_train_is_stream(o) ? 0 : INT64_MAX;
    ls_schedule schedule = ls_train_schedule(o, device_count, steps);
    return ls_schedule_check(&schedule);
}

ls_status ls_train_options_check(ls_train_options *o, int device_count) {
    ls_optimizer_options optimizer = ls_train_optimizer(o);
    if (o->data == ls_train_defaults().data && ls_gpt_is_named(o->model)) o->data = "sums:0"; /* --data is not given */
    o->weight_decay = optimizer.weight_decay; /* first: ranks compare options also where they are refused */
    ls_status status = check_batch(o, device_count);
    if (status != LS_OK) return status;
    if (!(o->timeout_s <= LS_COMM_LONGEST_TIMEOUT_S)) {
        return ls_fail(LS_ERR_USAGE, "--timeout %g s is out of range; expected at most %g", o->timeout_s,
                       LS_COMM_LONGEST_TIMEOUT_S);
    }
    if (o->host_lock_us > 0 && o->device_kind == LS_TRAIN_DEVICES_META) {
        return ls_fail(LS_ERR_USAGE,
                       "--host-lock takes time, which meta devices do not have: use build/replay --host-lock");
    }
    if (o->offload != LS_TRAIN_OFFLOAD_NONE && o->device_kind == LS_TRAIN_DEVICES_META) {
        return ls_fail(LS_ERR_USAGE,
                       "--offload cannot be combined with meta devices, which do not count the host's updates");
    }
    status = check_resident(o);
    if (status == LS_OK) status = check_generate(o);
    int every;
    if (status == LS_OK) status = ls_parse_every(o->checkpoint_activations, &every);
    if (status != LS_OK) return status;
    if (o->save_every > 0 && !o->save) return ls_fail(LS_ERR_USAGE, "--save-every needs --save FILE");
    if (o->save_module_prefix && !o->save_weights) {
        return ls_fail(LS_ERR_USAGE, "--save-module-prefix needs --save-weights FILE");
    }
    if (o->resume && o->resume_if_present) {
        return ls_fail(LS_ERR_USAGE,
                       "--resume and --resume-if-present exclude each other: give the first if the file must exist");
    }
    if (o->resume && o->init)
        return ls_fail(LS_ERR_USAGE, "--init and --resume both choose the initial weights; give only one");
    status = ls_optimizer_check(&optimizer);
    return status == LS_OK ? check_schedule(o, device_count) : status;
}

/* --- warnings ----------------------------------------------------------------------------------------------------- */

static void note_idle(bool is_given, const char *option, const char *reason) {
    if (is_given) ls_note("%s has no effect: %s", option, reason);
}

void ls_train_note_idle(const ls_train_options *o, int device_count) {
    const ls_train_options defaults = ls_train_defaults();
    if (o->precision != LS_FP16) {
        static const char reason[] = "only the small numbers of --precision fp16 need a scale of the loss";
        note_idle(o->init_scale != defaults.init_scale, "--init-scale", reason);
        note_idle(o->growth_interval != defaults.growth_interval, "--growth-interval", reason);
    }
    if (o->lr_schedule != LS_SCHEDULE_COSINE) {
        note_idle(o->min_rate != defaults.min_rate, "--lr-min", "only --lr-schedule cosine ends there");
    }
    if (o->lr_schedule != LS_SCHEDULE_STEP) {
        static const char reason[] = "only --lr-schedule step uses the value";
        note_idle(o->decay_factor != defaults.decay_factor, "--lr-decay", reason);
        note_idle(o->decay_epochs != defaults.decay_epochs, "--lr-decay-epochs", reason);
    }
    if (!o->shuffle || ls_train_is_stream(o)) {
        note_idle(!o->set_epoch, "--no-set-epoch", "the samples keep one order anyway");
    }
    if (o->generate == 0) note_idle(o->temperature != 0, "--temperature", "there is no --generate");
    if (o->workers == 0)
        note_idle(o->prefetch != defaults.prefetch, "--prefetch", "with --workers 0 no batch is prepared ahead");
    if (!ls_train_data_folder(o))
        note_idle(o->normalize != defaults.normalize, "--normalize", "the samples are not pixels");
    if (!o->trace) note_idle(o->trace_steps != defaults.trace_steps, "--trace-steps", "there is no --trace");
    if (o->accumulate > o->batch_size / device_count) {
        ls_note("--accumulate %d is more than the %" PRId64
                " samples of a device in a step: some of its micro-batches are empty",
                o->accumulate, o->batch_size / device_count);
    }
}

void ls_train_warn_workers(const ls_train_options *o, int local_ranks) {
    int cores = ls_usable_cores();
    if (o->workers <= 1 || (int64_t)o->workers * local_ranks <= cores) return;
    ls_warn("%" PRId64
            " loader workers (--workers %d x %d rank%s) are more than the %d core%s that they share with the training",
            (int64_t)o->workers * local_ranks, o->workers, local_ranks, local_ranks == 1 ? "" : "s", cores,
            cores == 1 ? "" : "s");
}
