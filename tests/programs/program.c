#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

enum { WORDS_MAX = 64, NAMES_CAPACITY = 16384 };

static char shared_memory_before[NAMES_CAPACITY];

/* --- set-up and clean-up of a test ----------------------------------------------------------------------------- */

/* The names in /dev/shm, each followed by a slash; except those of Open MPI, which other jobs on the machine may be
 * using. */
static void list_shared_memory(char names[NAMES_CAPACITY]) {
    size_t length = 0;
    names[0] = '\0';
    DIR *folder = opendir("/dev/shm");
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "vader_segment.", 14) == 0) continue;
        int added = snprintf(names + length, NAMES_CAPACITY - length, "%s/", entry->d_name);
        if (added > 0 && length + (size_t)added < NAMES_CAPACITY) length += (size_t)added;
    }
    closedir(folder);
}

static bool is_new_in_shared_memory(void) {
    char now[NAMES_CAPACITY];
    list_shared_memory(now);
    for (char *name = strtok(now, "/"); name; name = strtok(NULL, "/")) {
        char wanted[300];
        snprintf(wanted, sizeof wanted, "%s/", name);
        if (strstr(shared_memory_before, wanted)) continue;
        fprintf(stderr, "left in /dev/shm: %s\n", name);
        return true;
    }
    return false;
}

