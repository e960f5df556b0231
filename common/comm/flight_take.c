/* flight_take — from the rings of a broken job to a record, a table and a file.
 *   idea  : the rank that breaks the group copies all rings before the others may know it, so that the record shows one
 *           moment: none of them has ended with the failure yet. It alone prints and writes. All rings lie in memory that
 *           it sees, so a file per rank would say the same W times
 *   cost  : nine kilobytes per rank, copied once
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

/* A pidfd is readable once its process has ended, whoever waits for it or has done so. */
static bool has_died(pid_t pid) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) return errno == ESRCH;
    struct pollfd process = {.fd = fd, .events = POLLIN};
    bool ended = poll(&process, 1, 0) == 1;
    close(fd);
    return ended;
}

static ls_flight_presence presence_of(const ls_flight_ring *ring) {
    pid_t pid = (pid_t)atomic_load(&ring->pid);
    if (pid == 0) return LS_FLIGHT_ABSENT;
    if (atomic_load(&ring->left)) return LS_FLIGHT_LEFT;
    return has_died(pid) ? LS_FLIGHT_DIED : LS_FLIGHT_PRESENT;
}

/* The group's number in the record, which gets it if it is new; `hashes` are those of its groups. */
static int find_group(ls_flight_record *record, uint64_t *hashes, const ls_flight_ring *ring, uint64_t hash) {
    int g = 0, there = 0, count = atomic_load(&ring->group_count);
    while (g < record->group_count && hashes[g] != hash) g++;
    if (g < record->group_count) return g;
    while (there < count && ring->groups[there].hash != hash) there++;
    hashes[g] = hash;
    record->groups[g] = there < count ? ring->groups[there].group : (ls_flight_group){"another group", 0, 1, 1};
    record->group_count++;
    return g;
}

static void copy_ring(ls_flight_record *record, uint64_t *hashes, const ls_flight_ring *ring, ls_flight_rank *rank) {
    uint64_t newest = atomic_load(&ring->enqueued), group;
    uint64_t oldest = newest > LS_FLIGHT_KEPT ? newest - LS_FLIGHT_KEPT + 1 : 1;
    rank->pid = (int)atomic_load(&ring->pid);
    rank->presence = presence_of(ring);
    for (uint64_t number = oldest; number <= newest; number++) {
        ls_flight_operation *o = &rank->operations[rank->count];
        if (!ls_flight_read_entry(&ring->entries[number % LS_FLIGHT_KEPT], o, &group) || o->number != number) continue;
        o->group = find_group(record, hashes, ring, group);
        const ls_flight_group *g = &record->groups[o->group];
        if (o->root >= 0) o->root = g->first + o->root * g->stride;
        rank->count++;
    }
}

static void describe(const ls_comm *comm, ls_flight_record *record, ls_status status, const char *reason) {
    snprintf(record->program, sizeof record->program, "%s", ls_log_program());
    snprintf(record->backend, sizeof record->backend, "%s", comm->backend);
    snprintf(record->status, sizeof record->status, "%s", ls_status_text(status));
    snprintf(record->reason, sizeof record->reason, "%s", reason);
    record->taken_by = ls_job_rank(comm, comm->rank);
    record->taken_ms = ls_coarse_now_ms();
}

/* Ranks that do not agree on how to form a group have said how they differ. */
static bool is_worth_telling(const ls_flight_rank *rank, bool hung) {
    bool any = false;
    for (int i = 0; i < rank->count; i++) any = any || hung || rank->operations[i].kind <= LS_OPERATION_BARRIER;
    return any;
}

ls_flight_record *ls_flight_take(const ls_comm *comm, ls_status status, const char *reason, const bool *late) {
    bool hung = status == LS_ERR_TIMEOUT || status == LS_ERR_PEER;
    if (!comm->flight || (!hung && status != LS_ERR_INVALID)) return NULL;
    int most = comm->flight_ranks * LS_FLIGHT_KEPT;
    bool any = false;
    uint64_t *hashes = calloc((size_t)most, sizeof *hashes);
    ls_flight_record *record = ls_flight_create(comm->flight_ranks, most);
    for (int r = 0; hashes && record && r < record->world_size; r++) {
        copy_ring(record, hashes, &comm->flight[r], &record->ranks[r]);
        any = any || is_worth_telling(&record->ranks[r], hung);
    }
    if (!any) {
        ls_flight_free(record);
        free(hashes);
        return NULL;
    }
    describe(comm, record, status, reason);
    record->group = find_group(record, hashes, &comm->flight[record->taken_by], comm->name_hash);
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
