/* launch_output: copies the output of ranks, line by line.
 *   idea  : a stream that is only redirected is the file itself. One that is shown gets a pipe, and a thread reads all
 *           pipes: bytes are written to the file as they arrive, lines to the console when they are complete, with the
 *           prefix "[rank 1] ", each in one write (up to 4 KiB), so that lines of several ranks never mix. It is a
 *           thread, since a blocked console must not keep the launcher from its signals.
 *   cost  : two system calls for a line.
 *   fails : a failed write is reported once, the rest of that file is dropped, and the job continues to its end, but
 *           counts as failed. A line without an end is shown when its stream ends; one of more than LINE_CAPACITY bytes
 *           is shown in pieces. */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"

enum { STREAMS = 2, LINE_CAPACITY = 1 << 16, CONSOLE_WRITE = 4096, LOOK_AGAIN_MS = 200 };

typedef struct stream {
    int pipe, file; /* -1: none, or closed */
    int console;
    char *line; /* LINE_CAPACITY bytes: the prefix, and the received part of the line */
    size_t prefix_nbytes, nbytes;
    char path[PATH_MAX]; /* of the file */
} stream;

struct ddp_output {
    const ddp_launch_options *options;
    const ddp_logs *logs;
    int first_rank;
    pthread_t thread;
    bool started;
    int wake_fd;                              /* readable: the ranks have ended */
    _Atomic double give_up_us;                /* INFINITY: ranks still run */
    bool console_failed[1 + STREAMS], failed; /* private to the thread while it runs */
    int count;
    stream streams[];
};

static int streams_shown(const ddp_launch_options *o) {
    int count = 0;
    for (int i = 0; i < o->nproc; i++) count += (o->tee[i] & DDP_STDOUT ? 1 : 0) + (o->tee[i] & DDP_STDERR ? 1 : 0);
    return count;
}

static bool any_redirected(const ddp_launch_options *o) {
    for (int i = 0; i < o->nproc; i++)
        if (o->redirects[i]) return true;
    return false;
}

int ddp_output_descriptors(const ddp_launch_options *o) { return 2 * streams_shown(o) + 4; }

ls_status ddp_output_create(ddp_output **out, const ddp_spawn_plan *plan, const ddp_logs *logs) {
    const ddp_launch_options *options = plan->options;
    int shown = streams_shown(options);
    *out = NULL;
    if (shown == 0 && !any_redirected(options)) return LS_OK;
    ddp_output *output = calloc(1, sizeof *output + (size_t)shown * sizeof output->streams[0]);
    if (!output) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the ranks' output");
    output->options = options;
    output->logs = logs;
    output->first_rank = plan->first_rank;
    output->give_up_us = INFINITY;
    output->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (output->wake_fd < 0) {
        free(output);
        return ls_fail(LS_ERR_SYSTEM, "cannot copy the ranks' output: %s", strerror(errno));
    }
    *out = output;
    return LS_OK;
}

/* --- opening ---------------------------------------------------------------------------------------------------------- */

