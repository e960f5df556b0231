/* checkpoint_text — a table of lines, each of which is written, read back, compared and named in messages.
 *   idea  : a run's texts follow from its options, a file's from its metadata, so comparing the two is comparing texts.
 *           Numbers are written so that they read back with the same bits. An option's row names the line that keeps it
 *           (option.h); how a resumed run uses that line is defined here, as some lines belong to several options, and
 *           others to none
 *   fails : in this order: no checkpoint, another format, a line that is missing or not a number, another model or
 *           optimizer, an impossible position, a batch size that would move the position */
#include "common/checkpoint/checkpoint_text.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define FORMAT_VERSION "1"
#define PREFIX "lockstep."
#define LS_STEPS_LIMIT (INT64_C(1) << 53) /* more steps than any run has; sums of such numbers do not overflow */

enum rule { SAME, SAME_WITHIN_EPOCH, NOTED, NOTED_OF_STREAMS, NOTED_IF_THERE, SELF };

static const struct {
    const char *key, *words;
    enum rule rule;
} rows[LS_TEXT_COUNT] = {
#define LS_ROW(name, key, words, rule) {PREFIX key, words, rule},
    LS_CHECKPOINT_TEXT_MAP(LS_ROW)
#undef LS_ROW
};

/* --- from a run -------------------------------------------------------------------------------------------------- */

/* Metadata is UTF-8, but a path may be any bytes. */
static void put_text(struct ls_checkpoint_texts *texts, ls_checkpoint_text which, const char *text) {
    char *value = texts->values[which];
    snprintf(value, LS_CHECKPOINT_TEXT_CAPACITY, "%s", text);
    for (char *c = value; *c; c++) {
        if (*c < ' ' || *c > '~') *c = '?';
    }
}

static void put_integer(struct ls_checkpoint_texts *texts, ls_checkpoint_text which, int64_t value) {
    snprintf(texts->values[which], LS_CHECKPOINT_TEXT_CAPACITY, "%" PRId64, value);
}

