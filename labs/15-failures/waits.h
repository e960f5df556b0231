/* Waits for ranks that arrive, arrive late, or never arrive: part of lab 15's probe. */
#ifndef LABS_FAILURES_WAITS_H
#define LABS_FAILURES_WAITS_H

#include "labs/course/probe/probe.h"

/* The checks. */
void waits_deadline(probe *p);
void waits_slow(probe *p);
void waits_dead(probe *p);
void waits_broken(probe *p);
void waits_culprit(probe *p);
void waits_again(probe *p);

#endif
