/* The options that a checkpoint keeps are those whose rows say so. */
#include <string.h>

#include "common/base/log.h"
#include "common/checkpoint/checkpoint_text.h"
#include "ddp_procs/settings.h"
#include "tests/base/other_value.h"
#include "tests/base/test.h"
#include "tests/train/small_run.h"

static const char *const keys[LS_TEXT_COUNT] = {
#define KEY(name, key, words, rule) key,
    LS_CHECKPOINT_TEXT_MAP(KEY)
#undef KEY
};

static int line_of(const char *kept) {
    for (int line = 0; line < LS_TEXT_COUNT; line++)
        if (strcmp(keys[line], kept) == 0) return line;
    fail_msg("a checkpoint has no line %s", kept);
    return LS_TEXT_COUNT;
}

/* The metadata of a run under this schedule whose option in row `changed` (SIZE_MAX: none) has another value. Returns
 * the row. */
static ls_option describe(struct ls_checkpoint_texts *texts, struct small_run *r, int schedule, size_t changed) {
    static const struct ls_position start = {0};
    ls_option rows[LS_TRAIN_OPTION_ROWS] = {{.kind = LS_OPTION_HEADING}};
    char said[400];
    r->options = small_run_options();
    r->options.lr_schedule = schedule;
    r->options.weight_decay = r->options.decay_factor = 0;
    size_t count = ls_train_option_rows(&r->options, rows);
    if (changed < count) give_other_value(&rows[changed]);
    ls_log_sink before = ls_log_capture(said, sizeof said);
    (void)ls_train_options_check(&r->options, 1); /* sets the batch size, and refuses some values */
    ls_log_restore(before);
    r->checkpointed.options = &r->options;
    r->checkpointed.steps_per_epoch = 3;
    ls_checkpoint_describe(texts, &r->checkpointed, &start);
    return rows[changed < count ? changed : 0];
}

/* Fails if changing the option of the row changes a line that the row does not name. */
static bool shows(struct small_run *r, int schedule, size_t i, ls_option *row) {
    static struct ls_checkpoint_texts texts, others;
    bool found = false;
    (void)describe(&texts, r, schedule, SIZE_MAX);
    *row = describe(&others, r, schedule, i);
    int own = row->kept ? line_of(row->kept) : LS_TEXT_COUNT;
    for (int line = 0; line < LS_TEXT_COUNT; line++) {
        if (texts.values[line][0] == '\0') fail_msg("nothing is kept in line %s", keys[line]);
        if (strcmp(texts.values[line], others.values[line]) == 0) continue;
        if (line != own) fail_msg("--%s: its row does not say that line %s keeps it", row->name, keys[line]);
        found = true;
    }
    return found;
}

TEST(test_a_line_follows_from_the_rows_that_name_it) {
    ls_train_options options = small_run_options();
    struct small_run r = small_run_open(&options);
    ls_option rows[LS_TRAIN_OPTION_ROWS], row;
    size_t count = ls_train_option_rows(&options, rows);
    int kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kind == LS_OPTION_HEADING) continue;
        bool cosine = shows(&r, LS_SCHEDULE_COSINE, i, &row), step = shows(&r, LS_SCHEDULE_STEP, i, &row);
        if (row.kept && !cosine && !step) fail_msg("--%s: line %s does not keep it", row.name, row.kept);
        kept += row.kept != NULL;
    }
    assert_true(kept > 25);
    small_run_close(&r);
}

/* Values derived from ddp_train's own options are not kept by their rows, but the lines that these name exist. */
TEST(test_ddps_rows_name_lines_that_are_there) {
    ddp_settings settings = ddp_settings_defaults();
    ls_option rows[DDP_OPTION_ROWS];
    size_t count = ddp_option_rows(&settings, rows);
    for (size_t i = 0; i < count; i++)
        if (rows[i].kept) (void)line_of(rows[i].kept);
}
