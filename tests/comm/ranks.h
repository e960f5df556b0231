/* Ranks of a test: forked processes that find each other through a table in shared memory, each with a CPU device. */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/comm/comm.h"

struct rank {
    int rank, world_size;
    const void *argument;
    ls_bootstrap bootstrap;
    char message[512]; /* the first error since the rank began, "" if none */
    /* filled by rank_open */
    ls_device *device;
    ls_stream *stream; /* the device's comm stream */
    ls_comm *comm;
};

/* Runs body in `world_size` processes. meanwhile (may be NULL) runs in the parent. Each process dies after deadline_s.
 * exit_codes[r] becomes 0 if rank r's body returned, 1 if a check failed, 128 + n if signal n ended it. */
void run_ranks(int world_size, int deadline_s, void (*body)(struct rank *rank), const void *argument,
               void (*meanwhile)(const pid_t *pids), int *exit_codes);

/* The same, where every rank must succeed. */
void run_good_ranks(int world_size, void (*body)(struct rank *rank), const void *argument);

/* Opens the device (streams as LS_CPU_STREAMS=mode says) and the group; the group's status. */
ls_status rank_open(struct rank *rank, const char *mode, const char *allreduce, double timeout_s);
void rank_close(struct rank *rank);

/* Ends the process of a rank, with a message, unless the condition holds. */
#define CHECK(condition) check_in_rank(rank, (condition), #condition, __FILE__, __LINE__)
void check_in_rank(const struct rank *rank, bool condition, const char *text, const char *file, int line);

#endif
