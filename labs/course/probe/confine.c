/* confine — a seccomp filter over the probe's own process.
 *   idea   : a classic BPF program checks each system call's number and for some calls one argument. Only the calls in
 *            the tables below are executed. A forbidden one raises SIGSYS, whose handler writes the call to the report
 *            and ends the process; any other fails with ENOSYS, so that a C library falls back to an older call.
 *            Threads inherit the filter; nothing can remove it
 *   cost   : up to a hundred comparisons a system call, which the kernel compiles
 *   extend : a call that a probe needs is a row of ALLOWED_CALLS
 *   fails  : a body that replaces the handler continues, but its system call has not been executed
 *   report : observations are written by writev, only to that file. write() is for standard output and error: otherwise
 *            a body with a FILE could change its descriptor and forge observations
 *   clone3 : its flags are in memory, which a filter cannot read: it fails with ENOSYS, and the C library uses clone
 *   code   : memory may become executable, which oneDNN's kernels and dlopen need; no student code can ask for it, since
 *            its calls are listed (labs/course/may_use) */
#define _GNU_SOURCE
#include "labs/course/probe/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int report_fd = -1;

/* X(system call): calls that probes, the C library and AddressSanitizer need; the frequent ones first. */
#ifdef __NR_open
#define ALLOWED_OLD_CALLS(X) X(stat) X(lstat) X(access) X(readlink) X(poll) X(getrlimit) X(time) X(getdents)
#else
#define ALLOWED_OLD_CALLS(X)
#endif
/* clang-format off */
#define ALLOWED_CALLS(X)                                                                                               \
    X(futex) X(sched_yield) X(read) X(close) X(mmap) X(munmap) X(mremap) X(mprotect) X(madvise) X(brk) X(mincore)      \
    X(fstat) X(newfstatat) X(statx) X(statfs) X(fstatfs) X(faccessat) X(faccessat2) X(readlinkat) X(getcwd)            \
    X(getdents64) X(lseek) X(readv) X(pread64) X(ppoll)                                                                \
    X(exit) X(exit_group) X(set_tid_address) X(set_robust_list) X(get_robust_list) X(rseq) X(membarrier) X(restart_syscall) \
    X(gettid) X(getpid) X(getppid) X(getuid) X(geteuid) X(getgid) X(getegid)                                           \
    X(sched_getaffinity) X(sched_setaffinity) X(sched_getparam) X(sched_getscheduler) X(sched_getattr)                 \
    X(sched_get_priority_max) X(sched_get_priority_min) X(getcpu) X(getpriority) X(get_mempolicy) X(mbind)             \
    X(set_mempolicy)                                                                                                   \
    X(rt_sigaction) X(rt_sigprocmask) X(rt_sigreturn) X(rt_sigpending) X(sigaltstack)                                  \
    X(clock_gettime) X(clock_getres) X(clock_nanosleep) X(nanosleep) X(gettimeofday)                                   \
    X(getrandom) X(getrusage) X(times) X(sysinfo) X(uname) ALLOWED_OLD_CALLS(X)
/* clang-format on */

/* X(system call, its effect in words): calls that end the probe. */
#ifdef __NR_fork
#define OLD_CALLS(X)                                                                                                   \
    X(fork, "start a process")                                                                                         \
    X(vfork, "start a process")                                                                                        \
    X(creat, "write a file")                                                                                           \
    X(unlink, "remove a file")                                                                                         \
    X(rmdir, "remove a folder")                                                                                        \
    X(mkdir, "make a folder")                                                                                          \
    X(rename, "rename a file")                                                                                         \
    X(renameat, "rename a file")
#else
#define OLD_CALLS(X)
#endif
#define FORBIDDEN_CALLS(X)                                                                                             \
    OLD_CALLS(X)                                                                                                       \
    X(execve, "start a program")                                                                                       \
    X(execveat, "start a program")                                                                                     \
    X(unlinkat, "remove a file")                                                                                       \
    X(renameat2, "rename a file")                                                                                      \
    X(mkdirat, "make a folder")                                                                                        \
    X(truncate, "write a file")                                                                                        \
    X(ftruncate, "write a file")                                                                                       \
    X(pwrite64, "write a file")                                                                                        \
    X(pwritev, "write a file")                                                                                         \
    X(openat2, "open a file")                                                                                          \
    X(io_uring_setup, "open a file")                                                                                   \
    X(socket, "open a connection")                                                                                     \
    X(ptrace, "look into a process")                                                                                   \
    X(process_vm_readv, "look into a process")                                                                         \
    X(process_vm_writev, "look into a process")                                                                        \
    X(kill, "send a signal")                                                                                           \
    X(tkill, "send a signal")                                                                                          \
    X(rt_sigqueueinfo, "send a signal")                                                                                \
    X(rt_tgsigqueueinfo, "send a signal")                                                                              \
    X(pidfd_send_signal, "send a signal")                                                                              \
    X(setsid, "leave its session")                                                                                     \
    X(setpgid, "leave its group")

