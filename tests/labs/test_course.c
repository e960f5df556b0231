/* The course's grader: calls that a probe may not make, and verdicts from two probes' lines. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/todo.h"
#include "labs/course/grade/lab.h"
#include "labs/course/grade/verdict.h"
#include "labs/course/probe/confine.h"
#include "tests/base/test.h"

/* --- confined ------------------------------------------------------------------------------------------------------ */

static void start_a_process(void) { (void)!fork(); }
static void start_a_program(void) { execl("/bin/true", "true", (char *)NULL); }
static void write_a_file(void) { (void)!open("seen", O_WRONLY | O_CREAT, 0600); }
static void remove_a_file(void) { unlink("seen"); }
static void signal_its_parent(void) { kill(getppid(), SIGUSR1); }
static void signal_its_parents_thread(void) { syscall(SYS_tgkill, getppid(), getppid(), SIGUSR1); }
static void queue_a_signal(void) { sigqueue(getppid(), SIGUSR1, (union sigval){0}); }
static void rename_a_file(void) { renameat(AT_FDCWD, "seen", AT_FDCWD, "other"); }
static void write_down_what_it_likes(void) {
    stderr->_fileno = dup(STDERR_FILENO);
    fputs("end\tsum\n", stderr);
}
static void remove_a_folder(void) { rmdir("seen"); }
static void make_a_folder(void) { mkdir("seen", 0700); }
static void open_a_connection(void) { (void)!socket(AF_UNIX, SOCK_STREAM, 0); }
static void write_in_vectors(void) {
    (void)!writev(STDIN_FILENO, &(struct iovec){.iov_base = (void *)(uintptr_t) "end", .iov_len = 3}, 1);
}
static void write_at_a_place(void) { (void)!pwrite(STDOUT_FILENO, "end", 3, 0); }

static void *nothing(void *argument) { return argument; }

static void be_good(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) _exit(2);
    int fd = open("/proc/self/status", O_RDONLY);
    if (fd < 0) _exit(3);
    close(fd);
    if (raise(0) != 0) _exit(4); /* like abort(): a signal to itself */
}

/* The output of a confined child; *ended: its exit status. */
static void confined(void (*act)(void), char *said, size_t capacity, int *ended) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!probe_confine(ends[1])) _exit(99);
        act();
        _exit(0);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], said, capacity - 1);
    said[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, ended, 0), pid);
}

/* glibc 2.41 (Debian 13) blocks all signals within fork, so that SIGSYS ends the process before it can report the
 * call. */
TEST(what_a_solution_has_no_need_of_is_told_and_ends_it) {
    static const struct {
        void (*act)(void);
        const char *said;
    } tries[] = {{start_a_process, "start a process"},
                 {start_a_program, "start a program"},
                 {write_a_file, "write a file"},
                 {remove_a_file, "remove a file"},
                 {write_down_what_it_likes, "write a file"},
                 {remove_a_folder, "remove a folder"},
                 {make_a_folder, "make a folder"},
                 {open_a_connection, "open a connection"},
                 {write_in_vectors, "write a file"},
                 {write_at_a_place, "write a file"},
                 {rename_a_file, "rename a file"},
                 {signal_its_parent, "send a signal"},
                 {signal_its_parents_thread, "send a signal"},
                 {queue_a_signal, "send a signal"}};
    char said[256];
    int ended;
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        confined(tries[i].act, said, sizeof said, &ended);
        if (WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSYS && tries[i].act == start_a_process) continue;
        assert_int_equal(strncmp(said, "forbidden\t", 10), 0);
        assert_non_null(strstr(said, tries[i].said));
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 1);
    }
}

