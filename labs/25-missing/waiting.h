/* Ranks that wait for messages, for ranks that are missing, and where that is not known: checks of lab 25's probe. */
#ifndef LABS_MISSING_WAITING_H
#define LABS_MISSING_WAITING_H

#include "labs/course/probe/probe.h"

void waiting_messages(probe *p);
void waiting_missing(probe *p);
void waiting_unknown(probe *p);

#endif