/* Calls that are allowed depending on one argument. */
#define JUDGED_CALLS(X)                                                                                                \
    X(clone, "start a process")                                                                                        \
    X(tgkill, "send a signal")                                                                                         \
    X(write, "write a file")                                                                                           \
    X(writev, "write a file")                                                                                          \
    X(openat, "write a file")
#ifdef __NR_open
#define JUDGED_OLD_CALLS(X) X(open, "write a file")
#else
#define JUDGED_OLD_CALLS(X)
#endif

static const struct {
    int number;
    const char *what;
} calls[] = {
#define CALL_ROW(name, what) {__NR_##name, what " (" #name ")"},
    FORBIDDEN_CALLS(CALL_ROW) JUDGED_CALLS(CALL_ROW) JUDGED_OLD_CALLS(CALL_ROW)
#undef CALL_ROW
};

ssize_t probe_write(int fd, const char *text, size_t nbytes) {
    return writev(fd, &(struct iovec){.iov_base = (void *)(uintptr_t)text, .iov_len = nbytes}, 1);
}

static void on_forbidden(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    char line[128];
    const char *what = "make a system call that is closed to it";
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (calls[i].number == info->si_syscall) what = calls[i].what;
    int nbytes = snprintf(line, sizeof line, "forbidden\t%s\n", what);
    (void)!probe_write(report_fd, line, (size_t)nbytes);
    _exit(1);
}

#if defined __x86_64__
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef THIS_ARCH
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define IF_EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define IF_ABOVE(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (value), (yes), (no))
#define IF_ANY_BIT(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), (yes), (no))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, (action))
#define ALLOW(name) IF_EQUAL(__NR_##name, 0, 1), RETURN(SECCOMP_RET_ALLOW),
#define FORBID(name, what) IF_EQUAL(__NR_##name, 0, 1), RETURN(SECCOMP_RET_TRAP),
/* Checks `bits` of argument `index`, whose lower half comes first in memory. */
#define JUDGE(name, index, bits, if_set, if_clear)                                                                     \
    IF_EQUAL(__NR_##name, 0, 4), LOAD(args[index]), IF_ANY_BIT((bits), 0, 1), RETURN(if_set), RETURN(if_clear),
/* Allows the call if argument 0 is one of the standard streams. */
#define JUDGE_STREAM(name)                                                                                             \
    IF_EQUAL(__NR_##name, 0, 4), LOAD(args[0]), IF_ABOVE(STDERR_FILENO, 0, 1), RETURN(SECCOMP_RET_TRAP),               \
        RETURN(SECCOMP_RET_ALLOW),
/* Allows the call if argument `index` has that value; otherwise `if_not`. */
#define JUDGE_VALUE(name, index, value, if_not)                                                                        \
    IF_EQUAL(__NR_##name, 0, 4), LOAD(args[index]), IF_EQUAL((uint32_t)(value), 0, 1), RETURN(SECCOMP_RET_ALLOW),      \
        RETURN(if_not),
/* Allows the call if argument `index` is in from .. to. */
#define JUDGE_RANGE(name, index, from, to)                                                                             \
    IF_EQUAL(__NR_##name, 0, 5), LOAD(args[index]), IF_ABOVE((from)-1, 0, 2), IF_ABOVE((to), 1, 0),                    \
        RETURN(SECCOMP_RET_ALLOW), RETURN(ABSENT),
#define ABSENT (SECCOMP_RET_ERRNO | ENOSYS)
#define WRITES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)

static bool filter(void) {
    struct sock_filter program[] = {
        LOAD(arch), IF_EQUAL(THIS_ARCH, 1, 0), RETURN(SECCOMP_RET_TRAP), LOAD(nr),
        /* clang-format off */
        JUDGE_VALUE(writev, 0, report_fd, SECCOMP_RET_TRAP)
        JUDGE_STREAM(write)
        ALLOWED_CALLS(ALLOW)
        FORBIDDEN_CALLS(FORBID)
        JUDGE_VALUE(tgkill, 0, getpid(), SECCOMP_RET_TRAP) /* as for abort() */
        JUDGE(clone, 0, CLONE_THREAD, SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP)
        JUDGE(openat, 2, WRITES, SECCOMP_RET_TRAP, SECCOMP_RET_ALLOW)
#ifdef __NR_open
        JUDGE(open, 1, WRITES, SECCOMP_RET_TRAP, SECCOMP_RET_ALLOW)
#endif
        JUDGE_RANGE(fcntl, 1, F_GETFD, F_SETFL) /* flags, but no other descriptor */
        JUDGE_VALUE(ioctl, 1, TCGETS, ABSENT)
        JUDGE_VALUE(prctl, 0, PR_SET_NAME, ABSENT)
        JUDGE_VALUE(prlimit64, 2, 0, ABSENT) /* reads limits */
        RETURN(ABSENT),
        /* clang-format on */
    };
    struct sock_fprog whole = {.len = sizeof program / sizeof program[0], .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0;
}
#else
static bool filter(void) { return false; }
#endif

bool probe_confine(int fd) {
    report_fd = fd;
    struct sigaction action = {.sa_sigaction = on_forbidden, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    return filter();
}

bool probe_can_confine(void) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) _exit(filter() && getpid() > 0 ? 0 : 1);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
