/* The programs when the GPUs, their driver or NCCL are not usable, or fail during a run: exit status 1, 2 or 3, and one
 * line that says what failed, where, and what to do; no process or file is left behind. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

#define SMALL "--model mlp:784,8,10 --batch-size 8 --steps 6 --no-evaluate --quiet"

struct refusal {
    const char *line;
    int status;
    const char *text;
};

/* One line, from the program itself: no rank has started. */
static void expect_refusals(const struct refusal *cases, size_t count) {
    static program p;
    for (size_t i = 0; i < count; i++) {
        program_run(&p, "%s " SMALL, cases[i].line);
        if (p.status != cases[i].status || count_lines(p.err_text) != 1 || !strstr(p.err_text, cases[i].text))
            fail_msg("%s: status %d, '%s' expected: %s", cases[i].line, p.status, cases[i].text, p.err_text);
        assert_int_equal(scratch_file_count(), 0);
    }
}

/* --- the machine -------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_no_gpu) {
    static const struct refusal cases[] = {
        {"CUDA_ON_CPU_DEVICES=0 dp_train --device-kind cuda", 1, "no GPU can be used: the NVIDIA driver shows no GPU"},
        {"CUDA_ON_CPU_DEVICES=2 CUDA_VISIBLE_DEVICES= dp_train --device-kind cuda", 1, "(CUDA_VISIBLE_DEVICES=)"},
        {"CUDA_ON_CPU_DRIVER=none dp_train --device-kind cuda", 1, "there is no NVIDIA driver"},
        {"CUDA_ON_CPU_DRIVER=none ddp_train --device-kind cuda", 1, "there is no NVIDIA driver"},
        {"CUDA_ON_CPU_DRIVER=none ddp_train --spawn 2 --device-kind cuda", 1, "there is no NVIDIA driver"},
        {"CUDA_ON_CPU_DRIVER=old ddp_train --spawn 2 --device-kind cuda", 1, "the NVIDIA driver is too old"},
        {"LS_PLUGINS=/no/such/folder ddp_train --spawn 2 --device-kind cuda", 1,
         "there is no /no/such/folder/ls_cuda.so"},
    };
    expect_refusals(cases, COUNT_OF(cases));
}

TEST_IN(programs, test_gpus_that_are_not_there) {
    static const struct refusal cases[] = {
        {"CUDA_ON_CPU_DEVICES=1 dp_train --devices 4", 2, "there is 1 GPU; name shared ones with --device-ids 0,0,0,0"},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --device-ids 0,7", 2, "GPU 7 does not exist; there are 0: "},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --device-ids 7", 2, "GPU 7 does not exist; there are 0: "},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --device-ids 0,7", 2, "GPU 7 does not exist; there are 0: "},
        {"CUDA_ON_CPU_DEVICES=3 CUDA_VISIBLE_DEVICES=2,0 ddp_train --spawn 2 --device-ids 0,2", 2,
         ", 1: CUDA on the CPU (CUDA_VISIBLE_DEVICES=2,0)"},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --device-ids 0", 2, "names 1 device for 2 ranks"},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --elastic 1:2", 2, "--elastic cannot be combined with GPUs"},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --device-ids 0,1 --output-device 2", 2, "output device 2 is not among"},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --single --device-ids 0,0", 2, "--single trains on one device"},
    };
    expect_refusals(cases, COUNT_OF(cases));
}

TEST_IN(programs, test_what_does_not_go_together) {
    static const struct refusal cases[] = {
        {"CUDA_ON_CPU_DEVICES=1 ddp_train --spawn 2 --backend nccl", 2, "a GPU per rank, but 2 ranks share 1 GPU"},
        {"CUDA_ON_CPU_DEVICES=3 ddp_train --spawn 3 --device-ids 0,2,0 --backend nccl", 2, "3 ranks share 2 GPUs"},
        {"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --backend nccl --allreduce ring", 2, "NCCL has its own"},
        {"CUDA_ON_CPU_DEVICES=1 dp_train --device-ids 0,0,0 --replicate nccl", 2,
         "each of the 3 devices, but they share 1"},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --cuda-graph", 2,
         "--cuda-graph cannot be combined with DataParallel on several"},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --devices 1 --replicate nccl --cuda-graph", 2,
         "--cuda-graph cannot be combined with --replicate nccl"},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --single --cuda-graph --offload optimizer", 2,
         "--cuda-graph cannot be combined with --offload optimizer"},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --single --replicate nccl", 2, "--single has no replicas"},
        {"CUDA_ON_CPU_DEVICES=0 dp_train --single --replicate nccl", 2, "--single has no replicas"},
    };
    expect_refusals(cases, COUNT_OF(cases));
}

TEST_IN(programs, test_busy_or_full_gpus) {
    static const struct refusal cases[] = {
        {"CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=cudaSetDevice:2:46 dp_train", 1,
         "another process has the GPU for itself"},
        {"CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_MEMORY=1000000 dp_train", 1, "GPU 0 has no memory left to open device 0"},
        {"CUDA_ON_CPU_DEVICES=2 dp_train --device-memory 60K", 1, "device 0 is out of memory: "},
        {"CUDA_ON_CPU_DEVICES=1 ddp_train --device-memory 40K", 1, "device 0 is out of memory: "},
    };
    expect_refusals(cases, COUNT_OF(cases));
    static program p;
    /* the pool passes the request to the GPU, whose refusal is reported with the size, the category and a hint */
    program_run(
        &p,
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_MEMORY=40000000 dp_train --model mlp:784,2048,2048,10 --steps 1 --quiet");
    assert_int_equal(p.status, 1);
    assert_int_equal(count_lines(p.err_text), 1);
    if (!strstr(p.err_text, "device 0 is out of memory: ") ||
        !strstr(p.err_text, " of the GPU's 40000000 bytes are free; ") || !strstr(p.err_text, "smaller model"))
        fail_msg("a full GPU is told as: %s", p.err_text);
}

