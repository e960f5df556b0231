/* launch: the environment of ranks, which rank is blamed for a failure, and jobs that cannot be started. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"
#include "ddp_procs/launch/launch.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/launch/store.h"
#include "tests/base/test.h"
#include "tests/launch/launch_run.h"

/* --- the environment of ranks ------------------------------------------------------------------------------------- */

static const char *const show_environment = "[ \"$MASTER_PORT\" -gt 0 ] && [ -n \"$LS_CAUSE_FD\" ] && "
                                            "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR "
                                            "${LS_STORE%%:*} ${#LS_JOB_TOKEN} $OMP_NUM_THREADS $MINE";

TEST_CASE(test_environment) {
    static const char *const expected[] = {"0 0 3 3 127.0.0.1 unix 32 1 kept", "1 1 3 3 127.0.0.1 unix 32 1 kept",
                                           "2 2 3 3 127.0.0.1 unix 32 1 kept"};
    run r;
    setenv("RANK", "9", 1); /* from another launcher: replaced */
    setenv("LS_STORE", "old", 1);
    setenv("LS_JOB_TOKEN", "old", 1);
    setenv("MINE", "kept", 1);
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(run_shells(&r, 3, show_environment), 0);
    assert_string_equal(r.err_text, "");
    expect_lines(r.out_text, 3, expected);
    /* each variable appears once */
    assert_int_equal(
        run_shells(&r, 1, "tr '\\0' '\\n' < /proc/$$/environ | grep -c -E '^(RANK|LS_STORE|LS_JOB_TOKEN)='"), 0);
    assert_string_equal(r.out_text, "3\n");
    /* only processes of the user can read the secret, and each job has another one */
    char first[64];
    assert_int_equal(
        run_shells(&r, 1, "echo $LS_JOB_TOKEN; ! tr '\\0' '\\n' </proc/$$/cmdline | grep -q $LS_JOB_TOKEN"), 0);
    snprintf(first, sizeof first, "%.40s", r.out_text);
    assert_int_equal(run_shells(&r, 1, "echo $LS_JOB_TOKEN"), 0);
    assert_string_not_equal(r.out_text, first);
    static const char *const chosen[] = {"0 0 1 1 127.0.0.1 unix 32 5 kept"};
    setenv("OMP_NUM_THREADS", "5", 1);
    assert_int_equal(run_shells(&r, 1, show_environment), 0);
    expect_lines(r.out_text, 1, chosen);
    unsetenv("OMP_NUM_THREADS");
    unsetenv("RANK");
    unsetenv("LS_STORE");
    unsetenv("LS_JOB_TOKEN");
}

