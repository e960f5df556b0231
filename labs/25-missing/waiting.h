/* Checks of lab 25's probe: ranks that wait for messages or for missing ranks, and cases in which that is unknown. */
#ifndef LABS_MISSING_WAITING_H
#define LABS_MISSING_WAITING_H

#include "labs/course/probe/probe.h"

void waiting_messages(probe *p);
void waiting_missing(probe *p);
void waiting_unknown(probe *p);

#endif
