/* The files that a run writes: invalid options that are found beforehand, and errors while lines are written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/report/report.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

/* --- which files -------------------------------------------------------------------------------------------------- */

static void expect_conflict(const ls_train_options *options, const char *first, const char *second) {
    assert_int_equal(ls_report_check(options), LS_ERR_USAGE);
    scratch_expect_error(first, second);
}

/* However the path is written, and whether or not the file exists. */
TEST_IN(scratch, files_that_would_destroy_each_other_are_refused) {
    char here[600], again[600], linked[600], checkpoint[600];
    snprintf(here, sizeof here, "%s", scratch_path("file"));
    snprintf(again, sizeof again, "%s/./file", scratch_folder());
    snprintf(linked, sizeof linked, "%s", scratch_path("linked"));
    snprintf(checkpoint, sizeof checkpoint, "%s", scratch_path("checkpoint"));
    const ls_train_options none = ls_train_defaults();
    for (int there = 0; there < 2; there++) {
        if (there) {
            scratch_write("file", "kept", 4);
            scratch_write("checkpoint", "kept", 4);
            assert_int_equal(symlink(here, linked), 0);
        }
        ls_train_options o = none;
        o.metrics = here;
        o.dump_losses = again;
        expect_conflict(&o, "--metrics and --dump-losses name the same file", here);
        o.dump_losses = NULL;
        o.summary = again;
        expect_conflict(&o, "--metrics and --summary name", NULL);
        o.summary = "-";
        assert_int_equal(ls_report_check(&o), LS_OK);
        o.metrics = "./-"; /* a file, while the other option means standard output */
        assert_int_equal(ls_report_check(&o), LS_OK);
        o.metrics = here;
        o.save = again;
        expect_conflict(&o, "--metrics and --save name", NULL);
        o.metrics = NULL;
        o.save_weights = here;
        expect_conflict(&o, "--save and --save-weights name", NULL);
        o.save_weights = checkpoint;
        assert_int_equal(ls_report_check(&o), LS_OK);
        o.save = o.resume = checkpoint; /* continues where it stopped */
        o.save_weights = NULL;
        assert_int_equal(ls_report_check(&o), LS_OK);
        o = none;
        o.metrics = o.dump_losses = "/dev/null";
        assert_int_equal(ls_report_check(&o), LS_OK);
        if (!there) continue;
        o.dump_losses = linked;
        o.metrics = here;
        expect_conflict(&o, "--metrics and --dump-losses name", NULL);
        o.metrics = NULL;
        o.init = here; /* read first, and then overwritten */
        expect_conflict(&o, "--dump-losses and --init name", NULL);
        o.init = NULL;
        o.resume = here;
        expect_conflict(&o, "--dump-losses and --resume name", NULL);
        o.dump_losses = NULL;
        o.summary = here;
        expect_conflict(&o, "--summary and --resume name", NULL);
        o.summary = NULL;
        o.save_weights = here; /* the optimizer and the position in the epoch would be lost */
        expect_conflict(&o, "--save-weights and --resume name", NULL);
        o.init = o.resume;
        o.save = o.save_weights = NULL;
        assert_int_equal(ls_report_check(&o), LS_OK);
    }
    size_t nbytes;
    char *kept = scratch_read(here, &nbytes);
    assert_true(nbytes == 4 && memcmp(kept, "kept", 4) == 0);
    free(kept);
}

/* The link is kept; one option creates its target, and the other replaces it. */
TEST_IN(scratch, a_link_to_what_is_not_there_yet_is_followed) {
    ls_train_options o = ls_train_defaults();
    assert_int_equal(symlink("file", scratch_path("link")), 0);
    o.metrics = scratch_path("file");
    o.save = scratch_path("link");
    expect_conflict(&o, "--metrics and --save name the same file", NULL);
    o.save = scratch_path("other");
    assert_int_equal(ls_report_check(&o), LS_OK);
}

TEST_IN(scratch, lines_of_an_earlier_run_are_kept) {
    ls_train_options o = ls_train_defaults();
    scratch_write("metrics", "{}\n", 3);
    scratch_write("checkpoint", "", 0);
    o.metrics = scratch_path("metrics");
    o.resume = scratch_path("checkpoint");
    expect_conflict(&o, "/metrics holds the lines of an earlier run, which --resume would overwrite", NULL);
    o.resume_if_present = o.resume; /* continues after them */
    o.resume = NULL;
    assert_int_equal(ls_report_check(&o), LS_OK);
    o.resume_if_present = scratch_path("none");
    assert_int_equal(ls_report_check(&o), LS_OK);
}