/* The variables that programs for torchrun read; and no variable of another launcher that does not fit this job. */
TEST_CASE(test_environment_of_torchrun) {
    static const char *const expected[] = {"0 0 default 1 2 2 0 0 False 1 no 1", "0 1 default 1 2 2 0 0 False 1 no 1"};
    static const char *const script =
        "echo $GROUP_RANK $ROLE_RANK $ROLE_NAME $GROUP_WORLD_SIZE $ROLE_WORLD_SIZE $LOCAL_WORLD_SIZE "
        "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_USE_AGENT_STORE "
        "$TORCH_NCCL_ASYNC_ERROR_HANDLING ${TORCHELASTIC_ERROR_FILE-no} ${OMP_NUM_THREADS-no}";
    run r;
    setenv("GROUP_RANK", "7", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TORCHELASTIC_ERROR_FILE", "/another/launchers", 1);
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(run_shells(&r, 2, script), 0);
    expect_lines(r.out_text, 2, expected);
    static const char *const alone[] = {"0 0 default 1 1 1 0 0 False 2 no no"}; /* one process has all cores */
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", 1);                          /* set by the user */
    assert_int_equal(run_shells(&r, 1, script), 0);
    expect_lines(r.out_text, 1, alone);
    unsetenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
    unsetenv("GROUP_RANK");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    unsetenv("TORCHELASTIC_ERROR_FILE");
}

/* The same for all ranks of a job, different for the next job. */
TEST_CASE(test_jobs_have_names) {
    run r;
    char first[TEXT_CAPACITY];
    assert_int_equal(run_shells(&r, 2, "echo $LS_JOB"), 0);
    char *second = strchr(r.out_text, '\n') + 1;
    assert_true(second - r.out_text > 1);
    assert_int_equal(strlen(second), second - r.out_text);
    assert_memory_equal(r.out_text, second, strlen(second));
    snprintf(first, sizeof first, "%s", second);
    assert_int_equal(run_shells(&r, 1, "echo $LS_JOB"), 0);
    assert_string_not_equal(r.out_text, first);
}

TEST_CASE(test_ranks_inherit_no_pipes_and_no_signal_mask) {
    run r;
    int files[3];
    assert_int_equal(run_shells(&r, 3, "set -- /proc/$$/fd/*; echo $#"), 0);
    assert_int_equal(sscanf(r.out_text, "%d %d %d", &files[0], &files[1], &files[2]), 3);
    assert_int_equal(files[0], files[1]); /* ranks started later do not inherit files of earlier ones */
    assert_int_equal(files[0], files[2]);
    assert_int_equal(run_shells(&r, 1, "exec grep SigBlk /proc/self/status"), 0);
    assert_string_equal(r.out_text, "SigBlk:\t0000000000000000\n");
}

/* This program as a rank: joins the others at the launcher's store. */
static int meet(bool without_rank_1) {
    ddp_rank self;
    ddp_store *store;
    int64_t arrived = 0;
    size_t nbytes;
    if (ddp_rank_discover(&self) != LS_OK) return 1;
    if (without_rank_1 && self.rank == 1) return 0;
    if (ddp_store_open(&store, &self, 30) != LS_OK) return 1;
    if (ddp_store_add(store, "arrived", 1, &arrived) != LS_OK) return 1;
    if (arrived == self.world_size && ddp_store_set(store, "all", "", 0) != LS_OK) return 1;
    if (ddp_store_get(store, "all", NULL, 0, &nbytes) != LS_OK) return 1;
    ddp_store_close(store);
    return self.world_size == 3 ? 0 : 1;
}

TEST_CASE(test_ranks_of_this_program_meet_in_the_store) {
    char *argv[] = {"rank", NULL};
    run r = {.options = {.nproc = 3, .argv = argv, .last_argument = "--meet", .grace_s = 10}};
    start_job(&r);
    assert_int_equal(finish_job(&r), 0);
    assert_string_equal(r.err_text, "");
}

/* The others would wait for that rank until their deadline of 30 s. */
TEST_CASE(test_a_rank_that_never_joins_ends_the_job) {
    char *argv[] = {"rank", NULL};
    run r = {.options = {.nproc = 3, .argv = argv, .last_argument = "--meet-without-rank-1", .grace_s = 10}};
    start_job(&r);
    assert_int_equal(finish_job(&r), 1);
    expect_message(&r,
                   "launcher: error: rank 1 (pid #) exited with status 0 without joining the others, which wait for "
                   "it: all ranks must run a program that meets in this job");
}

/* --- the rank that is blamed -------------------------------------------------------------------------------------- */

TEST_CASE(test_the_first_failure_is_named_and_the_others_end) {
    run r;
    assert_int_equal(run_shells(&r, 3,
                                "echo pid $$; [ $RANK = 1 ] || exec sleep 60;"
                                "echo 'loss is NaN at step 7' >/proc/self/fd/$LS_CAUSE_FD; echo second "
                                ">/proc/self/fd/$LS_CAUSE_FD; exit 7"),
                     1);
    expect_message(&r, "launcher: error: rank 1 (pid #) exited with status 7: loss is NaN at step 7");
    expect_gone(&r, 3);
}

TEST_CASE(test_a_failure_without_a_message) {
    run r;
    assert_int_equal(run_shells(&r, 2, "[ $RANK = 1 ] || exec sleep 60; exit 4"), 1);
    expect_message(&r, "launcher: error: rank 1 (pid #) exited with status 4");
    /* wrong usage is passed on as the exit status */
    assert_int_equal(run_shells(&r, 2, "[ $RANK = 1 ] || exec sleep 60; exit 2"), 2);
    expect_message(&r, "launcher: error: rank 1 (pid #) exited with status 2");
}

TEST_CASE(test_a_rank_that_lost_a_peer_is_not_the_culprit) {
    run r;
    assert_int_equal(
        run_shells(&r, 3,
                   "case $RANK in 0) echo 'rank 2 did not come' >/proc/self/fd/$LS_CAUSE_FD; exit 3;;"
                   "1) exec sleep 60;; 2) sleep 0.1; echo 'no memory' >/proc/self/fd/$LS_CAUSE_FD; exit 1;; esac"),
        1);
    expect_message(&r, "launcher: error: rank 2 (pid #) exited with status 1: no memory");
    assert_int_equal(
        run_shells(&r, 2, "[ $RANK = 0 ] || sleep 0.1; echo \"from $RANK\" >/proc/self/fd/$LS_CAUSE_FD; exit 3"), 3);
    expect_message(&r, "launcher: error: rank 0 (pid #) exited with status 3: from 0");
    /* the first culprit stays the culprit */
    assert_int_equal(run_shells(&r, 2, "[ $RANK = 0 ] || sleep 0.1; exit $((RANK + 1))"), 1);
    expect_message(&r, "launcher: error: rank 0 (pid #) exited with status 1");
}

TEST_CASE(test_a_killed_rank) {
    run r;
    assert_int_equal(run_shells(&r, 3, "echo pid $$; [ $RANK = 2 ] || exec sleep 60; kill -9 $$"), 1);
    expect_message(&r, "launcher: error: rank 2 (pid #) was ended by signal 9 (Killed)");
    expect_gone(&r, 3);
}

TEST_CASE(test_a_rank_may_end_early_with_0) {
    run r;
    assert_int_equal(run_shells(&r, 2, "[ $RANK = 0 ] && exit 0; sleep 0.8; echo done"), 0);
    assert_string_equal(r.out_text, "done\n");
    assert_string_equal(r.err_text, "");
}

TEST_CASE(test_a_talkative_rank_does_not_block) {
    run r;
    assert_int_equal(run_shells(&r, 1, "head -c 300000 /dev/zero | tr '\\0' x >/proc/self/fd/$LS_CAUSE_FD; exit 1"), 1);
    const char *line = strstr(r.err_text, "launcher: error: rank 0 (pid ");
    assert_non_null(line);
    assert_int_equal(strlen(line), strlen("launcher: error: rank 0 (pid ) exited with status 1: \n") + 1023 +
                                       strspn(strstr(line, "pid ") + 4, "0123456789"));
}

/* --- jobs that cannot be started ---------------------------------------------------------------------------------- */

static void expect_refusal(const ddp_launch_options *options, ls_status status, const char *expected) {
    char message[512];
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_launch(options), status);
    ls_log_capture(NULL, 0);
    assert_string_equal(message, expected);
}

