/* confine — a seccomp filter over the probe's own process.
 *   idea  : a classic BPF program looks at each system call's number and, where that decides, at one argument. What is
 *           forbidden raises SIGSYS, whose handler writes down what it was and ends the process. Threads inherit the
 *           filter; nothing can remove it
 *   cost  : some ten comparisons a system call
 *   fails : a body that replaces the handler goes on without its system call having happened
 *   seen  : what the probe saw goes out by writev. write() is for standard output and error: a body that has got a FILE
 *           would otherwise only have to change its descriptor to write down what it likes
 *   clone3: its flags lie in memory, where a filter cannot look: it "does not exist", and the C library takes clone */
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
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int report_fd = -1;

/* X(system call, what it would have done) */
#ifdef __NR_fork
#define OLD_CALLS(X)                                                                                                   \
    X(fork, "start a process")                                                                                         \
    X(vfork, "start a process")                                                                                        \
    X(creat, "write a file")                                                                                           \
    X(unlink, "remove a file")                                                                                         \
    X(rmdir, "remove a folder")                                                                                        \
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
    X(truncate, "write a file")                                                                                        \
    X(openat2, "open a file")                                                                                          \
    X(io_uring_setup, "open a file")                                                                                   \
    X(ptrace, "look into a process")                                                                                   \
    X(process_vm_readv, "look into a process")                                                                         \
    X(process_vm_writev, "look into a process")                                                                        \
    X(kill, "send a signal")                                                                                           \
    X(tkill, "send a signal")                                                                                          \
    X(rt_sigqueueinfo, "send a signal")                                                                                \
    X(rt_tgsigqueueinfo, "send a signal")                                                                              \
    X(pidfd_send_signal, "send a signal")                                                                              \
    X(setsid, "leave its session")

/* Calls that are judged by one argument. */
#define JUDGED_CALLS(X)                                                                                                \
    X(clone, "start a process")                                                                                        \
    X(tgkill, "send a signal")                                                                                         \
    X(write, "write a file")                                                                                           \
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
#define FORBID(name, what) IF_EQUAL(__NR_##name, 0, 1), RETURN(SECCOMP_RET_TRAP),
/* Of these calls: argument `index`, whose lower half lies first, and the bits that decide. */
#define JUDGE(name, index, bits, if_set, if_clear)                                                                     \
    IF_EQUAL(__NR_##name, 0, 4), LOAD(args[index]), IF_ANY_BIT((bits), 0, 1), RETURN(if_set), RETURN(if_clear),
/* Of this one: whether argument 0 is one of the standard streams. */
#define JUDGE_STREAM(name)                                                                                             \
    IF_EQUAL(__NR_##name, 0, 4), LOAD(args[0]), IF_ABOVE(STDERR_FILENO, 0, 1), RETURN(SECCOMP_RET_TRAP),               \
        RETURN(SECCOMP_RET_ALLOW),
/* And of this one: whether argument 0 is this process, as for abort(). */
#define JUDGE_TARGET(name)                                                                                             \
    IF_EQUAL(__NR_##name, 0, 4), LOAD(args[0]), IF_EQUAL((uint32_t)getpid(), 0, 1), RETURN(SECCOMP_RET_ALLOW),         \
        RETURN(SECCOMP_RET_TRAP),

static bool filter(void) {
    struct sock_filter program[] = {
        LOAD(arch),
        IF_EQUAL(THIS_ARCH, 1, 0),
        RETURN(SECCOMP_RET_TRAP),
        LOAD(nr),
        FORBIDDEN_CALLS(FORBID) IF_EQUAL(__NR_clone3, 0, 1),
        RETURN(SECCOMP_RET_ERRNO | ENOSYS),
        JUDGE_STREAM(write) JUDGE_TARGET(tgkill) JUDGE(clone, 0, CLONE_THREAD, SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP)
            JUDGE(openat, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, SECCOMP_RET_TRAP, SECCOMP_RET_ALLOW)
#ifdef __NR_open
                JUDGE(open, 1, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, SECCOMP_RET_TRAP, SECCOMP_RET_ALLOW)
#endif
                    RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog whole = {.len = sizeof program / sizeof program[0], .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0;
}
#else
static bool filter(void) { return false; }
#endif

void probe_confine(int fd) {
    report_fd = fd;
    struct sigaction action = {.sa_sigaction = on_forbidden, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    (void)!filter();
}