TEST_IN(scratch, what_cannot_be_saved_is_found_before) {
    char nowhere[600];
    snprintf(nowhere, sizeof nowhere, "%s/none/file", scratch_folder());
    for (int i = 0; i < 5; i++) {
        ls_train_options o = ls_train_defaults();
        const char **options[] = {&o.metrics, &o.dump_losses, &o.summary, &o.save, &o.save_weights};
        *options[i] = nowhere;
        assert_int_equal(ls_report_check(&o), LS_ERR_IO);
        scratch_expect_error("cannot", "none");
        *options[i] = scratch_folder();
        assert_int_equal(ls_report_check(&o), LS_ERR_IO);
        scratch_expect_error(scratch_folder(), NULL);
        *options[i] = scratch_path("file");
        assert_int_equal(ls_report_check(&o), LS_OK);
    }
    assert_int_equal(scratch_file_count(), 0);
}

/* Errors that would otherwise occur at the end of the run. */
TEST_IN(scratch, names_that_no_file_can_have_are_found_before) {
    char name[NAME_MAX + 2];
    memset(name, 'n', sizeof name - 1);
    name[NAME_MAX + 1] = '\0';
    for (int i = 0; i < 5; i++) {
        ls_train_options o = ls_train_defaults();
        const char **options[] = {&o.metrics, &o.dump_losses, &o.summary, &o.save, &o.save_weights};
        *options[i] = scratch_path(name);
        assert_int_equal(ls_report_check(&o), LS_ERR_IO);
        scratch_expect_error("File name too long", NULL);
    }
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

/* A run that writes lines, on one device. */
struct run {
    ls_train_options options;
    ls_parallel parallel;
    ls_report *report;
    int64_t steps; /* before this run */
    double last_loss;
};

static struct run make_run(const char *metrics, const char *losses) {
    static const struct ls_mode mode = {.name = "a test"};
    struct run run = {.options = ls_train_defaults(), .parallel = {.mode = &mode, .world_size = 1, .device_count = 1}};
    run.options.metrics = metrics;
    run.options.dump_losses = losses;
    run.parallel.local_device_count = 1;
    run.parallel.devices[0] = open_device(0);
    return run;
}

/* The header line at the beginning of a run goes to stdout. */
static ls_status open_report(struct run *run) {
    FILE *real = stdout;
    stdout = fopen("/dev/null", "w");
    assert_non_null(stdout);
    ls_status status = ls_report_open(&run->report, &run->options, &run->parallel, run->steps, run->last_loss);
    fclose(stdout);
    stdout = real;
    return status;
}

static void put_step(struct run *run, int64_t step) {
    ls_report_step(run->report, &(struct ls_report_line){.step = step, .loss = 1});
    ls_report_flush(run->report);
}

static ls_status close_report(struct run *run) {
    ls_status status = ls_report_close(run->report, &run->parallel, NULL, NULL);
    close_empty_device(run->parallel.devices[0]);
    return status;
}

/* Reported in the step whose line could not be written, and not again. */
TEST_IN(scratch, a_line_that_cannot_be_written_is_told_at_once) {
    struct run run = make_run("/dev/full", scratch_path("losses"));
    assert_int_equal(open_report(&run), LS_OK);
    put_step(&run, 0);
    scratch_expect_error("cannot write all of /dev/full: No space left on device", "will end as failed");
    put_step(&run, 1);                          /* the teardown finds a second error */
    char *losses = scratch_read_text("losses"); /* complete even if the run were killed now */
    assert_string_equal(losses, "1\n1\n");
    free(losses);
    assert_int_equal(close_report(&run), LS_ERR_IO);
}

/* A run that was killed: its lines continue beyond its checkpoint, and the last one may be incomplete. */
TEST_IN(scratch, a_run_that_goes_on_keeps_the_lines_before_it) {
    static const char losses[] = "3\n2\n1\n0.5\n0.2", metrics[] =
                                                          "{\"step\": 0, \"loss\": 2}\n"
                                                          "{\"step\": 1, \"epoch\": 0, \"loss\": 2, \"lr\": 1}\n{\"st";
    scratch_write("losses", losses, sizeof losses - 1);
    scratch_write("metrics", metrics, sizeof metrics - 1);
    char place[600];
    snprintf(place, sizeof place, "%s", scratch_path("metrics"));
    struct run run = make_run(place, scratch_path("losses"));
    run.steps = 2;
    run.last_loss = 2;
    assert_int_equal(open_report(&run), LS_OK);
    put_step(&run, 2);
    assert_int_equal(close_report(&run), LS_OK);
    char *text = scratch_read_text("losses");
    assert_string_equal(text, "3\n2\n1\n");
    free(text);
    text = scratch_read_text("metrics");
    size_t kept = sizeof metrics - 1 - strlen("{\"st");
    static const char next[] = "{\"step\": 2, \"epoch\": 0, \"loss\": 1, ";
    assert_memory_equal(text, metrics, kept);
    assert_memory_equal(text + kept, next, sizeof next - 1);
    free(text);
}

/* Neither file is changed if one is from another run. */
TEST_IN(scratch, lines_of_another_run_are_not_gone_on_with) {
    static const struct {
        const char *losses, *metrics, *named;
    } others[] = {{"3\n2", "", "--dump-losses"}, /* too few: the last line is incomplete */
                  {"3\n", "", "--dump-losses"},
                  {"3\n2.5\n1\n", "", "--dump-losses"},
                  {"3\n2\n1\n", "{\"step\": 7, \"loss\": 3, }\n{\"step\": 8, \"loss\": 2, }\n", "--metrics"},
                  {"3\n2\n1\n", "{\"step\": 0, \"loss\": 3, }\n{\"step\": 1, \"loss\": 2.5, }\n", "--metrics"}};
    char place[600];
    snprintf(place, sizeof place, "%s", scratch_path("metrics"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        scratch_write("losses", others[i].losses, strlen(others[i].losses));
        scratch_write("metrics", others[i].metrics, strlen(others[i].metrics));
        struct run run = make_run(place, scratch_path("losses"));
        run.steps = 2;
        run.last_loss = 2;
        assert_int_equal(open_report(&run), LS_ERR_USAGE);
        scratch_expect_error(others[i].named, "does not hold the lines of the 2 steps before the checkpoint");
        close_empty_device(run.parallel.devices[0]);
        char *text = scratch_read_text("losses");
        assert_string_equal(text, others[i].losses);
        free(text);
    }
}

static void expect_no_begin(const char *metrics, const char *why) {
    scratch_write("losses", "kept", 4);
    struct run run = make_run(metrics, scratch_path("losses"));
    alarm(20); /* ends the test instead of waiting for a reader */
    assert_int_equal(open_report(&run), LS_ERR_IO);
    alarm(0);
    scratch_expect_error(metrics, why);
    assert_null(run.report);
    run.options.metrics = run.options.dump_losses;
    run.options.dump_losses = metrics;
    assert_int_equal(open_report(&run), LS_ERR_IO);
    scratch_expect_error(metrics, why);
    close_empty_device(run.parallel.devices[0]);
    char *losses = scratch_read_text("losses");
    assert_string_equal(losses, "kept");
    free(losses);
}

TEST_IN(scratch, a_pipe_without_a_reader_is_not_waited_for) {
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    expect_no_begin(scratch_path("pipe"), "no process reads this pipe");
    ls_train_options o = ls_train_defaults();
    o.metrics = scratch_path("pipe"); /* found before ranks are started */
    assert_int_equal(ls_report_check(&o), LS_ERR_IO);
    scratch_expect_error("no process reads this pipe", NULL);
}

TEST_IN(scratch, what_takes_no_lines_is_refused) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", scratch_path("socket"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    expect_no_begin(address.sun_path, "expected a file or a pipe");
    close(fd);
}

/* A reader that closes the pipe is an error like others, and does not kill the run. */
TEST_IN(scratch, a_pipe_with_a_reader_gets_the_lines) {
    char line[300] = "";
    ls_log_init("test", -1, false);
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    int reader = open(scratch_path("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    struct run run = make_run(scratch_path("pipe"), NULL);
    assert_int_equal(ls_report_check(&run.options), LS_OK);
    assert_int_equal(read(reader, line, 1), -1); /* the check must not cause an end of file */
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(open_report(&run), LS_OK);
    put_step(&run, 0);
    assert_true(read(reader, line, sizeof line - 1) > 0);
    assert_non_null(strstr(line, "{\"step\": 0,"));
    close(reader);
    put_step(&run, 1);
    scratch_expect_error("pipe: Broken pipe", "will end as failed");
    assert_int_equal(close_report(&run), LS_ERR_IO);
}

/* The lines of earlier reads stay, and are not followed by an incomplete line. */
TEST_IN(scratch, a_full_file_ends_with_a_whole_line) {
    struct rlimit before, limit;
    struct run run = make_run(NULL, scratch_path("losses"));
    ls_log_init("test", -1, false);
    assert_int_equal(open_report(&run), LS_OK);
    put_step(&run, 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 5, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int step = 1; step < 4; step++) ls_report_step(run.report, &(struct ls_report_line){.step = step, .loss = 1});
    ls_report_flush(run.report);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0); /* the limit is raised again */
    scratch_expect_error("losses: File too large for the limit", "will end as failed");
    put_step(&run, 4);
    assert_int_equal(close_report(&run), LS_ERR_IO);
    char *losses = scratch_read_text("losses");
    assert_string_equal(losses, "1\n");
    free(losses);
}
