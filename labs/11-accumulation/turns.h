/* A mock mode that records each call made to it. */
#ifndef LABS_11_ACCUMULATION_TURNS_H
#define LABS_11_ACCUMULATION_TURNS_H

#include "labs/course/probe/probe.h"

/* Checks of the probe: which calls a micro-batch makes and what a failure does; what holds when a backward ends. */
void see_turns(probe *p);
void see_ends(probe *p);

#endif
