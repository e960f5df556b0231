/* store_meeting: decides which ranks take part in a meeting.
 *   idea  : a rank that has been at a meeting is a member for as long as its connection lasts, which the kernel closes
 *           when the process ends. A meeting is held when all members have asked for it, with any others that ask, and
 *           there are enough of them. All get the same list of ranks and their reports. So they agree on the ranks that
 *           continue, even if some die meanwhile: a meeting does not wait for a dead member, and one that dies after
 *           the meeting is on the list, and missing at the next
 *   order : the list is by rank
 *   fails : a live member that does not ask (it is stopped) is waited for until another member's timeout; then its
 *           connection is closed, and the meeting is held without it. A rank that is not a member waits for the
 *           members, however long they take: at its timeout it gets the reply that too few came. So does a member if
 *           there are not enough */
#include "ddp_procs/launch/store_meeting.h"

#include <math.h>
#include <string.h>

#include "common/base/clock.h"

bool ddp_meeting_enter(ddp_service *service, ddp_session *c) {
    const unsigned char *value = c->body + c->request.key_nbytes;
    int64_t least = ddp_i64_read(value), patience_ms = ddp_i64_read(value + 8);
    if (least < 1 || least > LS_COMM_MAX_RANKS || patience_ms < 0) return false;
    c->least = (int)least;
    memcpy(c->said, value + DDP_MEET_SAID_AT, sizeof c->said);
    c->phase = DDP_MEETING;
    c->deadline_us = INFINITY;
    c->patient_until_us = ls_now_us() + (double)patience_ms * 1e3;
    service->meetings.waiting++;
    return true;
}

void ddp_meeting_leave(ddp_service *service, const ddp_session *c) {
    if (c->is_member) service->meetings.present--;
    if (c->phase == DDP_MEETING) service->meetings.waiting--;
}

bool ddp_meeting_is_due(const ddp_service *service) {
    return service->meetings.waiting > 0 || service->meetings.present < service->meetings.met;
}

/* Writes the list into a reply's value; returns its bytes. */
static size_t write_list(unsigned char *value, int64_t number, ddp_session *const *sessions, int count) {
    size_t used = 8;
    ddp_i64_write(value, number);
    for (int rank = 0; rank < LS_COMM_MAX_RANKS; rank++) {
        for (int i = 0; i < count; i++) {
            if (sessions[i]->phase != DDP_MEETING || sessions[i]->rank != rank) continue;
            ddp_i64_write(value + used, rank);
            memcpy(value + used + 8, sessions[i]->said, DDP_SAID_NBYTES);
            used += 8 + DDP_SAID_NBYTES;
            break; /* if clients have no numbers, all are rank 0 */
        }
    }
    return used;
}

void ddp_meeting_end(ddp_service *service, ddp_session *c, bool held) {
    if (held && !c->is_member) service->meetings.present++;
    c->is_member = c->is_member || held;
    service->meetings.waiting--;
}

double ddp_meeting_until_us(ddp_session *const *sessions, int count) {
    double until_us = INFINITY;
    for (int i = 0; i < count; i++)
        if (sessions[i]->phase == DDP_MEETING) until_us = fmin(until_us, sessions[i]->patient_until_us);
    return until_us;
}

/* The largest number of ranks that a waiting client requires. */
static int find_least(ddp_session *const *sessions, int count) {
    int least = 0;
    for (int i = 0; i < count; i++)
        if (sessions[i]->phase == DDP_MEETING && sessions[i]->least > least) least = sessions[i]->least;
    return least;
}

ddp_verdict_of_meeting ddp_meeting_judge(ddp_service *service, ddp_session *const *sessions, int count, double now_us,
                                         unsigned char value[DDP_MEETING_NBYTES], size_t *nbytes) {
    int missing = 0;
    bool member_is_late = false;
    if (service->meetings.waiting == 0) return DDP_MEETING_WAITS;
    for (int i = 0; i < count; i++) {
        bool waits = sessions[i]->phase == DDP_MEETING;
        missing += sessions[i]->is_member && !waits;
        member_is_late = member_is_late || (waits && sessions[i]->is_member && now_us >= sessions[i]->patient_until_us);
    }
    bool enough = service->meetings.waiting >= find_least(sessions, count);
    if (!enough || (missing > 0 && !member_is_late))
        return now_us >= ddp_meeting_until_us(sessions, count) ? DDP_MEETING_IS_LATE : DDP_MEETING_WAITS;
    for (int i = 0; i < count; i++)
        if (sessions[i]->is_member && sessions[i]->phase != DDP_MEETING) sessions[i]->deadline_us = 0;
    *nbytes = write_list(value, ++service->meetings.held, sessions, count);
    service->meetings.met = service->meetings.waiting;
    return DDP_MEETING_IS_HELD;
}
