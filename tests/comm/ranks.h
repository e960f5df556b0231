/* Ranks of a test, each with a device and an endpoint of one group: forked processes that find each other through a
 * table in shared memory, or threads of one forked process. */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/comm/comm.h"

struct rank;
struct crew;

/* The back-ends of process groups, and how ranks run on each. Ends with a row whose name is NULL. */
struct rank_backend {
    const char *name; /* ls_comm_backend */
    /* Starts the ranks' processes (or the one process that they share), runs meanwhile, waits for all and fills
     * exit_codes. */
    void (*run)(const struct rank *first, int deadline_s, void (*body)(struct rank *rank),
                void (*meanwhile)(const pid_t *pids), int *exit_codes);
    ls_status (*create)(struct rank *rank, const ls_comm_options *options);
};
extern const struct rank_backend rank_backends[];

struct rank {
    int rank, world_size;
    const struct rank_backend *backend;
    struct crew *crew; /* what threads share; NULL in a process of its own */
    const void *argument;
    ls_bootstrap bootstrap;
    char message[512]; /* the first error since the rank began, "" if none */
    /* filled by rank_open */
    ls_device *device;
    ls_stream *stream; /* the device's comm stream */
    ls_comm *comm;
};

/* How long ranks that are started from now on look for a key in the store. Short where it will not come. */
extern double rank_get_timeout_s;

/* Runs body on `world_size` ranks. meanwhile (may be NULL) runs in the parent. Each process dies after deadline_s.
 * exit_codes[r] becomes 0 if rank r's body returned, 1 if a check failed, 128 + n if signal n ended it; threads all get
 * their process's. */
void run_ranks_on(const struct rank_backend *backend, int world_size, int deadline_s, void (*body)(struct rank *rank),
                  const void *argument, void (*meanwhile)(const pid_t *pids), int *exit_codes);

/* The same, where every rank must succeed. */
void run_good_ranks_on(const struct rank_backend *backend, int world_size, void (*body)(struct rank *rank),
                       const void *argument);

/* The same on every back-end, one after the other. */
void run_good_ranks_on_all(int world_size, void (*body)(struct rank *rank), const void *argument);

/* The same, where those ranks must succeed whose bit is set in `good`, and the others end with that exit status. */
void run_ranks_expecting(const struct rank_backend *backend, int world_size, void (*body)(struct rank *rank),
                         const void *argument, void (*meanwhile)(const pid_t *pids), uint64_t good, int other);

/* As processes. */
void run_ranks(int world_size, int deadline_s, void (*body)(struct rank *rank), const void *argument,
               void (*meanwhile)(const pid_t *pids), int *exit_codes);
void run_good_ranks(int world_size, void (*body)(struct rank *rank), const void *argument);

/* Opens the device (streams as LS_CPU_STREAMS=mode says) and the group; the group's status. Threads call it together,
 * unless world_size has been set to 1. */
ls_status rank_open(struct rank *rank, const char *mode, const char *allreduce, double timeout_s);

/* The same on a device of these options, as they are. */
ls_status rank_open_on(struct rank *rank, const ls_device_options *device, const char *allreduce, double timeout_s);

/* Afterwards, if that was a GPU: gives the group a way for its memory; the status of that. Threads call it together;
 * allreduce and timeout_s as they were. */
ls_status rank_attach(struct rank *rank, ls_comm_path path, const char *allreduce, double timeout_s);

void rank_close(struct rank *rank);

/* Whether the first error has that text in it. */
bool rank_says(const struct rank *rank, const char *text);

/* Sends this rank's process the signal in so many microseconds, less than a second: somewhere in what it does then. */
void rank_signal_soon(int number, int us);

/* Ends the process of a rank, with a message, unless the condition holds. */
#define CHECK(condition) check_in_rank(rank, (condition), #condition, __FILE__, __LINE__)
void check_in_rank(const struct rank *rank, bool condition, const char *text, const char *file, int line);

#endif
