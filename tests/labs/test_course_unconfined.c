/* The grader on a kernel without seccomp filters: it reports in one line that the code is not confined, and refuses to
 * grade a class. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program p;

/* From here on this process and its children cannot set a filter. */
static bool forbid_filters(void) {
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof instructions / sizeof *instructions, .filter = instructions};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Runs `act` in a child that cannot set filters; returns the child's exit status. */
static int run_without_filters(int (*act)(void)) {
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(forbid_filters() ? act() : 99);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int ask(void) { return program_run(&p, "grade --confines"); }

TEST_IN(programs, the_grader_finds_out_whether_it_can_confine) {
    assert_int_equal(ask(), 0);
    assert_int_equal(run_without_filters(ask), 1);
}

static int grade_true(void) {
    program_run(&p, "grade --lab=labs/03-allreduce --student=/bin/true --reference=/bin/true");
    return strstr(p.out_text, "nothing confines the code that is graded here") != NULL;
}

TEST_IN(programs, that_nothing_confines_is_said) {
    assert_int_equal(grade_true(), 0);
    assert_int_equal(run_without_filters(grade_true), 1);
}

static int grade_a_class(void) {
    char command[1024];
    snprintf(command, sizeof command,
             "BUILD=%s COURSE_REFERENCE=%s LS_STOPPABLE=labs/course/class.sh labs/course/class.sh %s %s 03 2>%s",
             build_folder(), scratch_folder(), scratch_folder(), scratch_path("graded"), scratch_path("message"));
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_IN(programs, a_class_is_not_graded_unconfined) {
    assert_int_equal(run_without_filters(grade_a_class), 2);
    char *message = scratch_read_text("message");
    assert_non_null(strstr(message, "seccomp"));
    free(message);
    assert_int_equal(access(scratch_path("graded"), F_OK), -1);
}
