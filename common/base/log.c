#include "common/base/log.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log_once.h"

/* Written once, before the first thread starts. */
static struct {
    const char *program;
    int rank;
    bool quiet, verbose;
    int cause_fd;
} identity = {.program = "lockstep", .rank = -1, .cause_fd = -1};

static _Thread_local ls_log_sink capture;

/* ls_log_redirect */
static struct {
    pthread_mutex_t mutex; /* one line at a time */
    void (*take)(void *context, const char *line);
    void *context;
} redirected = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ls_log_hold */
static struct {
    pthread_mutex_t mutex;
    bool on; /* guarded by the mutex, as is the text */
    char first[1900];
} held = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A program may be started with stdin, stdout or stderr closed. The next file that it opens would then get that
 * descriptor, and all that is printed to it. */
static void fill_standard_descriptors(void) {
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) continue;
    if (fd >= 0) close(fd);
}

/* A write to a file that may not grow (ulimit -f), or to a pipe without a reader, fails and is reported, instead of
 * killing the process. Uses a handler, since programs that this one starts would inherit an ignored signal. */
static void let_write_fail(int number) { (void)number; }

static void fail_rather_than_die(void) {
    struct sigaction action = {.sa_handler = let_write_fail, .sa_flags = SA_RESTART};
    (void)sigaction(SIGXFSZ, &action, NULL);
    (void)sigaction(SIGPIPE, &action, NULL);
}

/* The file that a launcher has left open for this process, or -1. By now the number may be another file's, or the
 * variables may be another launcher's, so the launcher also passes the inode. */
static int inherited_file(const char *number_variable, const char *inode_variable, mode_t type) {
    const char *number = getenv(number_variable), *inode = getenv(inode_variable);
    struct stat info;
    char *end = NULL;
    if (!number || !inode || !isdigit((unsigned char)number[0])) return -1;
    int fd = (int)strtol(number, &end, 10);
    bool is_it = *end == '\0' && fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == type &&
                 strtoull(inode, NULL, 10) == (unsigned long long)info.st_ino;
    return is_it ? fd : -1;
}

const char *ls_log_program(void) { return identity.program; }

void ls_log_init(const char *program, int rank, bool quiet) {
    const char *slash = strrchr(program, '/');
    fill_standard_descriptors();
    fail_rather_than_die();
    identity.program = slash ? slash + 1 : program;
    identity.rank = rank;
    identity.quiet = quiet;
    identity.verbose = false;
    identity.cause_fd = inherited_file("LS_CAUSE_FD", "LS_CAUSE_INODE", S_IFIFO);
    int said = inherited_file("LS_SAID_FD", "LS_SAID_INODE", S_IFREG);
    if (said >= 0) ls_log_once_join(said);
}

void ls_log_redirect(void (*take)(void *context, const char *line), void *context) {
    redirected.take = take;
    redirected.context = context;
}

static void write_all(int fd, const char *text, size_t nbytes) {
    while (nbytes > 0) {
        ssize_t written = write(fd, text, nbytes);
        if (written <= 0) return; /* no place left to report this */
        text += written;
        nbytes -= (size_t)written;
    }
}

/* Whole lines, each with its end. */
static void write_lines(char *text, size_t nbytes) {
    if (!redirected.take) {
        write_all(STDERR_FILENO, text, nbytes);
        return;
    }
    pthread_mutex_lock(&redirected.mutex);
    for (char *line = text, *end; (end = memchr(line, '\n', (size_t)(text + nbytes - line))) != NULL; line = end + 1) {
        *end = '\0';
        redirected.take(redirected.context, line);
    }
    pthread_mutex_unlock(&redirected.mutex);
}

/* "ddp_train[rank 2]" */
static void begin_line(char *text, size_t capacity) {
    int length = snprintf(text, capacity, "%s", identity.program);
    if (identity.rank >= 0) snprintf(text + length, capacity - (size_t)length, "[rank %d]", identity.rank);
}

