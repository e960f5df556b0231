/* --elastic MIN:MAX: the least and the largest number of ranks with which a job continues. */
#ifndef DDP_LAUNCH_LIMITS_H
#define DDP_LAUNCH_LIMITS_H

#include "common/base/status.h"

/* The environment variable by which the launcher passes the text of --elastic to its ranks. */
#define DDP_ELASTIC_VARIABLE "LS_ELASTIC"

typedef struct ddp_limits {
    int least, most; /* 1 <= least <= most <= LS_COMM_MAX_RANKS; both 0: not elastic, all ranks are needed */
} ddp_limits;

/* Reads "MIN:MAX"; NULL: not elastic. LS_ERR_USAGE with one line, also if `ranks`, unless 0, are not between them. */
ls_status ddp_limits_parse(ddp_limits *limits, const char *text, int ranks);

#endif