TEST_CASE(test_programs_that_cannot_run) {
    char *argv[] = {"x", NULL};
    ddp_launch_options options = {.nproc = 2, .program = "no-such-program", .argv = argv};
    expect_refusal(&options, LS_ERR_IO, "cannot run 'no-such-program': No such file or directory");
    options.program = "/no/such/program";
    expect_refusal(&options, LS_ERR_IO, "cannot run '/no/such/program': No such file or directory");
    options.program = "/proc";
    expect_refusal(&options, LS_ERR_IO, "cannot run '/proc': Is a directory");
    options.program = "/proc/version";
    expect_refusal(&options, LS_ERR_IO, "cannot run '/proc/version': Permission denied");

    char path[64], expected[256];
    int fd =
        memfd_create("no program", 0); /* an executable file without a program, which disappears with this process */
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "text\n", 5), 5);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    options.program = path;
    snprintf(expected, sizeof expected, "cannot start rank 0, '%s': Exec format error", path);
    expect_refusal(&options, LS_ERR_IO, expected);
    close(fd);
}

TEST_CASE(test_numbers_of_ranks) {
    char *argv[] = {"true", NULL};
    ddp_launch_options options = {.nproc = 0, .program = "true", .argv = argv};
    expect_refusal(&options, LS_ERR_USAGE, "cannot start 0 ranks: a job has 1 to 64");
    options.nproc = 65;
    expect_refusal(&options, LS_ERR_USAGE, "cannot start 65 ranks: a job has 1 to 64");
}

