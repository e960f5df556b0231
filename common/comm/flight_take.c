/* flight_take — makes a record, a table and a file from the rings of a broken job.
 *   idea  : the rank that breaks the group copies all rings before the others can see the failure, so that the record
 *           is a snapshot: no rank has ended with the failure yet. Only this rank prints and writes. It sees the memory
 *           of all rings, so a file per rank would contain the same data W times
 *   cost  : four kilobytes per rank and group, copied once
 *   fails : without memory for a copy there is no table; a file that cannot be written is reported, and the failure that
 *           the record is about stays the first */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/comm/comm_internal.h"

/* A pidfd is readable once its process has ended, whether or not another process has waited for it. */
static bool has_died(pid_t pid) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) return errno == ESRCH;
    struct pollfd process = {.fd = fd, .events = POLLIN};
    bool ended = poll(&process, 1, 0) == 1;
    close(fd);
    return ended;
}

/* Process numbers are valid on their own host only; for other hosts, their mirrors check. */
static ls_flight_presence presence_of(const ls_flight_log *log, bool is_here) {
    pid_t pid = (pid_t)atomic_load(&log->pid);
    int32_t left = atomic_load(&log->left);
    if (pid == 0) return LS_FLIGHT_ABSENT;
    if (left == LS_LEFT) return LS_FLIGHT_LEFT;
    return left == LS_DIED || (is_here && has_died(pid)) ? LS_FLIGHT_DIED : LS_FLIGHT_PRESENT;
}

/* The group's number in the record, to which a new group is added; `hashes` are those of its groups. */
static int find_group(ls_flight_record *record, uint64_t *hashes, const ls_flight_ring *ring) {
    int g = 0;
    while (g < record->group_count && hashes[g] != ring->hash) g++;
    if (g < record->group_count) return g;
    hashes[g] = ring->hash;
    record->groups[g] = ring->group;
    return record->group_count++;
}

static int compare_numbers(const void *left, const void *right) {
    uint64_t a = ((const ls_flight_operation *)left)->number, b = ((const ls_flight_operation *)right)->number;
    return (a > b) - (a < b);
}

static void copy_log(ls_flight_record *record, uint64_t *hashes, const ls_flight_log *log, bool is_here,
                     ls_flight_rank *rank) {
    rank->pid = (int)atomic_load(&log->pid);
    rank->presence = presence_of(log, is_here);
    rank->looked_ms = atomic_load(&log->looked_ms);
    int32_t rings = atomic_load(&log->ring_count);
    for (int i = 0; i < rings; i++) {
        int number = find_group(record, hashes, &log->rings[i]);
        const ls_flight_group *group = &record->groups[number];
        for (int place = 0; place < LS_FLIGHT_KEPT; place++) {
            ls_flight_operation *o = &rank->operations[rank->count];
            if (!ls_flight_read_entry(&log->rings[i], place, o)) continue;
            o->group = number;
            if (o->root >= 0) o->root = group->first + o->root * group->stride;
            rank->count++;
        }
    }
    qsort(rank->operations, (size_t)rank->count, sizeof *rank->operations, compare_numbers);
}

static void describe(const ls_comm *comm, ls_flight_record *record, ls_status status, const char *reason) {
    snprintf(record->program, sizeof record->program, "%s", ls_log_program());
    snprintf(record->backend, sizeof record->backend, "%s", comm->backend);
    snprintf(record->status, sizeof record->status, "%s", ls_status_text(status));
    snprintf(record->reason, sizeof record->reason, "%s", reason);
    record->taken_by = ls_job_rank(comm, comm->rank);
    record->taken_ms = ls_coarse_now_ms();
}

/* Ranks that do not agree on how to form a group have already reported the difference. */
static bool is_worth_telling(const ls_flight_rank *rank, bool hung) {
    bool any = false;
    for (int i = 0; i < rank->count; i++) any = any || hung || rank->operations[i].kind <= LS_OPERATION_BARRIER;
    return any;
}

ls_flight_record *ls_flight_take(const ls_comm *comm, ls_status status, const char *reason, const bool *late) {
    bool hung = status == LS_ERR_TIMEOUT || status == LS_ERR_PEER;
    if (!comm->ring || (!hung && status != LS_ERR_INVALID)) return NULL;
    int most = comm->flight_ranks * LS_FLIGHT_GROUPS;
    bool any = false;
    uint64_t *hashes = calloc((size_t)most, sizeof *hashes);
    ls_flight_record *record = ls_flight_create(comm->flight_ranks, most);
    for (int r = 0; hashes && record && r < record->world_size; r++) {
        copy_log(record, hashes, &comm->flight[r], ls_is_on_this_host(comm->job, r), &record->ranks[r]);
        any = any || is_worth_telling(&record->ranks[r], hung);
    }
    if (!any) {
        ls_flight_free(record);
        free(hashes);
        return NULL;
    }
    describe(comm, record, status, reason);
    record->group = find_group(record, hashes, comm->ring);
    for (int r = 0; r < comm->world_size; r++) record->ranks[ls_job_rank(comm, r)].late = late[r];
    free(hashes);
    return record;
}

void ls_flight_tell(const ls_comm *comm, ls_flight_record *record) {
    if (!record) return;
    char table[LS_FLIGHT_TABLE], path[4096];
    ls_report_lines(ls_flight_table(table, record));
    if (comm->flight_folder && comm->flight_folder[0]) {
        snprintf(path, sizeof path, "%s/flight-%d.jsonl", comm->flight_folder, (int)getpid());
        if (ls_flight_write(record, path) == LS_OK) {
            char line[4200];
            snprintf(line, sizeof line, "flight record: %s (build/flight shows it again)\n", path);
            ls_report_lines(line);
        }
    }
    ls_flight_free(record);
}
