#define _GNU_SOURCE
#include "ddp_procs/launch/launch_report.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "common/base/log.h"
#include "common/comm/comm.h"
#include "ddp_procs/launch/launch_policy.h"

enum { ROWS_MAX = 8, ROW_BEGIN = 50, ROW_END = 70, TEXT_CAPACITY = 1400 };

/* "signal 9 (Killed)", "exit status 3: rank 2 died" */
static void describe_end(const ddp_job *j, const ddp_rank_end *end, bool in_words, char text[TEXT_CAPACITY]) {
    const ddp_rank_process *rank = &j->ranks[end->rank];
    char line[DDP_CAUSE_CAPACITY] = "", how[128];
    if (rank->cause_nbytes > 0)
        snprintf(line, sizeof line, "%s", rank->cause);
    else
        (void)ddp_logs_last_line(&j->logs, end->rank, line, sizeof line);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    if (WIFSIGNALED(end->wait_status))
        snprintf(how, sizeof how, "%ssignal %d (%s)", in_words ? "was ended by " : "", WTERMSIG(end->wait_status),
                 strsignal(WTERMSIG(end->wait_status)));
    else
        snprintf(how, sizeof how, "%s %d", in_words ? "exited with status" : "exit status",
                 WEXITSTATUS(end->wait_status));
    snprintf(text, TEXT_CAPACITY, "%s%s%s", how, line[0] ? ": " : "", line);
}

/* --- all ranks that failed -------------------------------------------------------------------------------------------- */

/* Whether another host's rank is the culprit, or another host itself. */
static bool is_elsewhere(const ddp_job *j) { return j->has_ending && j->ending.node != j->options->node_rank; }

static bool is_culprit(const ddp_job *j, int index) {
    return !is_elsewhere(j) && j->failures[index].rank == j->culprit.rank;
}

/* Keeps the beginning and the end of a text that is too long for a row: the end usually has the reason. */
static void shorten(char text[TEXT_CAPACITY]) {
    size_t length = strlen(text);
    if (length <= ROW_BEGIN + 5 + ROW_END) return;
    memcpy(text + ROW_BEGIN, " ... ", 5);
    memmove(text + ROW_BEGIN + 5, text + length - ROW_END, ROW_END + 1);
}

/* Whether the rank lost a peer, and is not the culprit: one line covers all such ranks. */
static bool is_follower(const ddp_job *j, int index) {
    return ddp_has_lost_peer(&j->failures[index]) && (index > 0 || is_elsewhere(j)) && !is_culprit(j, index);
}

enum { TIME_CAPACITY = 48 };

static const char *time_text(char text[TIME_CAPACITY], const struct timespec *at) {
    char seconds[32] = "";
    struct tm local;
    if (localtime_r(&at->tv_sec, &local)) (void)strftime(seconds, sizeof seconds, "%H:%M:%S", &local);
    snprintf(text, TIME_CAPACITY, "%s.%03ld", seconds, at->tv_nsec / 1000000);
    return text;
}

/* The last line reports how the culprit ended. */
static void show_failure(const ddp_job *j, int index) {
    const ddp_rank_end *end = &j->failures[index];
    char text[TEXT_CAPACITY] = "the cause", at[TIME_CAPACITY];
    if (!is_culprit(j, index)) describe_end(j, end, false, text);
    shorten(text);
    bool said = index == 0 && is_culprit(j, index);
    ls_note("rank %d (pid %d) failed %sat %s%s%s", ddp_number_of(j, end->rank), (int)end->pid,
            index == 0 && !is_elsewhere(j) ? "first, " : "", time_text(at, &end->at), said ? "" : ": ",
            said ? "" : text);
}

static void show_followers(const ddp_job *j) {
    bool followers[LS_COMM_MAX_RANKS] = {false};
    char ranks[LS_RANKS_TEXT_CAPACITY], at[TIME_CAPACITY];
    int count = 0;
    for (int i = 0; i < j->failure_count; i++) {
        if (!is_follower(j, i)) continue;
        followers[ddp_number_of(j, j->failures[i].rank)] = true;
        (void)time_text(at, &j->failures[i].at);
        count++;
    }
    if (count == 0) return;
    ls_note("%s failed after it, %sat %s: exit status %d, a peer failed",
            ls_ranks_text(ranks, followers, j->plan.world_size), count > 1 ? "the last " : "", at, DDP_PEER_STATUS);
}

/* At most a screen. The culprit is the first that did not lose a peer, so it is among those shown. */
static void show_failures(const ddp_job *j) {
    char path[PATH_MAX];
    int shown = 0, hidden = 0;
    for (int i = 0; i < j->failure_count; i++) {
        if (is_follower(j, i)) continue;
        if (shown == ROWS_MAX) {
            hidden++;
        } else {
            show_failure(j, i);
            shown++;
        }
    }
    if (hidden > 0) ls_note("and %d more ranks failed after these", hidden);
    show_followers(j);
    ddp_logs_path(&j->logs, j->culprit.rank, "", path);
    if (path[0] && j->culprit.rank >= 0)
        ls_note("the log files of rank %d: %s", ddp_number_of(j, j->culprit.rank), path);
}

