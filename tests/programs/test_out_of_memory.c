/* One rank of several runs out of memory: on its device, in its address space, or in its cgroup. It reports that if it
 * still can; otherwise the launcher names the signal. The others end with it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

enum { VICTIM = 1 };

#define MODEL " --model mlp:784,64,10 --batch-size 60 --quiet --timeout 50 "

/* Starts three ranks; the victim first runs `first`, which may set OWN, options for it alone. */
static void start_ranks(program *p, const char *first, const char *options) {
    char script[5000];
    int length = snprintf(script, sizeof script, "if [ $RANK = %d ]; then %s; fi\nexec %s/ddp_train" MODEL "%s $OWN\n",
                          VICTIM, first, build_folder(), options);
    assert_in_range(length, 1, sizeof script - 1);
    scratch_write("script", script, (size_t)length);
    program_start(p, "ddprun --nproc-per-node 3 --grace 5 /bin/sh %s", scratch_path("script"));
}

/* Status 1. The launcher's line, the last one, names the victim and the cause; before it are the victim's line, if it
 * could print one, and one of the others. */
static void expect_named(const program *p, const char *cause) {
    char wanted[40];
    const char *last = p->err_text;
    for (const char *end; (end = strchr(last, '\n')) && end[1];) last = end + 1;
    snprintf(wanted, sizeof wanted, "ddprun: error: rank %d (pid ", VICTIM);
    bool good = p->status == 1 && strncmp(last, wanted, strlen(wanted)) == 0 && strstr(last, cause);
    if (!good || count_text(p->err_text, ": error: ") > 3)
        fail_msg("'%s': status %d: %s", cause, p->status, p->err_text);
}

/* --- device memory ------------------------------------------------------------------------------------------------ */

/* Sizes from too small for the parameters to too small for an evaluation, and then large enough. */
TEST_IN(programs, test_a_rank_whose_device_is_too_small) {
    static program p;
    bool started = false, trained = false;
    for (int kib = 100; kib < 1100; kib += 80) {
        char own[64];
        snprintf(own, sizeof own, "OWN='--device-memory %dK'", kib);
        start_ranks(&p, own, "--device-kind cpu --epochs 1");
        if (program_finish(&p) == 0) {
            trained = true;
            continue;
        }
        assert_false(trained); /* a larger size is also large enough */
        started = started || strstr(p.out_text, "DistributedDataParallel on 3");
        expect_named(&p, " exited with status 1: device 1 is out of memory: ");
    }
    assert_true(started && trained);
}

/* --- address space ------------------------------------------------------------------------------------------------ */

/* As if the machine ran out of memory during a run. The steps need no more memory, but the end of the run does: the
 * hash of the weights, and the trace. The C library must not reuse freed memory (MALLOC_MMAP_THRESHOLD_). */
TEST_IN(programs, test_a_rank_that_gets_no_more_memory) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* a sanitizer aborts if an allocation fails */
#endif
    static const char *const options[] = {"--model mlp:784,3000,10 --optimizer sgd --epochs 6",
                                          "--epochs 30 --trace %s --trace-steps 300"};
    static const struct rlimit none = {1 << 20, 1 << 20};
    static program p;
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        char text[700];
        snprintf(text, sizeof text, options[i], scratch_path("output"));
        start_ranks(&p, "export MALLOC_MMAP_THRESHOLD_=65536", text);
        program_await(&p, "\nepoch "); /* by now it has all memory for a step, including the stack */
        assert_int_equal(prlimit(program_rank(&p, VICTIM), RLIMIT_AS, &none, NULL), 0);
        program_finish(&p);
        expect_named(&p, " exited with status 1: cannot allocate memory ");
    }
}

/* --- cgroup memory ------------------------------------------------------------------------------------------------ */

static bool write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    bool written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && written;
}

/* Creates a cgroup with little memory, of either version; false if this process may not. */
static bool make_cgroup(char *group, size_t capacity) {
    static const char *const places[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                            {"/sys/fs/cgroup", "memory.max"}};
    char limit[200];
    for (int i = 0; i < 2; i++) {
        snprintf(group, capacity, "%s/lockstep-test-%d", places[i][0], (int)getpid());
        snprintf(limit, sizeof limit, "%s/%s", group, places[i][1]);
        if (mkdir(group, 0755) != 0) continue;
        if (access(limit, W_OK) == 0 && write_text(limit, "40000000")) return true;
        rmdir(group);
    }
    return false;
}

/* The kernel kills only that rank. */
TEST_IN(programs, test_a_rank_that_the_kernel_kills_for_memory) {
    static program p;
    char group[120], join[200];
    if (!make_cgroup(group, sizeof group)) {
        print_message("skip: this process may not make a cgroup\n");
        skip();
    }
    snprintf(join, sizeof join, "echo $$ >%s/cgroup.procs && OWN='--seed 0'", group);
    start_ranks(&p, join, "--model mlp:784,8000,10 --batch-size 600 --steps 1000 --no-evaluate");
    program_finish(&p);
    assert_int_equal(rmdir(group), 0);
    expect_named(&p, " was ended by signal 9 (Killed)");
    assert_null(strstr(p.err_text, "rank 0 died"));
    assert_null(strstr(p.err_text, "rank 2 died"));
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
