#define _GNU_SOURCE
/* bench_comm with its ranks: every operation and algorithm at tiny sizes; errors are detected, and nothing is left
 * behind. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/mpi_plugin.h"
#include "labs/bench/comm/bench_comm.h"
#include "labs/bench/shared/child.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"
#include "tests/programs/program.h"

static comm_settings settings;
static const bench_machine machine = {.cpu = "cpu", .cores = 2};

/* Settings for tests: small buffers, short runs. */
static void make_settings(ls_int_list n, const char *sizes) {
    settings = (comm_settings){.n = n,
                               .runs = 2,
                               .rounds = 1,
                               .run_ms = 0.05,
                               .timeout_s = 30,
                               .quiet = true,
                               .cores = 64,
                               .cache_bytes = 64 << 10};
    assert_int_equal(comm_parse_sizes(&settings, sizes), LS_OK);
}

static void add_everything(void) {
    for (const comm_operation *operation = comm_operations; operation->name; operation++) {
        if (!comm_is_all_reduce(operation))
            settings.cases[settings.case_count++] = (comm_case){.operation = operation, .algorithm = ""};
        for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; comm_is_all_reduce(operation) && row->name;
             row++)
            settings.cases[settings.case_count++] = (comm_case){.operation = operation, .algorithm = row->name};
    }
}

static void check_rows(const comm_results *results) {
    for (int i = 0; i < results->row_count; i++) {
        const comm_row *row = &results->rows[i];
        const char *name = row->algorithm[0] ? row->algorithm : row->operation->name;
        comm_agreement expected = comm_is_private(row->variant) ? COMM_NOT_COMPARED : COMM_EQUAL;
        if (!row->checked) fail_msg("%s, N %d, %zu bytes was not checked", name, row->n, row->nbytes);
        if (row->agreement != expected)
            fail_msg("%s, N %d, %zu bytes: rank %d's counts differ from the formula", name, row->n, row->nbytes,
                     row->busiest_rank);
        if (settings.check_only) {
            assert_int_equal(row->run_count, 0);
            assert_true(isnan(row->time_us));
            continue;
        }
        assert_int_equal(row->run_count, settings.runs);
        assert_true(row->iterations >= 1);
        for (int run = 0; run < settings.runs; run++) assert_true(row->run_us[run] > 0);
    }
}

static void run_all(void) {
    comm_results *results;
    assert_int_equal(comm_results_create(&results, &settings, &machine), LS_OK);
    for (int round = 0; round < settings.rounds; round++)
        for (int g = 0; g < results->group_count; g++)
            assert_int_equal(comm_run_group(&settings, &results->groups[g], round), LS_OK);
    check_rows(results);
    assert_int_equal(comm_check_counts(results), LS_OK);
    comm_results_destroy(results);
}

TEST_IN(scratch, test_every_row_is_right_and_counted) {
    make_settings((ls_int_list){.count = 2, .values = {2, 3}}, "4,40,20K");
    add_everything();
    settings.variants[COMM_SHM_SHARED] = settings.variants[COMM_THREADS] = true;
    run_all();
}

TEST_IN(scratch, test_private_buffers_and_rounds) {
    make_settings((ls_int_list){.count = 1, .values = {3}}, "8,600K");
    add_everything();
    settings.variants[COMM_SHM_PRIVATE] = true;
    settings.rounds = 2;
    run_all();
}

TEST_IN(scratch, test_checks_without_times_in_every_type) {
    for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++) {
        make_settings((ls_int_list){.count = 1, .values = {5}}, "1K");
        add_everything();
        settings.variants[COMM_SHM_SHARED] = true;
        settings.check_only = true;
        settings.dtype = (ls_dtype)dtype;
        settings.reduce = (ls_reduce_op)(dtype % LS_REDUCE_OP_COUNT);
        run_all();
    }
}

/* Together with other variants, which have more rows. */
TEST_IN(scratch, test_rows_that_open_mpi_carries) {
    char why[600];
    if (!ls_mpi_carrier(why, sizeof why)) skip();
    make_settings((ls_int_list){.count = 2, .values = {2, 3}}, "8,600K");
    add_everything();
    settings.variants[COMM_MPI] = settings.variants[COMM_THREADS] = settings.check_only = true;
    run_all();
}

/* --- errors ------------------------------------------------------------------------------------------------------ */

/* all_reduce, except that the last element of rank 1's result is off by one. */
static ls_status broken_all_reduce(const comm_call *call) {
    ls_status status = comm_operation_find("all_reduce")->enqueue(call);
    if (status == LS_OK) status = ls_stream_synchronize(call->stream);
    if (ls_comm_rank(call->comm) == 1) ((float *)call->receive)[call->count - 1] += 1;
    return status;
}

static void wrong_cost(struct ls_allreduce_cost *cost, int n, int rank, size_t count, size_t element_nbytes) {
    comm_operation_find("broadcast")->cost(cost, n, rank, count, element_nbytes);
    if (rank == 2) cost->received_bytes += 1;
}

static ls_status run_one(comm_results *results, comm_variant variant) {
    for (int g = 0; g < results->group_count; g++)
        if (results->groups[g].variant == variant) return comm_run_group(&settings, &results->groups[g], 0);
    return LS_ERR_INVALID;
}

