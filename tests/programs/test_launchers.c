/* Programs started by other launchers, which are not installed: this test sets their variables. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ddp_procs/launch/rank.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static const char *const training = "--model mlp:784,16,10 --steps 3 --no-evaluate --quiet";

/* --- ranks ------------------------------------------------------------------------------------------------------------ */

/* Starts two ranks, whose environment begins with `format`, in which %d is the rank and %s the job; both succeed, and
 * only rank 0 prints the hash of their weights. */
static void run_two(const char *job, const char *format, char hash[PROGRAM_HASH + 1]) {
    static program ranks[2];
    for (int r = 0; r < 2; r++) {
        char environment[512];
        snprintf(environment, sizeof environment, format, r, r, job);
        program_start(&ranks[r], "%s LS_JOB_TOKEN=secret ddp_train %s", environment, training);
    }
    for (int r = 0; r < 2; r++) {
        if (program_finish(&ranks[r]) != 0) fail_msg("rank %d, %s: %s", r, format, ranks[r].err_text);
        assert_string_equal(ranks[r].err_text, "");
    }
    assert_string_equal(ranks[1].out_text, "");
    program_read_hash(&ranks[0], hash);
}

static int listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 4) == 0) return fd;
    close(fd);
    return -1;
}

/* Like torchrun's agent: listens on a port, next to which there is a free one for the ranks. */
static int start_agent(int *port) {
    for (int attempt = 0; attempt < 100; attempt++) {
        *port = 20000 + (int)((getpid() * 7 + attempt * 13) % 9000);
        int agent = listen_on(*port), beside = listen_on(*port + DDP_AGENT_PORT_OFFSET);
        if (beside >= 0) close(beside);
        if (agent >= 0 && beside >= 0) return agent;
        if (agent >= 0) close(agent);
    }
    fail_msg("no free ports");
    return -1;
}

TEST_IN(programs, test_ranks_of_other_launchers) {
    static program alone;
    char wanted[PROGRAM_HASH + 1], hash[PROGRAM_HASH + 1], job[64], torchrun[256];
    assert_int_equal(program_run(&alone, "ddp_train --spawn 2 %s", training), 0);
    program_read_hash(&alone, wanted);
    snprintf(job, sizeof job, "test-%d", (int)getpid());

    run_two(job,
            "OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_LOCAL_RANK=%d PMIX_NAMESPACE=%s OMPI_COMM_WORLD_SIZE=2 "
            "OMPI_COMM_WORLD_LOCAL_SIZE=2",
            hash);
    assert_string_equal(hash, wanted);
    run_two(job, "PMI_RANK=%d MPI_LOCALRANKID=%d PMI_SIZE=2 MPI_LOCALNRANKS=2", hash);
    assert_string_equal(hash, wanted);
    run_two(job,
            "SLURM_PROCID=%d SLURM_LOCALID=%d SLURM_JOB_ID=%s SLURM_STEP_ID=0 SLURM_NTASKS=2 "
            "SLURM_STEP_TASKS_PER_NODE=2",
            hash);
    assert_string_equal(hash, wanted);

    int port, agent = start_agent(&port);
    snprintf(torchrun, sizeof torchrun,
             "RANK=%%d LOCAL_RANK=%%d TORCHELASTIC_RUN_ID=%%s WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
             "MASTER_PORT=%d TORCHELASTIC_USE_AGENT_STORE=True",
             port);
    run_two(job, torchrun, hash);
    assert_string_equal(hash, wanted);
    close(agent);
}

/* Fewer files than a job needs: one line, whichever rank notices first, and no wait for a deadline. */
TEST_IN(programs, test_too_few_files) {
    static program p;
    struct rlimit limit, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = (struct rlimit){20, limit.rlim_max};
    char line[256];
    snprintf(line, sizeof line,
             "RANK=0 WORLD_SIZE=12 LOCAL_RANK=0 LOCAL_WORLD_SIZE=12 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
             "ddp_train --batch-size 60",
             free_port());
    const char *const lines[] = {"ddp_train --spawn 8", line};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        program_start(&p, "%s", lines[i]);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(program_finish(&p), 1);
        assert_int_equal(count_lines(p.err_text), 1);
        if (!strstr(p.err_text, "error: too many open files: ")) fail_msg("%s: %s", lines[i], p.err_text);
    }
}