/* --- the line --------------------------------------------------------------------------------------------------------- */

static const char *name_culprit(const ddp_job *j, const ddp_rank_end *end, char text[TEXT_CAPACITY]) {
    char host[DDP_HOST_TEXT_CAPACITY] = "";
    if (j->agents) ddp_agents_host(j->agents, j->options->node_rank, host);
    snprintf(text, TEXT_CAPACITY, "rank %d (pid %d)%s%s", ddp_number_of(j, end->rank), (int)end->pid,
             host[0] ? " on " : "", host);
    return text;
}

static ls_status describe_culprit(const ddp_job *j, char line[DDP_ENDING_CAPACITY]) {
    const ddp_rank_end *culprit = &j->culprit;
    char name[TEXT_CAPACITY], text[TEXT_CAPACITY], few[64] = "";
    bool exited = WIFEXITED(culprit->wait_status);
    int exit_status = exited ? WEXITSTATUS(culprit->wait_status) : -1;
    name_culprit(j, culprit, name);
    if (exit_status == 0) {
        snprintf(line, DDP_ENDING_CAPACITY,
                 "%.100s exited with status 0 without joining the others, which wait for it: all ranks "
                 "must run a program that meets in this job",
                 name);
        return LS_ERR_SYSTEM;
    }
    if (j->too_few && !exited)
        snprintf(few, sizeof few, "; too few ranks were left for --elastic %.20s", j->options->elastic);
    describe_end(j, culprit, true, text);
    snprintf(line, DDP_ENDING_CAPACITY, "%.100s %s%s", name, text, few);
    return exit_status == DDP_PEER_STATUS    ? LS_ERR_PEER
           : exit_status == DDP_USAGE_STATUS ? LS_ERR_USAGE
                                             : LS_ERR_SYSTEM;
}

bool ddp_describe_ending(const ddp_job *j, ddp_ending *ending) {
    char host[DDP_HOST_TEXT_CAPACITY], where[DDP_HOST_TEXT_CAPACITY + 8] = "";
    *ending = (ddp_ending){.node = j->options->node_rank, .rank = -1, .status = LS_OK};
    if (j->agents) snprintf(where, sizeof where, " on %s", ddp_agents_host(j->agents, ending->node, host));
    if (j->culprit.rank >= 0) {
        ending->rank = ddp_number_of(j, j->culprit.rank);
        ending->status = describe_culprit(j, ending->text);
        ending->may_restart = ddp_may_restart(j);
    } else if (j->stop_signal) {
        ending->status = LS_ERR_SYSTEM;
        snprintf(ending->text, sizeof ending->text, "the job was ended by signal %d (%s)%s", j->stop_signal,
                 strsignal(j->stop_signal), where);
    } else if (j->timed_out) {
        ending->status = LS_ERR_TIMEOUT;
        snprintf(ending->text, sizeof ending->text,
                 "the job was not done after %g s and has been ended%s; allow more with --timeout",
                 j->options->timeout_s, where);
    }
    return ending->status != LS_OK;
}

ls_status ddp_report_job(const ddp_job *j) {
    ddp_ending ending = j->ending;
    char after[64] = "";
    if (j->agents ? !j->has_ending : !ddp_describe_ending(j, &ending)) return LS_OK;
    int restarts = j->plan.restarts;
    if (ending.rank < 0) return ls_fail((ls_status)ending.status, "%s", ending.text);
    int wait_status = j->culprit.wait_status;
    bool absent = !is_elsewhere(j) && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
    if (ending.status != LS_ERR_USAGE && !absent) show_failures(j);
    if (restarts > 0 && !absent)
        snprintf(after, sizeof after, "after %d restart%s, ", restarts, restarts == 1 ? "" : "s");
    return ls_fail((ls_status)ending.status, "%s%s", after, ending.text);
}

void ddp_report_restart(const ddp_job *j) {
    ddp_ending ending = j->ending;
    show_failures(j);
    if (!j->agents) (void)ddp_describe_ending(j, &ending);
    ls_warn("%s; all ranks start again (restart %d of %d)", ending.text, j->plan.restarts + 1,
            j->options->max_restarts);
}

void ddp_report_rank_restart(const ddp_job *j, const ddp_rank_end *end) {
    char text[TEXT_CAPACITY];
    describe_end(j, end, true, text);
    ls_warn("rank %d (pid %d) %s; this rank starts again (restart %d of %d)", ddp_number_of(j, end->rank),
            (int)end->pid, text, j->plan.restarts, j->options->max_restarts);
}
