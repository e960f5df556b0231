/* launch: jobs on several hosts, each of which is a separate launcher on this machine. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp_procs/launch/launch_agents.h"
#include "ddp_procs/launch/store_listen.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/ddp_procs/children.h"
#include "tests/launch/launch_run.h"

enum { HOSTS = 2, LINE_CAPACITY = 400 };

/* A job of two hosts with one and two ranks. */
typedef struct job {
    run host[HOSTS];
    char *argv[4];
    int port_fd;
} job;

static void describe(job *j, const char *script) {
    int port;
    *j = (job){.argv = {"sh", "-c", (char *)script, NULL}};
    assert_int_equal(ddp_reserve_port(&j->port_fd, 0, &port), LS_OK);
    for (int i = 0; i < HOSTS; i++)
        j->host[i].options = (ddp_launch_options){.nproc = 1 + i,
                                                  .program = "sh",
                                                  .argv = j->argv,
                                                  .grace_s = 0.2,
                                                  .master_addr = "127.0.0.1",
                                                  .master_port = port,
                                                  .nnodes = HOSTS,
                                                  .node_rank = i,
                                                  .join_timeout_s = 30,
                                                  .lost_s = 20};
}

static void start(job *j) {
    for (int i = HOSTS - 1; i >= 0; i--) start_job(&j->host[i]);
}

/* Asserts that each host's exit status is `expected`. */
static void finish(job *j, int expected) {
    int status[HOSTS];
    for (int i = 0; i < HOSTS; i++) status[i] = finish_job(&j->host[i]);
    close(j->port_fd);
    for (int i = 0; i < HOSTS; i++)
        if (status[i] != expected) fail_msg("host %d: %d, not %d: %s", i, status[i], expected, j->host[i].err_text);
}

/* The last line on that host, in which %s is this machine's name. */
static void expect_line(const job *j, int host, const char *format) {
    char name[65] = "", line[LINE_CAPACITY];
    gethostname(name, sizeof name - 1);
    const char *at = strstr(format, "%s");
    if (at)
        snprintf(line, sizeof line, "launcher: error: %.*s%s%s", (int)(at - format), format, name, at + 2);
    else
        snprintf(line, sizeof line, "launcher: error: %s", format);
    expect_message(&j->host[host], line);
}

TEST(test_ranks_are_numbered_over_hosts) {
    static const char *const first[] = {"0/3 0/1 0/2 0/3"}, *const second[] = {"1/3 0/2 1/2 1/3", "2/3 1/2 1/2 2/3"};
    job j;
    describe(&j, "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
                 "$ROLE_RANK/$ROLE_WORLD_SIZE; echo $MASTER_ADDR:$MASTER_PORT $LS_STORE $LS_JOB $TORCHELASTIC_RUN_ID "
                 "$LS_JOB_TOKEN >&2");
    start(&j);
    finish(&j, 0);
    expect_lines(j.host[0].out_text, 1, first);
    expect_lines(j.host[1].out_text, 2, second);
    const char *shared = j.host[0].err_text; /* the variables that are the same for all ranks */
    assert_non_null(strstr(shared, " tcp:127.0.0.1:"));
    assert_int_equal(count_text(j.host[1].err_text, shared), 2);
}

TEST(test_a_failure_on_one_host_ends_all) {
    job j;
    describe(&j, "echo pid $$; [ $RANK = 2 ] && sleep 0.2 && exit 5; sleep 60");
    start(&j);
    finish(&j, 1);
    for (int i = 0; i < HOSTS; i++) expect_line(&j, i, "rank 2 (pid #) on host 1 (%s) exited with status 5");
    assert_null(strstr(j.host[0].err_text, "failed first"));
    expect_gone(&j.host[0], 1);
    expect_gone(&j.host[1], 2);
}

/* Ranks that lost a peer on their host are not taken for the cause, even if the news of the cause arrives later
 * there. */
TEST(test_the_cause_is_found_on_the_other_host) {
    job j;
    describe(&j, "[ $RANK = 0 ] && kill -9 $$; exit 3");
    start(&j);
    finish(&j, 1);
    for (int i = 0; i < HOSTS; i++) expect_line(&j, i, "rank 0 (pid #) on host 0 (%s) was ended by signal 9 (Killed)");
    assert_non_null(strstr(j.host[1].err_text, "ranks 1, 2 failed after it"));
}

TEST(test_all_hosts_start_again_together) {
    static const char *const first[] = {"0 0", "0 1"}, *const second[] = {"1 0", "1 1", "2 0", "2 1"};
    job j;
    describe(&j, "echo $RANK $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
                 "[ $RANK = 1 ] && exit 7; sleep 60");
    for (int i = 0; i < HOSTS; i++) j.host[i].options.max_restarts = 3;
    start(&j);
    finish(&j, 0);
    expect_lines(j.host[0].out_text, 2, first);
    expect_lines(j.host[1].out_text, 4, second);
    for (int i = 0; i < HOSTS; i++)
        assert_non_null(strstr(j.host[i].err_text, "exited with status 7; all ranks start again (restart 1 of 3)\n"));
}

