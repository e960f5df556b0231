/* An elastic job in a test: ranks that are forked, and die in a chosen moment of a chosen step. */
#ifndef TESTS_DDP_PROCS_ELASTIC_JOB_H
#define TESTS_DDP_PROCS_ELASTIC_JOB_H

#include <stdbool.h>
#include <stdint.h>

enum { ELASTIC_RANKS = 4, ELASTIC_FATES = 4, ELASTIC_LEGS = 16, STOPPED_S = 6 };

typedef enum moment {
    NEVER,
    IN_FORWARD,      /* dies before its forward pass */
    BEHIND_BACKWARD, /* ... behind its backward pass: where streams have threads, among the reductions */
    BEFORE_UPDATE,   /* ... between reduction and update */
    AFTER_UPDATE,    /* ... behind the update */
    LOSES_UPDATE,    /* lives, but hears of a broken group when the others have made the step's update */
    BEFORE_MEETING,  /* dies when others have died */
    IN_MEETING,      /* ... while it waits in the meeting for one that is LATE */
    LATE,            /* lives, but comes half a second late to the meeting */
    IN_FORMING,      /* dies when the next group is formed, while a state is sent or the ranks compare models */
    IN_SENDING,      /* ... while it sends its state */
    STOPS,           /* stops, and wakes up after STOPPED_S seconds */
    WHEN_DONE,       /* dies when it has trained to the end, and takes what it has written along */
    FAILS,           /* ends by itself: out of memory */
} moment;

typedef struct fate {
    int rank;
    moment moment;
    int64_t step; /* of which it is the moment; those around a meeting: of the next one */
} fate;

typedef struct elastic_job {
    int ranks;
    const char *limits, *options; /* --elastic's; more options */
    const char *init;             /* --init; NULL: it is not given */
    fate fates[ELASTIC_FATES];
    double timeout_s; /* --timeout; 0: long */
    int restarts;     /* ranks that are started again when they have died, once each */
    /* what came of it: groups that took steps, and from which step on; the weights' hash; ranks that ended well, and not */
    int legs, leg_ranks[ELASTIC_LEGS];
    int64_t leg_steps[ELASTIC_LEGS];
    uint64_t hash;
    int done, failed;
    bool missed; /* IN_SENDING came too late: the state had been sent */
} elastic_job;

/* Runs it to its end. */
void elastic_job_run(elastic_job *job);

/* The hash of what the same groups come to by checkpoints: each leg's ranks resume where the leg before was saved. */
uint64_t elastic_job_reference(const elastic_job *job, int64_t steps);

#endif