int programs_setup(void **state) {
    static const char *const launchers_variables[] = {"RANK",
                                                      "WORLD_SIZE",
                                                      "LOCAL_RANK",
                                                      "LOCAL_WORLD_SIZE",
                                                      "MASTER_ADDR",
                                                      "MASTER_PORT",
                                                      "LS_STORE",
                                                      "LS_JOB",
                                                      "LS_JOB_TOKEN",
                                                      "LS_CAUSE_FD",
                                                      "LS_CAUSE_INODE",
                                                      "LS_SAID_INODE",
                                                      "LS_SAID_FD",
                                                      "LS_CPU_STREAMS",
                                                      "TORCHELASTIC_RUN_ID",
                                                      "OMPI_COMM_WORLD_RANK",
                                                      "PMI_RANK",
                                                      "PMI_SIZE",
                                                      "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof launchers_variables / sizeof *launchers_variables; i++)
        unsetenv(launchers_variables[i]);
    /* In each of the thousand processes that these tests start, oneDNN generates the code of its matrix multiplies: 30
     * ms for AVX-512, 4 for SSE4.1. tests/kernels, tests/train and tests/parallel test the code that users run. */
    setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 0);
    list_shared_memory(shared_memory_before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return scratch_setup(state);
}

int programs_setup_to_compute(void **state) {
    int status = programs_setup(state);
    unsetenv("ONEDNN_MAX_CPU_ISA");
    return status;
}

/* Kills processes that are left, and fails if there are any. */
static bool any_process_left(void) {
    pid_t pid = waitpid(-1, NULL, WNOHANG);
    if (pid < 0 && errno == ECHILD) return false;
    fprintf(stderr, "a process was left behind\n");
    char path[64], children[4096] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    if (file && !fgets(children, sizeof children, file)) children[0] = '\0';
    if (file) fclose(file);
    for (char *child = strtok(children, " "); child; child = strtok(NULL, " ")) kill(atoi(child), SIGKILL);
    while (waitpid(-1, NULL, 0) > 0) continue;
    return true;
}

int programs_teardown(void **state) {
    bool left = any_process_left();
    left = is_new_in_shared_memory() || left;
    return scratch_teardown(state) != 0 || left ? -1 : 0;
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

const char *build_folder(void) {
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        assert_non_null(slash);
        *slash = '\0';
    }
    return path;
}

static bool is_program(const char *word) {
    static const char *const programs[] = {
        "dp_train",  "ddp_train",     "ddprun", "mkdigits",   "gpu_check",       "fit_tn",       "replay",    "hello",
        "who_gets",  "who_holds",     "grade",  "bench_comm", "bench_dp_vs_ddp", "bench_memory", "calibrate", "tables",
        "bench_gpt", "course_report", "flight", "who_hangs",  "visits",          "bench_launch", "plan"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(word, programs[i]) == 0) return true;
    return false;
}

static void arrange_streams(const char *how, const char *terminal) {
    if (how && strcmp(how, "full") == 0) dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
    if (how && strcmp(how, "closed") == 0) {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
    }
    if (terminal) dup2(open(terminal, O_RDWR | O_NOCTTY), STDERR_FILENO);
}

static void become(const program *p, char **words) {
    static char paths[2][PATH_MAX + 16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("TMPDIR", scratch_folder(), 1);
    for (; *words && strchr(*words, '='); words++) putenv(*words);
    for (int i = 0, found = 0; words[i] && found < 2; i++) {
        if (!is_program(words[i])) continue;
        snprintf(paths[found], sizeof paths[0], "%s/%s", build_folder(), words[i]);
        words[i] = paths[found++];
    }
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(p->out, STDOUT_FILENO);
    dup2(p->err, STDERR_FILENO);
    arrange_streams(getenv("STREAMS"), getenv("STDERR"));
    execv(words[0], words);
    _exit(126);
}

static void start(program *p, char *line) {
    char *words[WORDS_MAX + 1] = {NULL};
    int count = 0;
    for (char *word = strtok(line, " "); word && count < WORDS_MAX; word = strtok(NULL, " ")) words[count++] = word;
    memset(p, 0, sizeof *p);
    p->out = memfd_create("stdout", MFD_CLOEXEC);
    p->err = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(p->out >= 0 && p->err >= 0);
    fcntl(p->out, F_SETFL, O_APPEND); /* several processes write */
    fcntl(p->err, F_SETFL, O_APPEND);
    fflush(NULL);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) become(p, words);
}

static void start_formatted(program *p, const char *format, va_list arguments) {
    char line[4096];
    int length = vsnprintf(line, sizeof line, format, arguments);
    assert_in_range(length, 1, sizeof line - 1);
    start(p, line);
}

void program_start(program *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    start_formatted(p, format, arguments);
    va_end(arguments);
}

int program_run(program *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    start_formatted(p, format, arguments);
    va_end(arguments);
    return program_finish(p);
}

/* --- watching ----------------------------------------------------------------------------------------------------- */

static void read_text(int fd, char text[PROGRAM_TEXT_CAPACITY]) {
    ssize_t got = pread(fd, text, PROGRAM_TEXT_CAPACITY - 1, 0);
    text[got > 0 ? got : 0] = '\0';
}

static void read_texts(program *p) {
    read_text(p->out, p->out_text);
    read_text(p->err, p->err_text);
}

int program_finish(program *p) { return program_finish_within(p, PROGRAM_DEADLINE_S); }

int program_finish_within(program *p, double deadline_s) {
    int status = 0;
    bool in_time = true;
    double until_us = ls_now_us() + deadline_s * 1e6;
    while (waitpid(p->pid, &status, WNOHANG) == 0) {
        if (in_time && ls_now_us() > until_us) {
            in_time = false;
            kill(p->pid, SIGKILL);
        }
        usleep(2000);
    }
    read_texts(p);
    close(p->out);
    close(p->err);
    p->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (!in_time) fail_msg("no end within %g s; it said: %s%s", deadline_s, p->out_text, p->err_text);
    return p->status;
}

void program_await(program *p, const char *text) {
    double until_us = ls_now_us() + PROGRAM_DEADLINE_S * 1e6;
    for (;;) {
        read_texts(p);
        if (strstr(p->out_text, text)) return;
        siginfo_t end = {0};
        if (waitid(P_PID, (id_t)p->pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == p->pid)
            fail_msg("ended before '%s'; it said: %s%s", text, p->out_text, p->err_text);
        if (ls_now_us() > until_us) fail_msg("'%s' does not come: %s%s", text, p->out_text, p->err_text);
        usleep(2000);
    }
}

/* Reads a file of /proc/PID; returns the number of bytes, and appends a zero. */
static size_t read_proc(pid_t pid, const char *name, char *text, size_t capacity) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "r");
    size_t nbytes = file ? fread(text, 1, capacity - 1, file) : 0;
    if (file) fclose(file);
    text[nbytes] = '\0';
    return nbytes;
}