/* The fewest digits that read back with the same bits: 0.1, not 0.10000000000000001. */
static void put_real(struct ls_checkpoint_texts *texts, ls_checkpoint_text which, double value) {
    char *text = texts->values[which];
    for (int digits = 6; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(text, LS_CHECKPOINT_TEXT_CAPACITY, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

static const char *optimizer_text(const ls_train_options *o) {
    if (o->optimizer == LS_SGD) return o->momentum > 0 ? "sgd with momentum" : "sgd";
    return o->optimizer == LS_ADAM ? "adam" : "adamw";
}

/* The values, besides the rate itself, that determine the rates of later steps. */
static void put_schedule(struct ls_checkpoint_texts *texts, const struct ls_checkpointed *run) {
    const ls_train_options *o = run->options;
    char text[160];
    int64_t steps = o->steps > 0 ? o->steps : o->epochs * run->steps_per_epoch;
    if (o->lr_schedule == LS_SCHEDULE_COSINE) {
        snprintf(text, sizeof text, "cosine of %" PRId64 " steps to %g", steps, o->min_rate);
    } else if (o->lr_schedule == LS_SCHEDULE_STEP) {
        snprintf(text, sizeof text, "step of %g every %" PRId64 " epochs", o->decay_factor, o->decay_epochs);
    } else {
        snprintf(text, sizeof text, "constant");
    }
    size_t length = strlen(text);
    if (o->warmup_steps > 0) snprintf(text + length, sizeof text - length, ", warm-up of %" PRId64, o->warmup_steps);
    put_text(texts, LS_TEXT_SCHEDULE, text);
}

static void put_option(struct ls_checkpoint_texts *texts, const ls_option *option) {
    char value[LS_CHECKPOINT_TEXT_CAPACITY];
    ls_option_text(option, value, sizeof value);
    for (int i = 0; option->kept && i < LS_TEXT_COUNT; i++)
        if (strcmp(rows[i].key + strlen(PREFIX), option->kept) == 0) put_text(texts, (ls_checkpoint_text)i, value);
}

static void put_options(struct ls_checkpoint_texts *texts, const ls_train_options *options) {
    ls_train_options o = *options;
    ls_option table[LS_TRAIN_OPTION_ROWS];
    size_t count = ls_train_option_rows(&o, table);
    for (size_t i = 0; i < count; i++) put_option(texts, &table[i]);
}

static void describe_run(struct ls_checkpoint_texts *texts, const struct ls_checkpointed *run) {
    const ls_train_options *o = run->options;
    const struct ls_mode *mode = run->parallel->mode;
    put_options(texts, o);
    /* lines of several options, of a value derived from one, or of none */
    put_text(texts, LS_TEXT_FORMAT, FORMAT_VERSION);
    if (o->normalization[0] || o->normalize < 0) /* of no pixels: as earlier versions wrote it */
        put_text(texts, LS_TEXT_NORMALIZE, o->normalization[0] ? o->normalization : "mnist");
    put_text(texts, LS_TEXT_OPTIMIZER, optimizer_text(o));
    put_integer(texts, LS_TEXT_BATCH_SIZE, o->batch_size);
    put_text(texts, LS_TEXT_MODE, mode->kept_as ? mode->kept_as : mode->name);
    put_integer(texts, LS_TEXT_DEVICES, run->parallel->device_count);
    put_text(texts, LS_TEXT_SHUFFLE, !o->shuffle ? "off" : o->set_epoch ? "on" : "on without set_epoch");
    put_text(texts, LS_TEXT_UNEVEN, run->sharing.uneven ? "on" : "off");
    put_schedule(texts, run);
    put_real(texts, LS_TEXT_WEIGHT_DECAY, ls_train_optimizer(o).weight_decay);
    if (o->clip_norm <= 0) put_text(texts, LS_TEXT_CLIP_NORM, "none");
    put_text(texts, LS_TEXT_COMPRESS, ls_parallel_sent_as(run->parallel));
    put_text(texts, LS_TEXT_JOIN, run->parallel->join_rule ? run->parallel->join_rule : "off");
    put_text(texts, LS_TEXT_SHARD, run->sharing.shard == LS_SHARD_STRIDED ? "strided" : "contiguous");
}

void ls_checkpoint_describe(struct ls_checkpoint_texts *texts, const struct ls_checkpointed *run,
                            const struct ls_position *position) {
    describe_run(texts, run);
    put_integer(texts, LS_TEXT_STEP, position->step);
    put_integer(texts, LS_TEXT_EPOCH, position->epoch);
    put_integer(texts, LS_TEXT_EPOCH_STEPS, position->epoch_steps);
    put_real(texts, LS_TEXT_LOSS_SUM, position->loss_sum);
    put_integer(texts, LS_TEXT_LOSSES, position->losses);
    put_real(texts, LS_TEXT_LAST_LOSS, position->last_loss);
}

void ls_checkpoint_metadata(const struct ls_checkpoint_texts *texts, ls_safetensors_text *lines) {
    for (int i = 0; i < LS_TEXT_COUNT; i++) lines[i] = (ls_safetensors_text){rows[i].key, texts->values[i]};
}

/* --- from a file ------------------------------------------------------------------------------------------------- */

bool ls_is_checkpoint(const ls_safetensors *file) {
    return ls_safetensors_metadata(file, rows[LS_TEXT_FORMAT].key) != NULL;
}

/* Whether an earlier version wrote it, with neither these lines nor a checksum. */
static bool is_earlier(const ls_safetensors *file) {
    for (int i = 0; i < LS_TEXT_COUNT; i++)
        if (rows[i].rule == NOTED_IF_THERE && ls_safetensors_metadata(file, rows[i].key)) return false;
    return true;
}

ls_status ls_checkpoint_verify(const ls_safetensors *file, const char *path) {
    bool has_checksum = ls_safetensors_metadata(file, LS_SAFETENSORS_CRC32) != NULL;
    return has_checksum || !is_earlier(file) ? ls_safetensors_verify(file, path) : LS_OK;
}

ls_status ls_checkpoint_read_texts(struct ls_checkpoint_texts *texts, const ls_safetensors *file, const char *path) {
    if (!ls_is_checkpoint(file)) {
        return ls_fail(
            LS_ERR_FORMAT,
            "%s is not a checkpoint: its metadata has no %s; give --init to start from the weights of such a file",
            path, rows[LS_TEXT_FORMAT].key);
    }
    const char *format = ls_safetensors_metadata(file, rows[LS_TEXT_FORMAT].key);
    if (strcmp(format, FORMAT_VERSION) != 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s is a checkpoint of format '%.40s'; this program reads format " FORMAT_VERSION, path, format);
    }
    for (int i = 0; i < LS_TEXT_COUNT; i++) {
        const char *value = ls_safetensors_metadata(file, rows[i].key);
        if (!value && rows[i].rule != NOTED_IF_THERE)
            return ls_fail(LS_ERR_FORMAT, "%s is damaged: its metadata has no %s", path, rows[i].key);
        put_text(texts, (ls_checkpoint_text)i, value ? value : "");
    }
    return LS_OK;
}

static ls_status fail_number(const struct ls_checkpoint_texts *texts, const char *path, ls_checkpoint_text which) {
    return ls_fail(LS_ERR_FORMAT, "%s is damaged: its %s is '%.40s'", path, rows[which].key, texts->values[which]);
}

static ls_status get_count(const struct ls_checkpoint_texts *texts, const char *path, ls_checkpoint_text which,
                           int64_t *value) {
    const char *text = texts->values[which];
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool whole = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    *value = number;
    return whole && number <= LS_STEPS_LIMIT ? LS_OK : fail_number(texts, path, which);
}

/* Reads a number that printf wrote; of values that are not finite, only NaN is allowed. */
static ls_status get_real(const struct ls_checkpoint_texts *texts, const char *path, ls_checkpoint_text which,
                          bool may_be_nan, double *value) {
    const char *text = texts->values[which];
    char *end;
    *value = strtod(text, &end);
    bool whole = end != text && *end == '\0' && (isfinite(*value) || (may_be_nan && isnan(*value)));
    return whole ? LS_OK : fail_number(texts, path, which);
}

static ls_status get_position(const struct ls_checkpoint_texts *texts, const char *path, int64_t steps_per_epoch,
                              struct ls_position *position) {
    struct ls_position p;
    ls_status status = get_count(texts, path, LS_TEXT_STEP, &p.step);
    if (status == LS_OK) status = get_count(texts, path, LS_TEXT_EPOCH, &p.epoch);
    if (status == LS_OK) status = get_count(texts, path, LS_TEXT_EPOCH_STEPS, &p.epoch_steps);
    if (status == LS_OK) status = get_real(texts, path, LS_TEXT_LOSS_SUM, false, &p.loss_sum);
    if (status == LS_OK) status = get_count(texts, path, LS_TEXT_LOSSES, &p.losses);
    if (status == LS_OK) status = get_real(texts, path, LS_TEXT_LAST_LOSS, true, &p.last_loss);
    if (status != LS_OK) return status;
    /* each epoch has at least one step */
    if (p.epoch_steps > p.step || p.epoch > p.step - p.epoch_steps || p.losses > p.epoch_steps) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is damaged: step %" PRId64 " does not fit %" PRId64 " steps and %" PRId64
                       " losses of epoch %" PRId64,
                       path, p.step, p.epoch_steps, p.losses, p.epoch);
    }
    *position = p;
    if (steps_per_epoch == 0 || p.epoch_steps <= steps_per_epoch) return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "%s was written after %" PRId64 " steps of an epoch, but an epoch of this run has %" PRId64
                   "; use the data and the batch size of the run that wrote the file",
                   path, p.epoch_steps, steps_per_epoch);
}

