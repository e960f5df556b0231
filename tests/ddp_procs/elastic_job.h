/* An elastic job in a test: forked ranks that die at a chosen moment of a chosen step. */
#ifndef TESTS_DDP_PROCS_ELASTIC_JOB_H
#define TESTS_DDP_PROCS_ELASTIC_JOB_H

#include <stdbool.h>
#include <stdint.h>

enum { ELASTIC_RANKS = 4, ELASTIC_FATES = 4, ELASTIC_LEGS = 16, STOPPED_S = 6 };

typedef enum moment {
    NEVER,
    IN_FORWARD,      /* dies before its forward pass */
    BEHIND_BACKWARD, /* ... after its backward pass: where streams have threads, during the reductions */
    BEFORE_UPDATE,   /* ... between reduction and update */
    AFTER_UPDATE,    /* ... after the update */
    LOSES_UPDATE,    /* lives, but finds the group broken when the others have made the step's update */
    BEFORE_MEETING,  /* dies after other ranks have died */
    IN_MEETING,      /* ... while it waits in the meeting for a rank that is LATE */
    LATE,            /* lives, but joins the meeting half a second late */
    IN_FORMING,      /* dies when the next group is formed, while a state is sent or the ranks compare models */
    IN_SENDING,      /* ... while it sends its state */
    STOPS,           /* stops, and continues after STOPPED_S seconds */
    WHEN_DONE,       /* dies when training is done, and deletes the files that it has written */
    FAILS,           /* ends by itself: out of memory */
} moment;

typedef struct fate {
    int rank;
    moment moment;
    int64_t step; /* the moment's step; for moments around a meeting: the step after it */
} fate;

typedef struct elastic_job {
    int ranks;
    const char *limits, *options; /* --elastic's; more options */
    const char *init;             /* --init; NULL: not given */
    fate fates[ELASTIC_FATES];
    double timeout_s; /* --timeout; 0: long */
    int restarts;     /* ranks that are restarted when they have died, once each */
    /* results: groups that took steps, and their first steps; hash of the weights; ranks that succeeded, and that
     * failed */
    int legs, leg_ranks[ELASTIC_LEGS];
    int64_t leg_steps[ELASTIC_LEGS];
    uint64_t hash;
    int done, failed;
    bool missed; /* IN_SENDING came too late: the state had been sent */
} elastic_job;

/* Runs the job to its end. */
void elastic_job_run(elastic_job *job);

/* The hash that the same groups reach with checkpoints: the ranks of each leg resume from the checkpoint of the
 * previous leg. */
uint64_t elastic_job_reference(const elastic_job *job, int64_t steps);

#endif