static bool is_rank_of(pid_t pid, pid_t parent, int rank) {
    static char text[65536];
    char wanted[32];
    int found_parent = 0;
    read_proc(pid, "stat", text, sizeof text);
    const char *behind_name = strrchr(text, ')');
    if (!behind_name || sscanf(behind_name, ") %*c %d", &found_parent) != 1 || found_parent != parent) return false;
    snprintf(wanted, sizeof wanted, "RANK=%d", rank);
    size_t nbytes = read_proc(pid, "environ", text, sizeof text);
    for (size_t at = 0; at < nbytes; at += strlen(text + at) + 1)
        if (strcmp(text + at, wanted) == 0) return true;
    return false;
}

pid_t program_rank(const program *launcher, int rank) {
    pid_t found = 0;
    DIR *processes = opendir("/proc");
    assert_non_null(processes);
    for (struct dirent *entry; found == 0 && (entry = readdir(processes));) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid > 0 && is_rank_of(pid, launcher->pid, rank)) found = pid;
    }
    closedir(processes);
    return found;
}

void programs_await_orphans(void) {
    double until_us = ls_now_us() + PROGRAM_DEADLINE_S * 1e6;
    while (waitpid(-1, NULL, WNOHANG) >= 0) {
        if (ls_now_us() > until_us) fail_msg("a process outlives its launcher");
        usleep(2000);
    }
}

/* --- traces ------------------------------------------------------------------------------------------------------- */

static void expect_elsewhere(const char *path) {
    bool own = strncmp(path, scratch_folder(), strlen(scratch_folder())) == 0 ||
               strncmp(path, build_folder(), strlen(build_folder())) == 0;
    bool unnamed = strncmp(path, "/memfd:", 7) == 0;
    bool shared = strncmp(path, "/tmp/", 5) == 0 || strncmp(path, "/dev/shm/", 9) == 0;
    if (shared && !own && !unnamed) fail_msg("the program uses %s", path);
}

void program_expect_no_named_files(pid_t pid) {
    char path[64], target[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        expect_elsewhere(target);
    }
    closedir(folder);
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    assert_non_null(maps);
    while (fgets(target, sizeof target, maps)) {
        char *name = strchr(target, '/');
        if (name) expect_elsewhere(name);
    }
    fclose(maps);
}

int program_take_failures(program *p) {
    int count = 0;
    for (char *line = p->err_text, *next; *line;) {
        next = strchr(line, '\n') ? strchr(line, '\n') + 1 : strchr(line, '\0');
        const char *failed = strstr(line, ") failed "), *rank = strstr(line, ": rank ");
        bool one = failed && failed < next && rank && rank < failed && !memmem(line, (size_t)(rank - line), " ", 1);
        bool others = memmem(line, (size_t)(next - line), " failed after it, ", strlen(" failed after it, ")) != NULL;
        if (one || others) {
            memmove(line, next, strlen(next) + 1);
            count++;
        } else {
            line = next;
        }
    }
    return count;
}

void program_expect_text(const program *p, const char *text) {
    if (!strstr(p->out_text, text)) fail_msg("'%s' is not in\n%s%s", text, p->out_text, p->err_text);
}

void program_read_hash(const program *p, char hash[PROGRAM_HASH + 1]) {
    const char *at = strstr(p->out_text, "weights ");
    assert_non_null(at);
    memcpy(hash, at + strlen("weights "), PROGRAM_HASH);
    hash[PROGRAM_HASH] = '\0';
}

int count_lines(const char *text) { return count_text(text, "\n"); }

/* Not a port that the system chooses: until a process listens there, the system could give the same port to another job
 * of the test, or to one end of a connection. Test programs that run at the same time begin at different ports. */
int free_port(void) {
    enum { FIRST = 10000, COUNT = 10000, OF_A_PROCESS = 37 };
    static int asked;
    for (;;) {
        int port = FIRST + (int)(((long)getpid() * OF_A_PROCESS + asked++) % COUNT);
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0 && asked < COUNT);
        bool taken = bind(fd, (struct sockaddr *)&address, sizeof address) != 0;
        close(fd);
        if (!taken) return port;
    }
}
