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
    struct crew *crew; /* shared by threads; NULL in a process of its own */
    const void *argument;
    ls_bootstrap bootstrap;
    char message[512]; /* the first error since the rank began, "" if none */
    /* filled by rank_open */
    ls_device *device;
    ls_stream *stream; /* the device's comm stream */
    ls_comm *comm;
};

/* How long ranks that are started from now on wait for a key in the store. Make it short if the key will not arrive. */
extern double rank_get_timeout_s;

/* Runs body on `world_size` ranks. meanwhile (may be NULL) runs in the parent. Each process is killed after deadline_s.
 * exit_codes[r] becomes 0 if rank r's body returned, 1 if a check failed, 128 + n if signal n killed the process; all
 * threads get the exit status of their process. */
void run_ranks_on(const struct rank_backend *backend, int world_size, int deadline_s, void (*body)(struct rank *rank),
                  const void *argument, void (*meanwhile)(const pid_t *pids), int *exit_codes);

/* The same; every rank must succeed. */
void run_good_ranks_on(const struct rank_backend *backend, int world_size, void (*body)(struct rank *rank),
                       const void *argument);

/* The same on every back-end in turn. */
void run_good_ranks_on_all(int world_size, void (*body)(struct rank *rank), const void *argument);

/* The same; ranks whose bit is set in `good` must succeed, and the others must end with that exit status. */
void run_ranks_expecting(const struct rank_backend *backend, int world_size, void (*body)(struct rank *rank),
                         const void *argument, void (*meanwhile)(const pid_t *pids), uint64_t good, int other);

/* The same, with processes. */
void run_ranks(int world_size, int deadline_s, void (*body)(struct rank *rank), const void *argument,
               void (*meanwhile)(const pid_t *pids), int *exit_codes);
void run_good_ranks(int world_size, void (*body)(struct rank *rank), const void *argument);

/* Opens the device (streams as in LS_CPU_STREAMS=mode) and the group; returns the group's status. Threads call it
 * together, unless world_size has been set to 1. */
ls_status rank_open(struct rank *rank, const char *mode, const char *allreduce, double timeout_s);

/* The same on a device with exactly these options. */
ls_status rank_open_on(struct rank *rank, const ls_device_options *device, const char *allreduce, double timeout_s);

/* After rank_open_on with a GPU: attaches a path for GPU memory to the group, and returns the status of that. Threads
 * call it together, with the same allreduce and timeout_s. */
ls_status rank_attach(struct rank *rank, ls_comm_path path, const char *allreduce, double timeout_s);

void rank_close(struct rank *rank);

/* Whether the first error contains that text. */
bool rank_says(const struct rank *rank, const char *text);

/* Sends this rank's process the signal after so many microseconds, less than a second: at an arbitrary point of its
 * work. */
void rank_signal_soon(int number, int us);

/* Ends the process of a rank, with a message, unless the condition holds. */
#define CHECK(condition) check_in_rank(rank, (condition), #condition, __FILE__, __LINE__)
void check_in_rank(const struct rank *rank, bool condition, const char *text, const char *file, int line);

#endif
