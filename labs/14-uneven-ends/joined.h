/* Ranks that run out of samples at different steps, played by threads: part of lab 14's probe. */
#ifndef LABS_UNEVEN_ENDS_JOINED_H
#define LABS_UNEVEN_ENDS_JOINED_H

#include "labs/course/probe/probe.h"

/* The checks. */
void joined_counts(probe *p);
void joined_weight(probe *p);
void joined_buffers(probe *p);
void joined_trained(probe *p);

#endif