/* None of these calls has a row in the filter's tables: each fails, as if the kernel did not have it. */
static void try_calls_that_no_table_lists(void) {
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
    int fds[2];
    if (dup(STDERR_FILENO) >= 0 || dup2(STDERR_FILENO, 9) >= 0) _exit(2);
    if (fcntl(STDERR_FILENO, F_DUPFD, 9) >= 0 || fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 9) >= 0) _exit(3);
    if (prctl(PR_SET_DUMPABLE, 1) == 0 || setrlimit(RLIMIT_CORE, &most) == 0) _exit(4);
    if (memfd_create("seen", 0) >= 0 || pipe(fds) == 0 || chdir("/") == 0 || chmod("/tmp", 01777) == 0) _exit(5);
    if (ioctl(STDERR_FILENO, FIONBIO, &(int){0}) == 0) _exit(6);
    if (errno != ENOSYS) _exit(7);
}

TEST(what_no_table_lists_does_not_happen) {
    char said[256];
    int ended;
    confined(try_calls_that_no_table_lists, said, sizeof said, &ended);
    assert_string_equal(said, "");
    assert_int_equal(WIFEXITED(ended) ? WEXITSTATUS(ended) : -1, 0);
}

TEST(threads_and_reading_are_allowed) {
    char said[256];
    int ended;
    confined(be_good, said, sizeof said, &ended);
    assert_string_equal(said, "");
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

/* --- verdicts ------------------------------------------------------------------------------------------------------ */

#define RIGHT "case\tN = 2\nsee\tthe sum\t3\ncase\tN = 3\nsee\tthe sum\t6\nend\tsum\n"

static void expect(attempt student, const char *seen, verdict wanted, const char *why) {
    told said;
    attempt reference = {.seen = (char *)(uintptr_t)RIGHT};
    student.seen = (char *)(uintptr_t)seen;
    assert_int_equal(verdict_of(&said, &student, &reference, NULL), wanted);
    assert_string_equal(said.text[WORDS_ENGLISH], why);
}

TEST(the_first_line_that_differs_is_the_case) {
    expect((attempt){0}, RIGHT, VERDICT_HELD, "");
    expect((attempt){0}, "case\tN = 2\nsee\tthe sum\t3\ncase\tN = 3\nsee\tthe sum\t5\nend\tsum\n", VERDICT_BROKEN,
           "N = 3: the sum: expected 6, got 5");
    expect((attempt){0}, "case\tN = 2\ncase\tN = 3\n", VERDICT_BROKEN, "N = 2: the sum is missing");
    expect((attempt){0}, "case\tN = 2\nforbidden\tstart a process (clone)\n", VERDICT_FORBIDDEN,
           "N = 2: it tried to start a process (clone), which a solution has no need of");
}

static void expect_near(const char *number, verdict wanted, const char *why) {
    char seen[128];
    told said;
    attempt reference = {.seen = (char *)(uintptr_t) "case\tN = 2\nsee\tthe sum\t0.3\t0.3\t1e-09\nend\tsum\n"};
    snprintf(seen, sizeof seen, "case\tN = 2\nsee\tthe sum\t%s\nend\tsum\n", number);
    assert_int_equal(verdict_of(&said, &(attempt){.seen = seen}, &reference, NULL), wanted);
    assert_string_equal(said.text[WORDS_ENGLISH], why);
}

/* 0.1 + 0.2 and 0.3 are the same sum; the bound is the reference's, whatever the student's line has. */
TEST(numbers_are_compared_with_the_references_bound) {
    expect_near("0.3\t0.30000000000000004\t1e-09", VERDICT_HELD, "");
    expect_near("0.299999999\t0.2999999991\t1e-20", VERDICT_HELD, "");
    expect_near("0.300000002\t0.300000002\t1", VERDICT_BROKEN, "N = 2: the sum: expected 0.3, got 0.300000002");
    expect_near("nan\tnan\tnan", VERDICT_BROKEN, "N = 2: the sum: expected 0.3, got nan");
    expect_near("inf\tinf\tinf", VERDICT_BROKEN, "N = 2: the sum: expected 0.3, got inf");
    expect_near("0.3", VERDICT_BROKEN, "N = 2: the sum: expected 0.3, got 0.3");
}

TEST(how_a_run_ended_counts_where_its_lines_end) {
    const char *half = "case\tN = 2\nsee\tthe sum\t3\ncase\tN = 3\n";
    expect((attempt){.signal = SIGSEGV}, half, VERDICT_BROKEN, "N = 3: it was ended by signal 11 (Segmentation fault)");
    expect((attempt){.timed_out = true, .signal = SIGKILL}, half, VERDICT_HUNG,
           "N = 3: it did not end, and was killed");
    expect((attempt){0}, half, VERDICT_BROKEN, "N = 3: it ended the program before the check was done");
    attempt todo = {.exit_status = LS_TODO_EXIT};
    snprintf(todo.said, sizeof todo.said, "lab 03: f is not written yet (f.c)\n");
    expect(todo, half, VERDICT_NOT_WRITTEN, "lab 03: f is not written yet (f.c)");
    expect((attempt){.left_processes = true}, RIGHT, VERDICT_FORBIDDEN, "it left processes behind, which were killed");
}

static void expect_report(const char *said, verdict wanted, const char *why) {
    static char seen[] = "case\tN = 2\n";
    static attempt student = {.seen = seen};
    told words;
    snprintf(student.said, sizeof student.said, "%s", said);
    assert_int_equal(verdict_of_memory(&words, &student), wanted);
    assert_string_equal(words.text[WORDS_ENGLISH], why);
}

TEST(memory_is_told_with_its_place) {
    expect_report("all is well\n", VERDICT_HELD, "");
    expect_report("==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602 at pc 0x55\nREAD of size 4\n"
                  "    #0 0x1 in __interceptor_memcpy ../../src/libsanitizer/x.cpp:8\n"
                  "    #1 0x2 in f build/code/common/f.c:31\n    #2 0x3 in main m.c:1\n",
                  VERDICT_BROKEN, "heap-buffer-overflow, at f.c:31");
    expect_report("==1==ERROR: AddressSanitizer: SEGV on unknown address 0x8\n", VERDICT_BROKEN,
                  "SEGV on unknown address 0x8");
    expect_report("a/b/f.c:7:3: runtime error: division by zero\n", VERDICT_BROKEN, "division by zero, at f.c:7:3");
}

TEST(without_a_look_at_memory_there_is_no_verdict) {
    static char nothing[] = "", seen[] = "case\tN = 2\n";
    told why;
    static attempt refused = {.exit_status = 1, .seen = nothing, .said = "==1==Perhaps you're using ulimit -v\n"};
    static const attempt late = {.timed_out = true, .signal = SIGKILL, .seen = seen};
    assert_int_equal(verdict_of_memory(&why, &refused), VERDICT_NOT_RUN);
    assert_string_equal(why.text[WORDS_ENGLISH], "it ended with status 1: ==1==Perhaps you're using ulimit -v");
    assert_int_equal(verdict_of_memory(&why, &late), VERDICT_HUNG);
}

/* --- lab.conf ------------------------------------------------------------------------------------------------------ */

static void read_lab(const char *folder, words_language language) {
    lab l;
    assert_int_equal(lab_open(&l, folder, language), LS_OK);
    assert_memory_equal(l.number, folder + strlen("labs/"), 2);
    assert_int_equal(l.number[2], '\0');
    assert_true(l.check_count >= 3);
    for (int c = 0; c < l.check_count; c++)
        assert_true(l.checks[c].points > 0 && *l.checks[c].words &&
                    (lab_find_hint(&l, l.checks[c].name, "") || strcmp(l.checks[c].name, LAB_MEMORY_CHECK) == 0));
    lab_close(&l);
}

TEST(every_lab_can_be_read) {
    glob_t confs;
    assert_int_equal(glob("labs/[0-9][0-9]-*/lab.conf", 0, NULL, &confs), 0);
    for (size_t i = 0; i < confs.gl_pathc; i++) {
        *strrchr(confs.gl_pathv[i], '/') = '\0';
        read_lab(confs.gl_pathv[i], WORDS_ENGLISH);
        read_lab(confs.gl_pathv[i], WORDS_CHINESE);
    }
    globfree(&confs);
}

/* Grading in a full checkout is refused if one differs. */
TEST(the_recorded_sums_are_those_of_the_tree) { assert_int_equal(system("labs/course/originals.sh check"), 0); }