/* --- in the middle of a run --------------------------------------------------------------------------------------- */

/* One error line from the program (the run may have printed on stdout) that contains all the texts; the ranks'
 * positions may follow. */
static void expect_end(const char *line, int status, const char *text, const char *another) {
    static program p;
    program_run(&p, "%s " SMALL, line);
    if (p.status != status || count_text(p.err_text, ": error: ") != 1 || !strstr(p.err_text, text) ||
        !strstr(p.err_text, another))
        fail_msg("%s: status %d, '%s' and '%s' expected: %s", line, p.status, text, another, p.err_text);
}

TEST_IN(programs, test_a_kernel_fails) {
    expect_end("CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=kernel:30:700 dp_train", 1, "cudaErrorIllegalAddress",
               "--debug-launches names the operation");
    expect_end("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=kernel:60:719 dp_train", 1, "cudaErrorLaunchFailure",
               " on GPU ");
    expect_end("CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=kernel:30:700 dp_train --device-ids 0,0,0", 1,
               "cudaErrorIllegalAddress", " on GPU 0");
    expect_end("CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=kernel:30:700 dp_train --debug-launches", 1,
               ": error: ", " on GPU 0: an illegal memory access");
    expect_end("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=kernel:60:214 dp_train --replicate nccl", 1,
               "cudaErrorECCUncorrectable", "nvidia-smi and dmesg");
}

/* Only --debug-launches names the operation: the same fault, at the same kernel, with and without it. */
TEST_IN(programs, test_debug_launches_name_the_operation) {
    static program p;
    static const char *const operations[] = {"linear", "gemm", "relu",  "cross_entropy", "adam",
                                             "add",    "bias", "scale", "fill"};
    program_run(&p, "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=kernel:25:700 dp_train --debug-launches " SMALL);
    assert_int_equal(p.status, 1);
    bool named = false;
    for (size_t i = 0; i < COUNT_OF(operations); i++) {
        const char *at = strstr(p.err_text, operations[i]);
        named = named || (at && at < strstr(p.err_text, " failed on GPU 0"));
    }
    if (!named) fail_msg("no operation is named: %s", p.err_text);
}