/* --- both -------------------------------------------------------------------------------------------------------- */

bool ls_checkpoint_same(const struct ls_checkpoint_texts *there, const struct ls_checkpointed *run,
                        ls_checkpoint_text which) {
    struct ls_checkpoint_texts here;
    describe_run(&here, run);
    return strcmp(there->values[which], here.values[which]) == 0;
}

static ls_status fail_other(const struct ls_checkpoint_texts *there, const struct ls_checkpoint_texts *here,
                            const char *path, int which) {
    return ls_fail(LS_ERR_INVALID, "%s was written by a run with %s %s; this run has %s%s", path, rows[which].words,
                   there->values[which], here->values[which],
                   rows[which].rule == SAME ? ""
                                            : ", which would change the place within the epoch: use the same, or a "
                                              "checkpoint that a run with --epochs wrote at its end");
}

ls_status ls_checkpoint_check_texts(const struct ls_checkpoint_texts *there, const struct ls_checkpointed *run,
                                    const char *path, struct ls_position *position) {
    struct ls_checkpoint_texts here;
    describe_run(&here, run);
    int64_t epoch_steps;
    ls_status status = get_count(there, path, LS_TEXT_EPOCH_STEPS, &epoch_steps);
    if (status != LS_OK) return status;
    for (int i = 0; i < LS_TEXT_COUNT; i++) {
        bool matters = rows[i].rule == SAME || (rows[i].rule == SAME_WITHIN_EPOCH && epoch_steps > 0);
        if (matters && strcmp(there->values[i], here.values[i]) != 0) return fail_other(there, &here, path, i);
    }
    return get_position(there, path, run->steps_per_epoch, position);
}

/* Whether the note reports that the run has another value in this row. */
static bool is_noted(int row, const struct ls_checkpoint_texts *there, const struct ls_checkpoint_texts *here,
                     bool is_stream) {
    enum rule rule = rows[row].rule;
    bool counts = rule == NOTED || rule == SAME_WITHIN_EPOCH || (rule == NOTED_OF_STREAMS && is_stream) ||
                  (rule == NOTED_IF_THERE && there->values[row][0] != '\0');
    return counts && strcmp(there->values[row], here->values[row]) != 0;
}

void ls_checkpoint_note(const struct ls_checkpoint_texts *there, const struct ls_checkpointed *run, const char *path,
                        const struct ls_position *position) {
    enum { ROOM = 60 + 2 * 100 }; /* words and two values, truncated if longer, as only a path is */
    struct ls_checkpoint_texts here;
    char others[LS_TEXT_COUNT * ROOM] = "";
    size_t used = 0;
    describe_run(&here, run);
    for (int i = 0; i < LS_TEXT_COUNT; i++) {
        if (!is_noted(i, there, &here, run->steps_per_epoch == 0)) continue;
        used +=
            (size_t)snprintf(others + used, sizeof others - used, "%s %s %.100s (was %.100s)",
                             used > 0 ? "," : "; other than before:", rows[i].words, here.values[i], there->values[i]);
    }
    ls_note("%s: going on after step %" PRId64 ", in epoch %" PRId64 "%s", path, position->step, position->epoch + 1,
            others);
}