static void emit(const char *kind, const char *message) {
    char line[2048], head[300];
    begin_line(head, sizeof head);
    int length = snprintf(line, sizeof line, "%s: %s%s\n", head, kind, message);
    size_t nbytes = length < (int)sizeof line ? (size_t)length : sizeof line - 1;
    line[nbytes - 1] = '\n'; /* also if the message was truncated */
    write_lines(line, nbytes);
}

/* Names from a user or a file may contain any character: those that would begin a new line or control a terminal are
 * replaced. */
static void compose(char *message, size_t capacity, const char *format, va_list arguments) LS_PRINTF(3, 0);
static void compose(char *message, size_t capacity, const char *format, va_list arguments) {
    vsnprintf(message, capacity, format, arguments);
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
}

static bool holds_back(void) {
    pthread_mutex_lock(&held.mutex);
    bool on = held.on;
    pthread_mutex_unlock(&held.mutex);
    return on;
}

/* Whether the error is held back. */
static bool hold_back(const char *message) {
    pthread_mutex_lock(&held.mutex);
    bool on = held.on;
    if (on && held.first[0] == '\0') snprintf(held.first, sizeof held.first, "%s", message);
    pthread_mutex_unlock(&held.mutex);
    if (on) ls_detail("%s", message);
    return on;
}

int ls_report_error(const char *format, ...) {
    char message[1900];
    va_list arguments;
    va_start(arguments, format);
    compose(message, sizeof message, format, arguments);
    va_end(arguments);
    if (capture.buffer) {
        if (capture.buffer[0] == '\0') snprintf(capture.buffer, capture.capacity, "%s", message);
        return 0;
    }
    if (hold_back(message)) return 0;
    if (ls_log_once(message)) emit("error: ", message);
    if (identity.cause_fd >= 0) {
        char line[1904];
        int length = snprintf(line, sizeof line, "%s\n", message);
        write_all(identity.cause_fd, line, (size_t)length);
    }
    return 0;
}

void ls_report_lines(const char *lines) {
    char text[16384];
    size_t used = 0;
    if (holds_back() && !identity.verbose) return;
    for (const char *line = lines; *line && used < sizeof text;) {
        int nbytes = (int)strcspn(line, "\n");
        char head[300];
        begin_line(head, sizeof head);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s: %.*s\n", head, nbytes, line);
        line += nbytes + (line[nbytes] == '\n');
    }
    write_lines(text, used < sizeof text ? used : sizeof text - 1);
}

void ls_warn(const char *format, ...) {
    char message[1900];
    va_list arguments;
    va_start(arguments, format);
    compose(message, sizeof message, format, arguments);
    va_end(arguments);
    if (ls_log_once(message)) emit("warning: ", message);
}

static void remark(const char *format, va_list arguments) LS_PRINTF(1, 0);
static void remark(const char *format, va_list arguments) {
    char message[1900];
    compose(message, sizeof message, format, arguments);
    emit("", message);
}

void ls_note(const char *format, ...) {
    if (identity.quiet) return;
    va_list arguments;
    va_start(arguments, format);
    remark(format, arguments);
    va_end(arguments);
}

void ls_log_verbose(bool verbose) { identity.verbose = verbose && !identity.quiet; }

void ls_detail(const char *format, ...) {
    if (!identity.verbose) return;
    va_list arguments;
    va_start(arguments, format);
    remark(format, arguments);
    va_end(arguments);
}

ls_log_sink ls_log_capture(char *buffer, size_t capacity) {
    ls_log_sink before = capture;
    capture = (ls_log_sink){.buffer = buffer, .capacity = capacity};
    if (buffer) buffer[0] = '\0';
    return before;
}

void ls_log_restore(ls_log_sink sink) { capture = sink; }

void ls_log_hold(void) {
    pthread_mutex_lock(&held.mutex);
    held.on = true;
    held.first[0] = '\0';
    pthread_mutex_unlock(&held.mutex);
}

void ls_log_release(bool tell) {
    pthread_mutex_lock(&held.mutex);
    held.on = false;
    pthread_mutex_unlock(&held.mutex);
    if (tell && held.first[0] != '\0') ls_report_error("%s", held.first);
}