TEST(test_the_users_signal_on_one_host_ends_all) {
    job j;
    pid_t pids[PIDS_MAX];
    describe(&j, "exec 2>&-; trap 'echo told; exit 0' TERM; echo pid $$; while :; do sleep 0.05; done");
    for (int i = 0; i < HOSTS; i++) j.host[i].options.grace_s = 20;
    start(&j);
    await_pids(&j.host[0], 1, pids);
    await_pids(&j.host[1], 2, pids);
    kill(j.host[1].pid, SIGTERM);
    finish(&j, 1);
    for (int i = 0; i < HOSTS; i++) expect_line(&j, i, "the job was ended by signal 15 (Terminated) on host 1 (%s)");
    assert_int_equal(count_text(j.host[0].out_text, "told"), 1);
    assert_int_equal(count_text(j.host[1].out_text, "told"), 2);
}

/* --- hosts that are lost ------------------------------------------------------------------------------------------------ */

/* The other host's launcher is `victim`; its ranks end with it. */
static void lose_host(job *j, int victim, int signal) {
    pid_t pids[HOSTS][PIDS_MAX];
    describe(j, "echo pid $$; exec sleep 60");
    for (int i = 0; i < HOSTS; i++) j->host[i].options.lost_s = signal == SIGSTOP ? 1 : 20;
    start(j);
    await_pids(&j->host[0], 1, pids[0]);
    await_pids(&j->host[1], 2, pids[1]);
    kill(j->host[victim].pid, signal);
    assert_int_equal(finish_job(&j->host[!victim]), 3);
    if (signal == SIGSTOP) kill(j->host[victim].pid, SIGCONT);
    assert_int_equal(finish_job(&j->host[victim]), signal == SIGSTOP ? 3 : 128 + signal);
    close(j->port_fd);
    await_gone(pids[0][0]); /* the kernel kills the ranks of a launcher that was killed */
    for (int i = 0; i < 2; i++) await_gone(pids[1][i]);
}

TEST(test_a_launcher_that_dies_is_named) {
    job j;
    lose_host(&j, 1, SIGKILL);
    expect_line(&j, 0, "host 1 (%s) is lost: its ddprun has ended, or the connection to it");
    lose_host(&j, 0, SIGKILL);
    assert_non_null(
        strstr(j.host[1].err_text, " is lost, which serves the job: its ddprun has ended, or the connection"));
}

/* Ranks that have lost a peer end before any launcher detects the loss of the host. */
TEST(test_a_lost_host_is_the_cause) {
    job j;
    pid_t pids[PIDS_MAX];
    describe(&j, "trap 'exit 3' USR1; echo pid $$; while :; do sleep 0.05; done");
    start(&j);
    await_pids(&j.host[1], 2, pids);
    await_pids(&j.host[0], 1, pids);
    kill(j.host[1].pid, SIGKILL);
    kill(pids[0], SIGUSR1);
    assert_int_equal(finish_job(&j.host[0]), 3);
    assert_int_equal(finish_job(&j.host[1]), 128 + SIGKILL);
    close(j.port_fd);
    expect_line(&j, 0, "host 1 (%s) is lost: its ddprun has ended, or the connection to it");
}

TEST(test_a_host_that_is_silent_is_lost) {
    job j;
    lose_host(&j, 1, SIGSTOP);
    assert_non_null(strstr(j.host[0].err_text, "has been silent for 1"));
    lose_host(&j, 0, SIGSTOP);
    assert_non_null(strstr(j.host[1].err_text, "no answer for 1 s: its machine or the network does not answer\n"));
}

/* --- hosts that cannot connect ------------------------------------------------------------------------------------ */

TEST(test_a_host_that_comes_late_is_waited_for) {
    for (int late = 0; late < HOSTS; late++) {
        job j;
        describe(&j, ":");
        start_job(&j.host[!late]);
        usleep(300000);
        start_job(&j.host[late]);
        finish(&j, 0);
    }
}

TEST(test_a_host_that_never_comes) {
    job j;
    for (int host = 0; host < HOSTS; host++) {
        describe(&j, ":");
        j.host[host].options.join_timeout_s = 0.5;
        start_job(&j.host[host]);
        assert_int_equal(finish_job(&j.host[host]), 3);
        close(j.port_fd);
        if (host == 0)
            expect_line(
                &j, host,
                "host 1 of 2 did not arrive within 0.5 s at 127.0.0.1:#: start ddprun there, with its --node-rank and "
                "the same --master-addr and --master-port; allow more with --rdzv-conf timeout=SECONDS");
        else
            expect_line(&j, host,
                        "host 0 did not answer within 0.5 s: no store answers at 127.0.0.1:# after 0.# s (Connection "
                        "refused): is rank 0, or the launcher, running?");
    }
}