static ls_status open_file(const ddp_output *output, int rank, int which, char path[PATH_MAX], int *fd) {
    *fd = -1;
    ddp_logs_path(output->logs, rank, which == DDP_STDOUT ? "stdout.log" : "stderr.log", path);
    if (path[0] == '\0') return LS_OK;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return *fd >= 0 ? LS_OK : ls_fail(LS_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

static ls_status open_pipe(ddp_output *output, int rank, int which, int *writer) {
    stream *s = &output->streams[output->count];
    int ends[2];
    s->file = s->pipe = -1;
    s->line = malloc(LINE_CAPACITY);
    output->count++;
    if (!s->line) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the output of rank %d", rank);
    s->nbytes = s->prefix_nbytes = (size_t)snprintf(s->line, LINE_CAPACITY, "[rank %d] ", output->first_rank + rank);
    s->console = which == DDP_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
    ls_status status = open_file(output, rank, which, s->path, &s->file);
    if (status != LS_OK) return status;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot make the pipes of rank %d: %s", rank, strerror(errno));
    s->pipe = ends[0];
    *writer = ends[1];
    (void)fcntl(s->pipe, F_SETFL, O_NONBLOCK);
    return LS_OK;
}

static ls_status open_stream(ddp_output *output, int rank, int which, int *fd) {
    char path[PATH_MAX];
    *fd = -1;
    if (output->options->tee[rank] & which) return open_pipe(output, rank, which, fd);
    if (output->options->redirects[rank] & which) return open_file(output, rank, which, path, fd);
    return LS_OK;
}

ls_status ddp_output_open(ddp_output *output, int rank, ddp_rank_files *files) {
    files->out = files->err = -1;
    if (!output) return LS_OK;
    ls_status status = open_stream(output, rank, DDP_STDOUT, &files->out);
    return status == LS_OK ? open_stream(output, rank, DDP_STDERR, &files->err) : status;
}

/* --- copying ---------------------------------------------------------------------------------------------------------- */

/* Returns an errno; 0: all is written. */
static int write_file(int fd, const char *text, size_t nbytes) {
    while (nbytes > 0) {
        ssize_t written = write(fd, text, nbytes);
        if (written < 0 && errno != EINTR) return errno;
        if (written < 0) continue;
        text += written;
        nbytes -= (size_t)written;
    }
    return 0;
}

/* The same for a console, which may be a pipe or a terminal that blocks for a while. A pipe with room takes
 * CONSOLE_WRITE bytes. */
static int write_console(const ddp_output *output, int fd, const char *text, size_t nbytes) {
    while (nbytes > 0) {
        struct pollfd room = {fd, POLLOUT, 0};
        int ready = poll(&room, 1, LOOK_AGAIN_MS);
        if (ready == 0 && ls_now_us() >= output->give_up_us) return ETIMEDOUT;
        if (ready <= 0) continue;
        size_t piece = nbytes < CONSOLE_WRITE ? nbytes : CONSOLE_WRITE;
        int error = write_file(fd, text, piece);
        if (error) return error;
        text += piece;
        nbytes -= piece;
    }
    return 0;
}

static void show_line(ddp_output *output, stream *s) {
    s->line[s->nbytes] = '\n';
    int error = output->console_failed[s->console] ? 0 : write_console(output, s->console, s->line, s->nbytes + 1);
    s->nbytes = s->prefix_nbytes;
    if (error == 0) return;
    output->console_failed[s->console] = output->failed = true;
    ls_report_error("cannot print what the ranks print on %s: %s; the rest is lost",
                    s->console == STDOUT_FILENO ? "stdout" : "stderr", ls_write_error(error));
}

static void append_to_log(ddp_output *output, stream *s, const char *text, size_t nbytes) {
    int error = s->file >= 0 ? write_file(s->file, text, nbytes) : 0;
    if (error == 0) return;
    ls_report_error("cannot write all of %s: %s; the rest is lost", s->path, ls_write_error(error));
    close(s->file);
    s->file = -1;
    output->failed = true;
}

static void take(ddp_output *output, stream *s, const char *text, size_t nbytes) {
    append_to_log(output, s, text, nbytes);
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] != '\n') s->line[s->nbytes++] = text[i];
        if (text[i] == '\n' || s->nbytes == LINE_CAPACITY - 1) show_line(output, s);
    }
}

/* Reads all that is available; `last`: does not wait for more, though a process that has left the ranks' group may
 * still write. */
static void read_stream(ddp_output *output, stream *s, bool last) {
    char text[16384];
    ssize_t got = 0;
    if (s->pipe < 0) return;
    while (ls_now_us() < output->give_up_us && (got = read(s->pipe, text, sizeof text)) > 0)
        take(output, s, text, (size_t)got);
    if (got != 0 && !last) return;
    if (s->nbytes > s->prefix_nbytes) show_line(output, s);
    close(s->pipe);
    s->pipe = -1;
}

static void *copy(void *argument) {
    ddp_output *output = argument;
    struct pollfd fds[1 + STREAMS * LS_COMM_MAX_RANKS];
    bool ended = false;
    while (!ended) {
        fds[0] = (struct pollfd){.fd = output->wake_fd, .events = POLLIN};
        for (int i = 0; i < output->count; i++)
            fds[1 + i] = (struct pollfd){.fd = output->streams[i].pipe, .events = POLLIN};
        if (poll(fds, 1 + (nfds_t)output->count, -1) < 0) continue; /* EINTR */
        ended = fds[0].revents != 0;
        for (int i = 0; i < output->count; i++)
            if (ended || fds[1 + i].revents) read_stream(output, &output->streams[i], ended);
    }
    return NULL;
}

/* --- begin and end ---------------------------------------------------------------------------------------------------- */

ls_status ddp_output_start(ddp_output *output) {
    if (!output || output->count == 0) return LS_OK;
    int failure = pthread_create(&output->thread, NULL, copy, output);
    output->started = failure == 0;
    return failure == 0 ? LS_OK : ls_fail(LS_ERR_SYSTEM, "cannot copy the ranks' output: %s", strerror(failure));
}

ls_status ddp_output_finish(ddp_output *output) {
    if (!output) return LS_OK;
    output->give_up_us = ls_now_us() + DDP_OUTPUT_PATIENCE_S * 1e6;
    if (output->started && eventfd_write(output->wake_fd, 1) == 0) pthread_join(output->thread, NULL);
    for (int i = 0; i < output->count; i++) {
        stream *s = &output->streams[i];
        if (s->pipe >= 0) close(s->pipe);
        if (s->file >= 0) close(s->file);
        free(s->line);
    }
    ls_status status = output->failed ? LS_ERR_IO : LS_OK;
    close(output->wake_fd);
    free(output);
    return status;
}
