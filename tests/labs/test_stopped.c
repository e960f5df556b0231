#define _GNU_SOURCE
/* Benches that get a signal, from a terminal, which signals their whole process group, or to their pid only: the first
 * signal ends them and all processes that they started. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "labs/bench/shared/child.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"
#include "tests/programs/program.h"

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof signals / sizeof *signals };

static pid_t await_pid(const char *path) {
    for (double until_us = ls_now_us() + PROGRAM_DEADLINE_S * 1e6; ls_now_us() < until_us; usleep(5000)) {
        if (access(path, R_OK) < 0) continue;
        size_t nbytes;
        char *text = scratch_read(path, &nbytes);
        pid_t pid = strchr(text, '\n') ? atoi(text) : 0;
        free(text);
        if (pid > 0) return pid;
    }
    fail_msg("%s was not written", path);
    return 0;
}

static int lines_of(const char *name) {
    char *text = scratch_read_text(name);
    int lines = count_lines(text);
    free(text);
    return lines;
}

/* --- one child ---------------------------------------------------------------------------------------------------- */

/* Runs the script in a process group of its own. */
static int run_script(void *script) {
    static bench_output output;
    char *argv[] = {"/bin/sh", "-c", script, NULL};
    char error[] = "error";
    setpgid(0, 0);
    dup2(open(scratch_path(error), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
    ls_log_restore((ls_log_sink){NULL, 0});
    return bench_child_run(argv, 50, &output) == LS_ERR_STOPPED ? 17 : 1;
}

/* The script writes the pid of a process that must not be left. */
static void expect_stop(const char *format, int signal, bool group) {
    char script[400];
    snprintf(script, sizeof script, format, scratch_path("pid"));
    pid_t bench = start_child(run_script, script);
    pid_t child = await_pid(scratch_path("pid"));
    kill(group ? -bench : bench, signal);
    assert_int_equal(finish_child(bench), 128 + signal);
    await_gone(child);
    assert_int_equal(lines_of("error"), signal == SIGKILL ? 0 : 1);
    unlink(scratch_path("pid"));
}

TEST_IN(scratch, test_a_signal_ends_the_child_too) {
    for (int i = 0; i < SIGNALS; i++)
        for (int group = 0; group < 2; group++) expect_stop("echo $$ >%s; exec sleep 50", signals[i], group);
    expect_stop("echo $$ >%s; exec sleep 50", SIGKILL, false);
}

/* The child does not end by itself, or leaves a process behind. */
TEST_IN(scratch, test_a_signal_ends_a_child_that_would_not) {
    expect_stop("trap '' INT TERM HUP; echo $$ >%s; while :; do sleep 0.1; done", SIGINT, true);
    expect_stop("trap '' TERM; sleep 50 & echo $! >%s; wait", SIGTERM, false);
    expect_stop("(trap '' TERM; exec sleep 50) & echo $! >%s; wait", SIGTERM, false);
}

/* As under nohup. */
static int run_deaf(void *script) {
    signal(SIGHUP, SIG_IGN);
    return run_script(script);
}

TEST_IN(scratch, test_an_ignored_signal_stays_ignored) {
    char script[400];
    snprintf(script, sizeof script, "echo $$ >%s; exec sleep 50", scratch_path("pid"));
    pid_t bench = start_child(run_deaf, script);
    pid_t child = await_pid(scratch_path("pid"));
    kill(bench, SIGHUP);
    assert_int_equal(kill(child, 0), 0);
    kill(bench, SIGTERM);
    assert_int_equal(finish_child(bench), 128 + SIGTERM);
    await_gone(child);
}

TEST_IN(scratch, test_the_command_can_be_pasted) {
    static bench_output output;
    char *argv[] = {"/bin/sh", "-c", "exit 1", "--out=a'$(touch X)'b", "mlp:784,16,10", "", NULL};
    assert_int_equal(bench_child_run(argv, 50, &output), LS_ERR_SYSTEM);
    scratch_expect_error("`/bin/sh -c 'exit 1' '--out=a'\\''$(touch X)'\\''b' mlp:784,16,10 ''`", NULL);
}

/* --- the programs ------------------------------------------------------------------------------------------------- */

static bool is_named(int pid, const char *name) {
    char path[64], found[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "r");
    bool is = file && fscanf(file, "%31s", found) == 1 && strcmp(found, name) == 0;
    if (file) fclose(file);
    return is;
}

/* Waits until `parent` has a child of that name, and returns its pid. */
static pid_t await_child_of(pid_t parent, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    for (double until_us = ls_now_us() + 40e6; ls_now_us() < until_us; usleep(2000)) {
        int pid = 0;
        bool found = false;
        FILE *file = fopen(path, "r");
        while (file && !found && fscanf(file, "%d", &pid) == 1) found = is_named(pid, name);
        if (file) fclose(file);
        if (found) return pid;
    }
    fail_msg("no %s of process %d", name, (int)parent);
    return 0;
}

static void stop_program(program *p, const char *child_name, int signal, bool group) {
    pid_t child = await_child_of(p->pid, child_name);
    kill(group ? -p->pid : p->pid, signal);
    assert_int_equal(program_finish(p), 128 + signal);
    programs_await_orphans();
    await_gone(child);
}

/* The file of an earlier run must be unchanged. */
static void expect_earlier(const char *name) {
    char *text = scratch_read_text(name);
    assert_string_equal(text, "earlier\n");
    free(text);
}

/* Table 5 starts no child and would be next. */
TEST_IN(programs, test_tables_stop) {
    static program p;
    scratch_write("tables.csv", "earlier\n", 8);
    for (int group = 0; group < 2; group++) {
        program_start(&p, "/usr/bin/env setsid %s/tables --quick --tables=4,5 --out=%s", build_folder(),
                      scratch_folder());
        stop_program(&p, "dp_train", group ? SIGINT : SIGTERM, group);
        if (strstr(p.out_text, "5.") || strstr(p.err_text, "table 5")) fail_msg("%s%s", p.out_text, p.err_text);
        const char *told = strstr(p.err_text, "error: ");
        if (!told || !strstr(told, "stopped by signal") || strchr(told, '\n')[1]) fail_msg("%s", p.err_text);
        expect_earlier("tables.csv");
    }
}

/* Children of two kinds: a program, and ranks that are forked. */
TEST_IN(programs, test_other_benches_stop) {
    static program p;
    static const struct {
        const char *line, *child;
    } cases[] = {{"bench_dp_vs_ddp --models=mlp:784,16,10 --steps=100000 --quiet", "dp_train"},
                 {"bench_comm --n=2 --runs=9 --run-ms=2000 --quiet", "bench_comm"},
                 {"calibrate --quiet", "calibrate"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int group = 0; group < 2; group++) {
            program_start(&p, "/usr/bin/env setsid %s/%s --out=%s", build_folder(), cases[i].line,
                          i == 2 ? scratch_path("node.json") : scratch_folder());
            stop_program(&p, cases[i].child, group ? SIGINT : SIGTERM, group);
            if (count_lines(p.err_text) > 1) fail_msg("%s", p.err_text);
        }
    }
}

/* Shell scripts, stopped as make and a terminal stop them, during a training. */
TEST_IN(programs, test_scripts_stop) {
    static program p;
    scratch_write("recipe_convnet.csv", "earlier\n", 8);
    for (int i = 0; i < 3; i++) {
        bool group = i == 1;
        program_start(&p, "DATA=data/digits /usr/bin/env setsid labs/bench/recipes/recipes.sh %s %s convnet",
                      build_folder(), scratch_folder());
        program_await(&p, "ddp_train --spawn 4");
        kill(group ? -p.pid : p.pid, signals[i]);
        assert_int_equal(program_finish(&p), 128 + signals[i]);
        programs_await_orphans();
        if (count_lines(p.err_text) > 1) fail_msg("%s", p.err_text);
        expect_earlier("recipe_convnet.csv");
    }
}

/* Replaces every program by one that prints its pid and does not end by itself. */
static void make_endless_programs(void) {
    static const char *const names[] = {"mkdigits", "dp_train", "ddp_train", "replay", "tables", "bench_comm", "cc"};
    char text[300], name[40];
    int length = snprintf(text, sizeof text, "#!/bin/sh\necho $$ >%s\nexec sleep 500\n", scratch_path("pid"));
    assert_int_equal(mkdir(scratch_path("endless"), 0700), 0);
    scratch_write("endless/grade", "#!/bin/sh\n", 10); /* reports that probes can be confined */
    assert_int_equal(chmod(scratch_path("endless/grade"), 0700), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "endless/%s", names[i]);
        scratch_write(name, text, (size_t)length);
        assert_int_equal(chmod(scratch_path(name), 0700), 0);
    }
}

/* Starts a script on a submission for lab 03, with the variables that make sets; its compiler does not end. */
static void start_course_script(program *p, const char *script, const char *arguments) {
    program_start(
        p,
        "BUILD=%s/endless CC=%s/endless/cc COURSE_CPPFLAGS=-I. COURSE_CFLAGS=-O0 COURSE_LIB=x COURSE_LIBS=-lm "
        "COURSE_OBJ=%s/endless/obj COURSE_REFERENCE= ORACLE=%s/endless PREDICT=skip /usr/bin/env setsid "
        "labs/course/%s.sh %s %s/out 03",
        scratch_folder(), scratch_folder(), scratch_folder(), scratch_folder(), script, arguments, scratch_folder());
}

static void start_script(program *p, int which) {
    static const char *const lines[] = {"accuracy/accuracy.sh %s/endless 0", "recipes/recipes.sh %s/endless %s/results",
                                        "claims/claims.sh %s/endless",
                                        "shared/draw_after.sh %s/results tables %s/endless/tables",
                                        "shared/draw_after.sh %s/results comm %s/endless/bench_comm"};
    char words[800];
    if (which == 5) {
        start_course_script(p, "class", scratch_path("students"));
    } else if (which == 6) {
        start_course_script(p, "lab", ".");
    } else {
        snprintf(words, sizeof words, lines[which], scratch_folder(), scratch_folder());
        program_start(p, "/usr/bin/env setsid labs/bench/%s", words);
    }
}

/* Stops each script while a program that it has started is running, by each signal, including SIGKILL. */
TEST_IN(programs, test_each_script_stops_by_each_signal) {
    static program p;
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGKILL};
    make_endless_programs();
    assert_int_equal(mkdir(scratch_path("students"), 0700), 0);
    assert_int_equal(mkdir(scratch_path("students/ada"), 0700), 0);
    for (int which = 0; which < 7; which++) {
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            start_script(&p, which);
            pid_t child = await_pid(scratch_path("pid"));
            kill(p.pid, all[i]);
            assert_int_equal(program_finish(&p), 128 + all[i]);
            programs_await_orphans();
            await_gone(child);
            unlink(scratch_path("pid"));
        }
    }
}

/* The statuses of commands that end by themselves, and of one that ignores the signal. */
TEST_IN(programs, test_stoppable) {
    static program p;
    const char *const script = "labs/bench/shared/stoppable.sh";
    assert_int_equal(program_run(&p, "/usr/bin/env %s true", script), 0);
    assert_int_equal(program_run(&p, "/usr/bin/env %s false", script), 1);
    scratch_write("deaf", "trap '' TERM; echo here; while :; do sleep 0.1; done\n", 53);
    const int hard[] = {SIGTERM, SIGQUIT};
    for (int i = 0; i < 2; i++) {
        program_start(&p, "/usr/bin/env %s sh %s", script, scratch_path("deaf"));
        program_await(&p, "here");
        kill(p.pid, hard[i]);
        assert_int_equal(program_finish(&p), 128 + hard[i]);
        programs_await_orphans();
    }
}

int main(void) {
    alarm(300);
    return run_added_tests();
}