/* As behind a firewall that accepts the connection, but drops data. */
TEST(test_what_listens_may_never_answer) {
    job j;
    describe(&j, ":");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t nbytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, nbytes), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &nbytes), 0);
    for (int i = 0; i < HOSTS; i++) j.host[i].options.master_port = ntohs(address.sin_port);
    j.host[1].options.join_timeout_s = 0.5;
    start(&j);
    assert_int_equal(finish_job(&j.host[1]), 3);
    expect_line(&j, 1,
                "host 0 did not answer within 0.5 s: the process that listens at 127.0.0.1:# does not answer as a "
                "store of this "
                "program: check the port");
    /* the same port, on host 0 */
    assert_int_equal(finish_job(&j.host[0]), 1);
    expect_line(
        &j, 0,
        "cannot serve the store at 127.0.0.1:#: the port is in use; end the program that uses it, or choose another "
        "port (--master-port, MASTER_PORT)");
    close(fd);
    close(j.port_fd);
}

TEST(test_strangers_are_refused_by_name) {
    job j;
    describe(&j, ":");
    setenv("LS_JOB_TOKEN", "right", 1);
    j.host[0].options.join_timeout_s = 2;
    start_job(&j.host[0]);
    setenv("LS_JOB_TOKEN", "wrong", 1);
    start_job(&j.host[1]);
    unsetenv("LS_JOB_TOKEN");
    assert_int_equal(finish_job(&j.host[1]), 2);
    expect_line(
        &j, 1,
        "the store at 127.0.0.1:# refuses host 1: its LS_JOB_TOKEN differs from the job's; give all hosts of a job "
        "the same token, and each job a port of its own (--master-port)");
    j.host[1].options.nnodes = 3;
    setenv("LS_JOB_TOKEN", "right", 1);
    start_job(&j.host[1]);
    assert_int_equal(finish_job(&j.host[1]), 2);
    expect_line(
        &j, 1,
        "the store at 127.0.0.1:# serves a job of 2 hosts, but this host 1 belongs to a job of 3 (--nnodes): give each "
        "job a port of its own (--master-port)");
    unsetenv("LS_JOB_TOKEN");
    assert_int_equal(finish_job(&j.host[0]), 3);
    close(j.port_fd);
}

TEST(test_a_number_is_taken_once) {
    job j;
    run again;
    pid_t pids[PIDS_MAX];
    describe(&j, "echo pid $$; exec sleep 60");
    start(&j);
    await_pids(&j.host[1], 2, pids);
    again = (run){.options = j.host[1].options};
    start_job(&again);
    assert_int_equal(finish_job(&again), 2);
    expect_message(&again,
                   "launcher: error: the store at 127.0.0.1:# already has a host 1: the same was started twice, or "
                   "belongs to another job, which needs a port of its own (--master-port)");
    kill(j.host[0].pid, SIGTERM);
    finish(&j, 1);
}

TEST(test_options_that_differ_are_named_on_all_hosts) {
    job j;
    describe(&j, ":");
    j.host[1].options.max_restarts = 2;
    start(&j);
    finish(&j, 2);
    for (int i = 0; i < HOSTS; i++) assert_non_null(strstr(j.host[i].err_text, "error: --max-restarts: host 1 ("));
    describe(&j, ":");
    j.host[0].options.nproc = 63;
    start(&j);
    finish(&j, 2);
    for (int i = 0; i < HOSTS; i++) expect_line(&j, i, "the hosts have 65 ranks in total, but a job has at most 64");
}

TEST(test_a_host_that_cannot_start_its_ranks) {
    job j;
    describe(&j, ":");
    j.host[1].options.program = "no-such-program";
    start(&j);
    assert_int_equal(finish_job(&j.host[0]), 1);
    assert_int_equal(finish_job(&j.host[1]), 1);
    close(j.port_fd);
    expect_line(&j, 0, "host 1 (%s) cannot start its ranks; see its error");
    expect_line(&j, 1, "cannot run 'no-such-program': No such file or directory");
}

/* 127.257 means 127.0.1.1, the address that Debian's /etc/hosts has for the machine's own name. */
TEST(test_an_address_of_this_machine_alone) {
    job j;
    describe(&j, ":");
    j.host[1].options.master_addr = "127.257";
    start_job(&j.host[1]);
    assert_int_equal(finish_job(&j.host[1]), 2);
    close(j.port_fd);
    assert_non_null(
        strstr(j.host[1].err_text,
               "error: --master-addr: 127.257 is 127.0.1.1 here (/etc/hosts), which is this host itself, not host "
               "0: give an address of host 0's network interface; this host has "));
    describe(&j, ":");
    j.host[1].options.master_addr = "192.0.2.7";
    start_job(&j.host[1]);
    assert_int_equal(finish_job(&j.host[1]), 2);
    close(j.port_fd);
    assert_non_null(strstr(j.host[1].err_text,
                           "this job has no secret: set LS_JOB_TOKEN to the same random text for all "
                           "hosts, or --master-addr to 127.0.0.1"));
}

int main(void) {
    alarm(300);
    unsetenv("LS_JOB_TOKEN");
    return run_added_tests();
}