TEST_IN(programs, test_nccl_fails) {
    expect_end("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=ncclCommInitRankConfig:1:2 dp_train --replicate nccl", 1,
               "unhandled system error", "NCCL_DEBUG=INFO says more");
    expect_end("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=ncclReduce:2:3 dp_train --replicate nccl", 1,
               "reduce (sum) of 6384", "internal error");
    expect_end(
        "CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=ncclCommInitRankConfig:1:7 dp_train --replicate nccl --timeout 1", 3,
        "NCCL did not initialize within 1 s", "check the firewall");
    /* an operation that never ends: the wait for it names it */
    expect_end("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=ncclReduce:2:7 dp_train --replicate nccl --timeout 2", 3,
               "reduce (sum) of 6384", " bytes");
}

/* --- ranks started by hand, without a launcher ---------------------------------------------------------------- */

enum { RANKS = 2 };

typedef struct job {
    program ranks[RANKS];
    int port;
} job;

/* `environment` applies to this rank only. */
static void start_rank(job *j, int rank, const char *environment, const char *options) {
    program_start(&j->ranks[rank],
                  "RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                  "CUDA_ON_CPU_DEVICES=2 %s ddp_train --quiet --no-evaluate --model mlp:784,8,10 --batch-size 8 %s",
                  rank, rank, j->port, environment, options);
}

static void start_job(job *j, const char *environment_of_rank_1, const char *options) {
    j->port = free_port();
    start_rank(j, 0, "A=0", options);
    start_rank(j, 1, environment_of_rank_1, options);
}

static void expect_rank(job *j, int rank, int status, const char *text) {
    program *p = &j->ranks[rank];
    program_finish(p);
    bool once = count_lines(p->err_text) == 1 || count_text(p->err_text, ": error: ") == 1;
    if (p->status == status && once && strstr(p->err_text, text)) return;
    fail_msg("rank %d: status %d, '%s' expected: %s", rank, p->status, text, p->err_text);
}

/* --device-kind auto finds GPUs on one rank only. */
TEST_IN(programs, test_ranks_with_and_without_gpus) {
    static job j;
    start_job(&j, "CUDA_ON_CPU_DEVICES=0", "--steps 4");
    for (int r = 0; r < RANKS; r++)
        expect_rank(&j, r, 2, "the kind of devices: rank 1 has cpu, but rank 0 has cuda, by ls_cuda.so of build ");
}

TEST_IN(programs, test_a_rank_is_killed) {
    static job j;
    static const char *const options[] = {"--backend nccl --epochs 100000", "--backend shm --epochs 100000"};
    for (int i = 0; i < 2; i++) {
        int lost = i == 0 ? 1 : 0;
        start_job(&j, "A=1", options[i]);
        program_await(&j.ranks[0], "\n"); /* the line before the first step */
        usleep(30000);
        for (int r = 0; r < RANKS; r++) program_expect_no_named_files(j.ranks[r].pid);
        kill(j.ranks[lost].pid, SIGKILL);
        assert_int_equal(program_finish(&j.ranks[lost]), 128 + SIGKILL);
        char wanted[32];
        snprintf(wanted, sizeof wanted, "rank %d died", lost);
        expect_rank(&j, 1 - lost, 3, wanted);
    }
}

TEST_IN(programs, test_a_rank_stops) {
    static job j;
    start_job(&j, "A=1", "--backend nccl --epochs 100000 --timeout 2");
    program_await(&j.ranks[0], "\n");
    usleep(30000);
    kill(j.ranks[1].pid, SIGSTOP);
    expect_rank(&j, 0, 3, " within 2 s"); /* the message "did not come" depends on where it was stopped */
    kill(j.ranks[1].pid, SIGCONT);
    expect_rank(&j, 1, 3, "has given up");
}

/* The others are notified, and none of them waits for ever. */
TEST_IN(programs, test_a_kernel_fails_on_one_rank) {
    static job j;
    static const char *const options[] = {"--backend nccl --epochs 100000", "--backend shm --epochs 100000"};
    for (int i = 0; i < 2; i++) {
        start_job(&j, "CUDA_ON_CPU_FAIL=kernel:90:700", options[i]);
        expect_rank(&j, 1, 1, "cudaErrorIllegalAddress");
        expect_rank(&j, 0, 3, "rank 1 ");
    }
}

