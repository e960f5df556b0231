#define _GNU_SOURCE
#include "ddp_procs/launch/launch_start.h"

#include <string.h>
#include <unistd.h>

#include "ddp_procs/launch/launch_output.h"
#include "ddp_procs/launch/launch_spawn.h"

static void close_output(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void ddp_forget_outputs(ddp_job *j) {
    for (int i = 0; i < j->options->nproc; i++) {
        close_output(&j->ranks[i].out);
        close_output(&j->ranks[i].err);
    }
}

ls_status ddp_start_rank(ddp_job *j, int i) {
    ddp_rank_process *rank = &j->ranks[i];
    ddp_rank_files files = {.out = rank->out, .err = rank->err};
    bool keeps = j->options->limits.least > 0, opened = rank->out >= 0 || rank->err >= 0;
    ddp_logs_path(&j->logs, i, "error.json", files.error_file);
    ls_status status = opened ? LS_OK : ddp_output_open(j->output, i, &files);
    rank->out = files.out;
    rank->err = files.err;
    if (rank->cause_fd >= 0) close(rank->cause_fd);
    rank->cause_nbytes = 0;
    rank->cause_complete = false;
    memset(rank->cause, 0, sizeof rank->cause);
    if (status == LS_OK) status = ddp_spawn_rank(&rank->pid, &rank->cause_fd, &j->plan, i, &files);
    if (!keeps) close_output(&rank->out);
    if (!keeps) close_output(&rank->err);
    if (status == LS_OK) j->running++;
    return status;
}
