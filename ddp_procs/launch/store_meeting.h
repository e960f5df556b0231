/* Meetings at the store: all present clients agree on the list of them. The server's side; clients call ddp_store_meet
 * (store.h). Used by the server's thread. */
#ifndef DDP_LAUNCH_STORE_MEETING_H
#define DDP_LAUNCH_STORE_MEETING_H

#include "ddp_procs/launch/store_service.h"

/* Call when a request for a meeting is complete. False: not such a request. */
bool ddp_meeting_enter(ddp_service *service, ddp_session *c);

/* Call when a client leaves, in any state. */
void ddp_meeting_leave(ddp_service *service, const ddp_session *c);

/* Whether a meeting is due: a member has left, or a client waits for one. */
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

/* The earliest deadline of a waiting client; INFINITY: no client waits. */
double ddp_meeting_until_us(ddp_session *const *sessions, int count);

/* One who waited is answered; `held`: it is a member now. */
void ddp_meeting_end(ddp_service *service, ddp_session *c, bool held);

#endif