TEST_CASE(test_a_port_in_use) {
    ddp_store_server *other;
    char *argv[] = {"true", NULL}, expected[256];
    assert_int_equal(ddp_store_serve(&other, "127.0.0.1", 0), LS_OK);
    int port = ddp_store_server_port(other);
    ddp_launch_options options = {.nproc = 2, .program = "true", .argv = argv, .master_port = port};
    snprintf(
        expected, sizeof expected,
        "cannot keep port %d of 127.0.0.1 for the ranks (MASTER_PORT): Address already in use; --master-port 0 takes a "
        "free port",
        port);
    expect_refusal(&options, LS_ERR_SYSTEM, expected);
    ddp_store_server_stop(other, 0);
    char script[64];
    snprintf(script, sizeof script, "[ $MASTER_PORT = %d ]", port);
    char *check[] = {"sh", "-c", script, NULL};
    options.program = "sh";
    options.argv = check;
    assert_int_equal(ddp_launch(&options), LS_OK);
}

/* Several launchers, started as copies, would each start all ranks. A launcher that runs in a single task of a job is
 * no copy. */
TEST_CASE(test_copies_of_the_launcher) {
    char *argv[] = {"true", NULL};
    const ddp_launch_options options = {.nproc = 1, .program = "true", .argv = argv};
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "2", 1);
    expect_refusal(
        &options, LS_ERR_USAGE,
        "mpiexec has started 2 copies of this program (PMI_SIZE), and each would start ranks of its own: let "
        "that launcher start the ranks themselves, without ddprun and --spawn");
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "1", 1);
    assert_int_equal(ddp_launch(&options), LS_OK);
    unsetenv("PMI_RANK");
    unsetenv("PMI_SIZE");
}

TEST_CASE(test_too_many_open_files) {
    char *argv[] = {"true", NULL};
    char message[512];
    const ddp_launch_options options = {.nproc = 8, .program = "true", .argv = argv};
    struct rlimit limit, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = (struct rlimit){20, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_launch(&options), LS_ERR_SYSTEM);
    ls_log_capture(NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_memory_equal(message, "too many open files: the launcher needs ", 40);
    assert_non_null(strstr(message, "ulimit -n is 20"));
    assert_int_equal(ddp_launch(&options), LS_OK);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--meet") == 0) return meet(false);
    if (argc == 2 && strcmp(argv[1], "--meet-without-rank-1") == 0) return meet(true);
    alarm(150);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_environment_of_torchrun),
        cmocka_unit_test(test_jobs_have_names),
        cmocka_unit_test(test_ranks_inherit_no_pipes_and_no_signal_mask),
        cmocka_unit_test(test_ranks_of_this_program_meet_in_the_store),
        cmocka_unit_test(test_a_rank_that_never_joins_ends_the_job),
        cmocka_unit_test(test_the_first_failure_is_named_and_the_others_end),
        cmocka_unit_test(test_a_failure_without_a_message),
        cmocka_unit_test(test_a_rank_that_lost_a_peer_is_not_the_culprit),
        cmocka_unit_test(test_a_killed_rank),
        cmocka_unit_test(test_a_rank_may_end_early_with_0),
        cmocka_unit_test(test_a_talkative_rank_does_not_block),
        cmocka_unit_test(test_programs_that_cannot_run),
        cmocka_unit_test(test_numbers_of_ranks),
        cmocka_unit_test(test_a_port_in_use),
        cmocka_unit_test(test_copies_of_the_launcher),
        cmocka_unit_test(test_too_many_open_files),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
