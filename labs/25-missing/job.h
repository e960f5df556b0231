/* Made-up jobs that hang, as flight records: part of lab 25's probe. */
#ifndef LABS_MISSING_JOB_H
#define LABS_MISSING_JOB_H

#include "common/comm/flight.h"
#include "labs/course/probe/probe.h"

enum { JOB_MOST_RANKS = 8, JOB_GROUPS = 4, JOB_STEP = 4 }; /* JOB_STEP: collectives of all ranks in a step */

/* A rank's deviation in one step, in the all_reduce of bucket 1 or in the messages. */
enum way {
    STRAIGHT,
    SKIPS,
    REPEATS, /* runs it twice */
    SWAPS,   /* with the next */
    COUNTS,  /* one element more */
    TYPES,   /* int64 */
    MAXIMUM, /* in place of the sum */
    REDUCES, /* to rank 0, in place of all */
    LABELS,  /* names another bucket */
    SKIPS_MESSAGES,
    SHORTENS, /* its receive by one element */
    WAYS
};

/* A step's operations in addition to the broadcast of the buffers and the all_reduces of three buckets. */
enum {
    CHAIN = 1,    /* activations, from rank to rank */
    BACK = 2,     /* gradients, in the other direction */
    EXCHANGE = 4, /* of pairs of ranks, in both directions at once */
    PAIRS = 8     /* all_gathers in groups of two ranks: 0, 1 and 2, 3 and so on */
};

typedef struct job {
    probe *p;
    ls_flight_record *record;
    int program;                                     /* of the above */
    uint64_t called[JOB_MOST_RANKS][JOB_MOST_RANKS]; /* collectives, by rank and group */
    uint64_t sent[JOB_MOST_RANKS][JOB_MOST_RANKS], received[JOB_MOST_RANKS][JOB_MOST_RANKS]; /* by rank and peer */
} job;

/* Opens a job of `ranks` ranks whose steps have these operations; its group 0 has all ranks. Ends the probe if there is
 * no memory. */
void job_open(job *j, probe *p, int ranks, int program);
void job_close(job *j);

/* Gives the rank the operations of `steps` steps, all of them done; in step `odd_step`, 1 or more, it deviates by
 * `way`. */
void job_run(job *j, int rank, enum way way, int odd_step, int steps);

/* The rank waits in the operation at this place of its list, and has enqueued `ahead` more; it has not called the later
 * ones. */
void job_wait(job *j, int rank, int place, int ahead);

/* The rank's list ends before this place; all of its operations are done. */
void job_end(job *j, int rank, int place);

/* The place of its collective of that number in the group; of its first message with the peer after a place. -1 if
 * there is none. */
int job_collective(const job *j, int rank, int group, uint64_t sequence);
int job_message(const job *j, int rank, int peer, int place);

/* Descriptions of the deviations: "skips bucket 1". */
extern const char *const job_way_names[WAYS];

/* The number of bucket 1's all_reduce in a step. */
uint64_t job_bucket_1(int step);

/* All ranks have called the collective of that number and wait in it, a random number of up to `ahead` operations ahead
 * of their streams, except those whose bit is in `absent`: they have ended before it. */
void job_meet_at(job *j, uint64_t number, unsigned absent, int ahead);

/* Removes the operations that rings would no longer hold. Call last. */
void job_wrap(job *j);

/* Checks the first difference of the group. */
void job_see(const job *j, int group);

#endif