TEST_IN(scratch, test_a_wrong_result_ends_the_bench) {
    comm_operation broken = *comm_operation_find("all_reduce");
    comm_results *results;
    broken.enqueue = broken_all_reduce;
    make_settings((ls_int_list){.count = 1, .values = {2}}, "64");
    settings.cases[settings.case_count++] = (comm_case){.operation = &broken, .algorithm = "direct"};
    settings.variants[COMM_SHM_SHARED] = settings.variants[COMM_THREADS] = true;
    assert_int_equal(comm_results_create(&results, &settings, &machine), LS_OK);
    assert_int_equal(run_one(results, COMM_SHM_SHARED), LS_ERR_INVALID);
    stderr_begin();
    ls_status status = run_one(results, COMM_THREADS);
    const char *text = stderr_end();
    assert_int_equal(status, LS_ERR_INVALID);
    if (!strstr(text, "all_reduce direct, threads, shared buffers, N 2, 64 bytes: wrong result on rank 1: element 15 "
                      "of the result is"))
        fail_msg("not reported: %s", text);
    assert_false(results->rows[0].checked);
    comm_results_destroy(results);
}

TEST_IN(scratch, test_a_count_that_differs_is_found) {
    comm_operation dishonest = *comm_operation_find("broadcast");
    comm_results *results;
    dishonest.cost = wrong_cost;
    make_settings((ls_int_list){.count = 1, .values = {3}}, "64");
    settings.cases[settings.case_count++] = (comm_case){.operation = &dishonest, .algorithm = ""};
    settings.variants[COMM_SHM_SHARED] = settings.check_only = true;
    assert_int_equal(comm_results_create(&results, &settings, &machine), LS_OK);
    assert_int_equal(run_one(results, COMM_SHM_SHARED), LS_OK);
    assert_int_equal(results->rows[0].agreement, COMM_DIFFERS);
    assert_int_equal(comm_check_counts(results), LS_ERR_INVALID);
    scratch_expect_error("broadcast",
                         "rank 2 sent 0 messages, 0 bytes and received 1, 64; expected sent 0, 0 and received 1, 65");
    comm_results_destroy(results);
}

/* --- the program ------------------------------------------------------------------------------------------------- */

static bench_output output;

static const char *program_path(void) {
    static char path[1100];
    snprintf(path, sizeof path, "%s/bench_comm", build_folder());
    return path;
}

static ls_status run_program(const char *a, const char *b, const char *c, const char *d) {
    char words[4][600], *argv[7] = {(char *)program_path(), "--cache=64K"};
    const char *const given[] = {a, b, c, d};
    for (int i = 0; i < 4 && given[i]; i++) {
        snprintf(words[i], sizeof words[i], "%s", given[i]);
        argv[2 + i] = words[i];
    }
    return bench_child_run(argv, 60, &output);
}

static const char *out_option(const char *folder) {
    static char text[640];
    snprintf(text, sizeof text, "--out=%s", folder);
    return text;
}

TEST_IN(scratch, test_bad_options) {
    static const char *const bad[] = {"--op=nothing", "--allreduce=nothing", "--sizes=1:0", "--n=1", "operand"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(run_program(bad[i], NULL, NULL, NULL), LS_ERR_USAGE);
        scratch_expect_error("exit status 2", NULL);
        assert_int_equal(output.out_nbytes, 0);
        assert_int_equal(strlen(output.err) + 1, output.err_nbytes); /* one line, complete before the message */
    }
}

TEST_IN(scratch, test_a_folder_that_cannot_be_written) {
    scratch_write("file", "", 0);
    assert_int_equal(run_program(out_option(scratch_path("file")), "--sizes=8", "--op=barrier", NULL), LS_ERR_SYSTEM);
    scratch_expect_error("exit status 1", "file");
    assert_int_equal(output.out_nbytes, 0); /* detected before anything was measured */
    assert_int_equal(scratch_file_count(), 1);
}

/* --- a rank that is killed --------------------------------------------------------------------------------------- */

static int long_bench(void *argument) {
    (void)argument;
    if (!freopen("/dev/null", "w", stdout)) return 126;
    execl(program_path(), "bench_comm", "--n=3", "--cache=64K", "--op=all_reduce", "--runs=99", "--run-ms=500",
          out_option(scratch_folder()), (char *)NULL);
    return 126;
}

/* Waits until `pid` has `count` children, and writes their pids to `children`. */
static void await_children(pid_t pid, int count, pid_t *children) {
    char path[64], text[400];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    for (double until_us = ls_now_us() + 30e6; ls_now_us() < until_us; usleep(5000)) {
        FILE *file = fopen(path, "r");
        if (!file || !fgets(text, sizeof text, file)) text[0] = '\0';
        if (file) fclose(file);
        int found = 0;
        for (char *rest, *word = strtok_r(text, " ", &rest); word && found < count; word = strtok_r(NULL, " ", &rest))
            children[found++] = (pid_t)atoi(word);
        if (found == count) return;
    }
    fail_msg("process %d has not %d children", (int)pid, count);
}

TEST_IN(scratch, test_a_rank_is_killed) {
    pid_t ranks[3];
    stderr_begin();
    pid_t bench = start_child(long_bench, NULL);
    await_children(bench, 3, ranks);
    usleep(300000); /* most likely they are measuring by now, but the result must not depend on it */
    kill(ranks[1], SIGKILL);
    int code = finish_child(bench);
    const char *text = stderr_end();
    assert_int_equal(code, 3);
    if (!strstr(text, "rank 1 was killed by signal 9")) fail_msg("not reported: %s", text);
    for (int r = 0; r < 3; r++) await_gone(ranks[r]);
    assert_int_equal(scratch_file_count(), 0);
}

TEST_IN(scratch, test_the_bench_is_killed) {
    pid_t ranks[3];
    stderr_begin();
    pid_t bench = start_child(long_bench, NULL);
    await_children(bench, 3, ranks);
    kill(bench, SIGKILL);
    assert_int_equal(finish_child(bench), 128 + SIGKILL);
    stderr_end();
    for (int r = 0; r < 3; r++) await_gone(ranks[r]);
    assert_int_equal(scratch_file_count(), 0);
}

int main(void) {
    alarm(200);
    return run_added_tests();
}
