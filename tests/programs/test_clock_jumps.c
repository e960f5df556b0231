/* A machine's date may be set, by a user or by NTP, while programs run. No deadline and no result depends on it: here
 * it jumps by a day between any two readings, for this program, which restarts itself with preload/jumping_clock.c, and
 * for those that it runs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/device/modes.h"
#include "tests/device/tasks.h"
#include "tests/programs/program.h"

#define TRAINS "--model mlp:784,32,10 --batch-size 60 --no-evaluate --quiet"

enum { DAY_S = 86400, LATE_S = 60 };

TEST(the_date_jumps) {
    for (int i = 0; i < 2; i++) {
        double first = (double)time(NULL), second = (double)time(NULL);
        assert_true(second - first > DAY_S || first - second > DAY_S);
    }
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

/* Waits in a thread of its own, which runs the task if streams have no thread. */
static void *wait_for_stream(void *stream) {
    char error[200];
    ls_log_sink before = ls_log_capture(error, sizeof error);
    (void)ls_stream_synchronize(stream);
    ls_log_restore(before);
    return NULL;
}

/* A task takes most of a second, and any other thread that waits for it gives up after a tenth of one. */
static void check_deadline(struct devices *devices) {
    enum { TASK_US = 900000 };
    static int done;
    pthread_t thread;
    if (strcmp(devices->mode, "inline") == 0) return; /* enqueueing has run it */
    ls_stream *stream = stream_of(devices, 0, LS_STREAM_COMM);
    ls_set_wait_timeout_s(0.1);
    store(stream, &done, 1, TASK_US);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stream, stream), 0);
    usleep(TASK_US / 10);
    double begin_us = ls_now_us();
    ls_status status = ls_stream_synchronize(stream);
    double waited_us = ls_now_us() - begin_us;
    pthread_join(thread, NULL);
    ls_set_wait_timeout_s(LATE_S);
    while (ls_stream_synchronize(stream) != LS_OK) continue;
    if (status != LS_ERR_TIMEOUT || waited_us < 0.09e6)
        fail_msg("%s: status %d after %.0f us", devices->mode, (int)status, waited_us);
    scratch_expect_error("", NULL);
}

TEST_IN(scratch, a_wait_for_a_stream_ends_at_its_deadline) {
    static const char *const modes[] = {"threads", "shuffle:1"};
    for (int i = 0; i < 2; i++) {
        struct devices devices = open_devices(modes[i]);
        check_deadline(&devices);
        close_devices(&devices);
    }
    unsetenv("LS_CPU_STREAMS");
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

TEST_IN(programs, training_is_the_same) {
    static const char *const commands[] = {"dp_train --devices 2", "ddp_train --spawn 2",
                                           "LS_CPU_STREAMS=threads ddprun --nproc-per-node 2 ddp_train",
                                           "LS_CPU_STREAMS=shuffle:3 ddp_train --spawn 2"};
    static program p;
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        char hash[2][PROGRAM_HASH + 1];
        for (int jumps = 0; jumps < 2; jumps++) {
            const char *preload = jumps ? "JUMPS=" : "LD_PRELOAD=";
            double begin_us = ls_now_us();
            if (program_run(&p, "%s %s " TRAINS " --steps 30", preload, commands[i]) != 0 || p.err_text[0])
                fail_msg("%s: status %d: %s", commands[i], p.status, p.err_text);
            program_read_hash(&p, hash[jumps]);
            double seconds = atof(strrchr(strstr(p.out_text, " s\n") - 8, ' ') + 1);
            assert_true(ls_now_us() - begin_us < LATE_S * 1e6 && seconds < LATE_S);
        }
        assert_string_equal(hash[0], hash[1]);
    }
}

/* The program takes its two seconds and little more, and prints its usual message. */
static void expect_timely(program *p, double begin_us, double least_s, int status, const char *text) {
    program_finish_within(p, LATE_S);
    double seconds = (ls_now_us() - begin_us) * 1e-6;
    if (p->status != status || !strstr(p->err_text, text) || seconds < least_s)
        fail_msg("'%s': status %d after %.1f s: %s", text, p->status, seconds, p->err_text);
}

TEST_IN(programs, deadlines_are_kept) {
    static program stopped, limited, alone;
    program_start(&limited, "ddprun --nproc-per-node 2 --timeout 2 --grace 1 ddp_train " TRAINS " --steps 100000000");
    double limited_us = ls_now_us();
    program_start(&alone,
                  "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                  "LS_JOB_TOKEN=secret ddp_train " TRAINS " --timeout 2",
                  free_port());
    double alone_us = ls_now_us();
    program_start(&stopped, "ddprun --nproc-per-node 2 --grace 1 ddp_train " TRAINS " --epochs 1000000 --timeout 2");
    program_await(&stopped, "\nepoch ");
    kill(program_rank(&stopped, 1), SIGSTOP);
    double stopped_us = ls_now_us();
    expect_timely(&limited, limited_us, 1.9, 3, "the job was not done after 2 s and has been ended");
    expect_timely(&alone, alone_us, 1.9, 3, "rank 1 of 2 did not arrive within 2 s");
    expect_timely(&stopped, stopped_us, 1.9, 3, "rank 1 did not arrive within 2 s");
}

int main(int argc, char **argv) {
    (void)argc;
    if (!getenv("LD_PRELOAD")) {
        char clock[4200];
        const char *options = getenv("ASAN_OPTIONS");
        snprintf(clock, sizeof clock, "%s:verify_asan_link_order=0", options ? options : "");
        setenv("ASAN_OPTIONS", clock + (options ? 0 : 1), 1);
        snprintf(clock, sizeof clock, "%s/tests/jumping_clock.so", build_folder());
        setenv("LD_PRELOAD", clock, 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    alarm(230);
    return run_added_tests();
}
