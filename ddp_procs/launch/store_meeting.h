/* Meetings at the store: which clients are there now, agreed on by all of them. The server's side; clients call
 * ddp_store_meet (store.h). Used by the server's thread. */
#ifndef DDP_LAUNCH_STORE_MEETING_H
#define DDP_LAUNCH_STORE_MEETING_H

#include "ddp_procs/launch/store_service.h"

/* A request to meet has come in whole. False: it is none. */
bool ddp_meeting_enter(ddp_service *service, ddp_session *c);

/* A client goes, wherever it is. */
void ddp_meeting_leave(ddp_service *service, const ddp_session *c);

/* Whether the members have a reason to meet: one of them has gone, or somebody waits. */
bool ddp_meeting_is_due(const ddp_service *service);

typedef enum ddp_verdict_of_meeting {
    DDP_MEETING_WAITS,
    DDP_MEETING_IS_HELD, /* by all who wait */
    DDP_MEETING_IS_LATE, /* for those whose patience is over: too few have come */
} ddp_verdict_of_meeting;

/* What becomes of those who wait. Held: the list is in `value`, *nbytes of it, and members that are left out have a
 * deadline_us of 0: they are to be closed. */
ddp_verdict_of_meeting ddp_meeting_judge(ddp_service *service, ddp_session *const *sessions, int count, double now_us,
                                         unsigned char value[DDP_MEETING_NBYTES], size_t *nbytes);

/* When somebody's patience is over; INFINITY: nobody waits. */
double ddp_meeting_until_us(ddp_session *const *sessions, int count);

/* One who waited is answered; `held`: it is a member now. */
void ddp_meeting_end(ddp_service *service, ddp_session *c, bool held);

#endif