TEST_IN(programs, test_nccl_of_another_version) {
    static job j;
    start_job(&j, "NCCL_ON_CPU_VERSION=22304", "--backend nccl --steps 4");
    expect_rank(&j, 0, 1, "rank 1 has 2.23.4");
    expect_rank(&j, 1, 1, "rank 1 has 2.23.4");
}

TEST_IN(programs, test_nccl_does_not_come_up) {
    static job j;
    start_job(&j, "CUDA_ON_CPU_FAIL=ncclCommInitRankConfig:1:7", "--backend nccl --steps 4 --timeout 1");
    expect_rank(&j, 0, 3, "NCCL did not initialize within 1 s");
    expect_rank(&j, 1, 3, "NCCL did not initialize within 1 s");
}

/* A folder with ls_cuda.so (and its dependencies), but without ls_nccl.so. */
static const char *plugins_without_nccl(void) {
    static const char *const files[] = {"ls_cuda.so", "libcuda_on_cpu.so"};
    static char setting[4096];
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", getenv("LS_PLUGINS"), files[i]);
        if (access(scratch_path(files[i]), F_OK) != 0) assert_int_equal(symlink(path, scratch_path(files[i])), 0);
    }
    snprintf(setting, sizeof setting, "LS_PLUGINS=%s", scratch_folder());
    return setting;
}

TEST_IN(programs, test_nccl_is_not_there) {
    static job j;
    const char *without = plugins_without_nccl();
    start_job(&j, without, "--backend nccl --steps 4");
    expect_rank(&j, 0, 1, "--backend nccl needs NCCL, but rank 1 cannot use NCCL; use --backend shm instead");
    expect_rank(&j, 1, 1, "--backend nccl needs NCCL, but there is no ");
    static program p;
    program_run(&p, "CUDA_ON_CPU_DEVICES=2 %s dp_train --replicate nccl " SMALL, without);
    assert_int_equal(p.status, 1);
    assert_non_null(strstr(p.err_text, "NCCL cannot be used: there is no "));
}

/* Each rank has a GPU of its own, though each sees it as GPU 0. */
TEST_IN(programs, test_the_reason_for_staging_is_the_true_one) {
    static job j;
    const char *without = plugins_without_nccl();
    j.port = free_port();
    for (int r = 0; r < RANKS; r++) {
        program_start(&j.ranks[r],
                      "RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                      "LS_JOB_TOKEN=secret CUDA_ON_CPU_DEVICES=2 CUDA_VISIBLE_DEVICES=%d %s ddp_train --no-evaluate "
                      "--model mlp:784,8,10 "
                      "--batch-size 8 --steps 4",
                      r, r, j.port, r, without);
    }
    expect_rank(&j, 0, 0, "staged through host memory, without NCCL: there is no ");
    assert_int_equal(program_finish(&j.ranks[1]), 0);
    assert_string_equal(j.ranks[1].err_text, "");
    /* the ranks share a GPU that they see under different numbers */
    j.port = free_port();
    for (int r = 0; r < RANKS; r++) {
        start_rank(&j, r, r == 0 ? "CUDA_VISIBLE_DEVICES=1,0" : "CUDA_VISIBLE_DEVICES=0,1",
                   "--steps 4 --backend nccl --device-ids 0,1");
    }
    for (int r = 0; r < RANKS; r++) expect_rank(&j, r, 2, "a GPU per rank, but ranks 0 and 1 share GPU 0;");
}

/* --spawn adds a line that names the rank and its error. */
TEST_IN(programs, test_a_launcher_tells_whose_failure_it_was) {
    static program p;
    program_run(&p, "CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=ncclAllReduce:2:3 ddp_train --spawn 2 " SMALL);
    assert_int_equal(p.status, 1);
    assert_non_null(strstr(p.err_text, "ddp_train: error: rank "));
    assert_non_null(strstr(p.err_text, "internal error"));
    program_run(&p, "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=kernel:40:700 ddp_train --spawn 2 " SMALL);
    assert_int_equal(p.status, 1);
    assert_non_null(strstr(p.err_text, "ddp_train: error: rank "));
    assert_non_null(strstr(p.err_text, "cudaErrorIllegalAddress"));
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