/* --- copies ----------------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_copies_are_refused) {
    static const struct {
        const char *line;
        int status;
        const char *text;
    } cases[] = {
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 dp_train", 2,
         "dp_train: error: mpirun has started 4 copies of this program (OMPI_COMM_WORLD_SIZE), and each would train "
         "the "
         "whole thing: start dp_train by itself, or let the launcher start ddp_train\n"},
        {"RANK=0 WORLD_SIZE=2 dp_train --single", 2, "a launcher has started 2 copies of this program (WORLD_SIZE)"},
        {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 dp_train --device-kind meta", 2, "srun has started 2 copies"},
        {"PMI_RANK=1 PMI_SIZE=2 ddp_train --spawn 2", 2, "mpiexec has started 2 copies of this program (PMI_SIZE)"},
        {"PMI_RANK=1 PMI_SIZE=2 ddprun --nproc-per-node 2 ddp_train", 2, "each would start ranks of its own"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
         "ddp_train",
         1, "mpirun runs 2 ranks, 1 of them on this machine, but does not tell where they meet"},
    };
    static program p;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(program_run(&p, "%s --steps 1 --save %s", cases[i].line, scratch_path("weights")),
                         cases[i].status);
        assert_string_equal(p.out_text, "");
        assert_int_equal(count_lines(p.err_text), 1);
        if (!strstr(p.err_text, cases[i].text)) fail_msg("'%s' is not in: %s", cases[i].text, p.err_text);
    }
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 2 dp_train --steps 1"), 2);
    assert_string_equal(p.out_text, "");
    assert_non_null(strstr(p.err_text, "ddprun has started 2 copies of this program (WORLD_SIZE)"));
    assert_int_equal(scratch_file_count(), 0);
    /* a single copy is not refused; a batch job's script is not a task of srun */
    assert_int_equal(program_run(&p, "PMI_RANK=0 PMI_SIZE=1 dp_train %s", training), 0);
    assert_int_equal(program_run(&p, "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=5 dp_train %s", training), 0);
}

/* --- descriptors of a launcher --------------------------------------------------------------------------------------- */

/* Runs a program that fails, with the pipe as LS_CAUSE_FD; returns its output to the pipe. */
static const char *fail_beside_pipe(const char *variables, int write_fd, int read_fd) {
    static program p;
    static char text[4096];
    assert_int_equal(program_run(&p, "LS_CAUSE_FD=%d %s dp_train --single --model none", write_fd, variables), 2);
    assert_int_equal(count_lines(p.err_text), 1);
    ssize_t got = read(read_fd, text, sizeof text - 1);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

/* The variables may be left over from another job, and the number may be that of the user's own pipe, or of a file that
 * the program opens. */
TEST_IN(programs, test_an_error_goes_to_no_file_that_is_not_the_launchers) {
    static program p;
    int fds[2];
    struct stat info;
    char inode[64];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fstat(fds[1], &info), 0);
    assert_string_equal(fail_beside_pipe("", fds[1], fds[0]), "");
    assert_string_equal(fail_beside_pipe("LS_CAUSE_INODE=1", fds[1], fds[0]), "");
    snprintf(inode, sizeof inode, "LS_CAUSE_INODE=%llu", (unsigned long long)info.st_ino);
    assert_non_null(strstr(fail_beside_pipe(inode, fds[1], fds[0]), "unknown model"));
    close(fds[0]);
    close(fds[1]);
    for (int fd = 3; fd < 12; fd++) {
        program_run(&p, "LS_CAUSE_FD=%d dp_train %s --single --optimizer sgd --lr 1e30 --metrics %s", fd, training,
                    scratch_path("metrics"));
        assert_int_equal(p.status, 1);
        char *lines = scratch_read_text("metrics");
        if (strstr(lines, "finite")) fail_msg("descriptor %d: %s", fd, lines);
        free(lines);
    }
}

int main(void) {
    alarm(150);
    return run_added_tests();
}
