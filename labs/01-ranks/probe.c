/* Tests lab 01's functions: how they read the environment, and which ranks the letter passes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_procs/launch/rank.h"
#include "labs/01-ranks/hello/hello.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

/* --- the environment ------------------------------------------------------------------------------------------------ */

enum { RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ENV_COUNT, ENV_NUMBERS = 4 };
enum { ENV_TEXT = 32 };

static const char *const by_rank[ENV_COUNT] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                               "MASTER_ADDR", "MASTER_PORT"};
static const char *const by_mpirun[ENV_COUNT] = {
    "OMPI_COMM_WORLD_RANK",       "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "MASTER_ADDR",          "MASTER_PORT"};
static const char *const by_mpiexec[ENV_COUNT] = {"PMI_RANK",       "PMI_SIZE",    "PMI_LOCAL_RANK",
                                                  "PMI_LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT"};

static void forget(void) {
    for (int i = 0; i < ENV_COUNT; i++) {
        unsetenv(by_rank[i]);
        unsetenv(by_mpirun[i]);
        unsetenv(by_mpiexec[i]);
    }
}

/* Sets those of the six variables whose bit is set in `mask`. */
static void say(const char *const names[ENV_COUNT], char values[ENV_COUNT][ENV_TEXT], unsigned mask) {
    for (int i = 0; i < ENV_COUNT; i++)
        if (mask >> i & 1) setenv(names[i], values[i], 1);
}

enum { ALL = (1 << ENV_COUNT) - 1, NUMBERS = (1 << ENV_NUMBERS) - 1 };

static void write_values(char values[ENV_COUNT][ENV_TEXT], const int numbers[ENV_NUMBERS]) {
    for (int i = 0; i < ENV_NUMBERS; i++) snprintf(values[i], ENV_TEXT, "%d", numbers[i]);
    snprintf(values[MASTER_ADDR], ENV_TEXT, "127.0.0.1");
    snprintf(values[MASTER_PORT], ENV_TEXT, "29500");
}

static ls_status discover(ddp_rank *self, char message[512]) {
    ls_log_sink before = ls_log_capture(message, 512);
    ls_status status = ddp_rank_discover(self);
    ls_log_restore(before);
    return status;
}

static void see_rank(probe *p) {
    ddp_rank self;
    char message[512] = "";
    probe_see(p, "reading it", "%s", ls_status_text(discover(&self, message)));
    probe_see(p, "the rank", "%d of %d", self.rank, self.world_size);
    probe_see(p, "the rank on this machine", "%d of %d", self.local_rank, self.local_world_size);
    probe_see(p, "whether a launcher is there", "%s", self.launched ? "yes" : "no");
}

/* "RANK=1 WORLD_SIZE=2" */
static const char *list(char *text, size_t capacity, const char *const names[ENV_COUNT],
                        char values[ENV_COUNT][ENV_TEXT], unsigned mask) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < ENV_COUNT; i++)
        if (mask >> i & 1)
            length +=
                (size_t)snprintf(text + length, capacity - length, "%s%s=%s", length ? " " : "", names[i], values[i]);
    return text;
}

static void case_of(probe *p, const char *const names[ENV_COUNT], char values[ENV_COUNT][ENV_TEXT], unsigned mask) {
    char text[240];
    probe_case(p, "%s", mask ? list(text, sizeof text, names, values, mask) : "none of the six variables");
}

/* A random rank of a job on machines with `here` ranks each; `world` is a multiple of that. */
static void read_one(probe *p, const char *const names[ENV_COUNT], int world, int here) {
    char values[ENV_COUNT][ENV_TEXT];
    int rank = (int)probe_draw(p, (uint64_t)world);
    int local = world == here ? rank : (int)probe_draw(p, (uint64_t)here);
    /* on several machines the two differ, so that a body that confuses them fails */
    if (world != here && local == rank) rank = here + local;
    write_values(values, (const int[]){rank, world, local, here});
    case_of(p, names, values, ALL);
    forget();
    say(names, values, ALL);
    see_rank(p);
}

static void env_read(probe *p) {
    static const char *const *const launchers[] = {by_rank, by_mpirun, by_mpiexec};
    static const int jobs[][2] = {{2, 2}, {3, 3}, {1, 1}, {4, 2}, {8, 4}, {12, 3}, {7, 3}, {64, 64}, {64, 8}};
    for (size_t l = 0; l < sizeof launchers / sizeof launchers[0]; l++)
        for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
            for (int again = 0; again < 3; again++) read_one(p, launchers[l], jobs[j][0], jobs[j][1]);
}

static unsigned bit_of(const char *name) {
    for (int i = 0; i < ENV_COUNT; i++)
        if (strcmp(name, by_rank[i]) == 0) return 1u << i;
    return 0;
}

/* The message may name any variable that is set, and any that is missing. */
static void see_whether_it_says_so(probe *p, const char *message, unsigned known) {
    char set[ENV_TEXT] = "", missing[ENV_TEXT] = "";
    bool is_told = sscanf(message, "the environment has %31s but not %31[A-Z_]:", set, missing) == 2 &&
                   bit_of(set) & known && bit_of(missing) & ~known;
    probe_see(p, "whether the message names one that is set and one that is missing", "%s", is_told ? "yes" : "no");
}

static void half(probe *p, unsigned mask) {
    char values[ENV_COUNT][ENV_TEXT], message[512] = "";
    write_values(values, (const int[]){1, 3, 1, 3});
    case_of(p, by_rank, values, mask);
    forget();
    say(by_rank, values, mask);
    see_rank(p);
    ddp_rank self;
    if (discover(&self, message) != LS_OK) see_whether_it_says_so(p, message, mask);
}

/* An empty variable is set: alone it does not mean "no launcher", and with others it is not the missing one. */
static void half_empty(probe *p, int which, unsigned mask) {
    char values[ENV_COUNT][ENV_TEXT], message[512] = "", missing[ENV_TEXT] = "";
    ddp_rank self;
    write_values(values, (const int[]){1, 3, 1, 3});
    values[which][0] = '\0';
    case_of(p, by_rank, values, mask);
    forget();
    say(by_rank, values, mask);
    probe_see(p, "reading it where a variable is empty", "%s", ls_status_text(discover(&self, message)));
    bool is_missing = sscanf(message, "the environment has %*s but not %31[A-Z_]:", missing) == 1 &&
                      strcmp(missing, by_rank[which]) == 0;
    probe_see(p, "whether the message calls the empty variable missing", "%s", is_missing ? "yes" : "no");
}

/* RANK is missing, but mpirun's variables give the rank. */
static void half_known(probe *p, unsigned mask) {
    char values[ENV_COUNT][ENV_TEXT];
    int here = 2 + (int)probe_draw(p, 3), local = (int)probe_draw(p, (uint64_t)here);
    write_values(values, (const int[]){here + local, 3 * here, local, here});
    char text[240];
    probe_case(p, "%s; and mpirun's own variables", list(text, sizeof text, by_rank, values, mask));
    forget();
    say(by_mpirun, values, NUMBERS);
    say(by_rank, values, mask);
    see_rank(p);
}

static void env_half(probe *p) {
    half(p, 0);
    for (int count = 1; count <= ENV_COUNT; count++)
        for (unsigned mask = 0; mask <= ALL; mask++)
            if (__builtin_popcount(mask) == count) half(p, mask);
    for (int which = 0; which < ENV_COUNT; which++) {
        half_empty(p, which, 1u << which);
        half_empty(p, which, ALL);
    }
    half_known(p, ALL & ~(1u << LOCAL_RANK | 1u << LOCAL_WORLD_SIZE));
    half_known(p, ALL & ~(1u << WORLD_SIZE));
    half_known(p, 1u << RANK | 1u << WORLD_SIZE);
}

/* One of the numbers is an invalid text, the others are right. */
static void wrong(probe *p, const char *const names[ENV_COUNT], const int right[ENV_NUMBERS], int which,
                  const char *text) {
    char values[ENV_COUNT][ENV_TEXT], message[512] = "", variable[ENV_TEXT] = "";
    ddp_rank self;
    write_values(values, right);
    snprintf(values[which], ENV_TEXT, "%s", text);
    case_of(p, names, values, NUMBERS);
    forget();
    say(names, values, ALL);
    probe_see(p, "reading it", "%s", ls_status_text(discover(&self, message)));
    (void)sscanf(message, "the environment's %31s is '", variable);
    probe_see(p, "the variable that is refused", "%s", variable[0] ? variable : "none");
}

static void env_wrong(probe *p) {
    static const char *const texts[] = {"-1", "", "1x", " 1", "x", "4294967297", "65"};
    int here = 2 + (int)probe_draw(p, 6), local = (int)probe_draw(p, (uint64_t)here), world = 4 * here;
    const int right[ENV_NUMBERS] = {here + local, world, local, here};
    const int past[ENV_NUMBERS] = {world, 0, here,
                                   world + 1}; /* the nearest numbers that are too large, or too small */
    for (int which = 0; which < ENV_NUMBERS; which++) {
        char text[ENV_TEXT];
        snprintf(text, sizeof text, "%d", past[which]);
        wrong(p, by_rank, right, which, text);
        wrong(p, by_mpirun, right, which, text);
        for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) wrong(p, by_rank, right, which, texts[t]);
    }
    wrong(p, by_rank, right, LOCAL_WORLD_SIZE, "0");
    char values[ENV_COUNT][ENV_TEXT];
    write_values(values, right);
    case_of(p, by_mpiexec, values, 1u << RANK | 1u << WORLD_SIZE);
    forget();
    say(by_mpiexec, values, 1u << RANK | 1u << WORLD_SIZE);
    char message[512] = "";
    ddp_rank self;
    probe_see(p, "reading it", "%s", ls_status_text(discover(&self, message)));
    probe_see(p, "whether the message asks for LOCAL_RANK", "%s", strstr(message, "LOCAL_RANK") ? "yes" : "no");
}

/* --- the letter ------------------------------------------------------------------------------------------------------ */

enum { MOST_RANKS = LS_COMM_MAX_RANKS };

enum operation { OPERATION_SEND, OPERATION_RECV };
enum failure { REFUSED, FAILS_LATER };

/* One operation of one rank that is made to fail. */
struct fault {
    int rank; /* -1: none */
    enum operation operation;
    enum failure failure;
};

struct round {
    int64_t begun[HELLO_LETTER], junk; /* rank 0's letter, and the contents of the others' */
    struct fault fault;
    int64_t letters[MOST_RANKS][HELLO_LETTER];
    ls_status status[MOST_RANKS];
    bool complained[MOST_RANKS];
    ls_comm_traffic traffic[MOST_RANKS];
};

/* The fault of the current round. */
static struct fault fault = {.rank = -1};

ls_status __real_ls_comm_send(ls_comm *comm, ls_stream *stream, const void *buffer, size_t count, ls_dtype dtype,
                              int peer);
ls_status __real_ls_comm_recv(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int peer);
ls_status __wrap_ls_comm_send(ls_comm *comm, ls_stream *stream, const void *buffer, size_t count, ls_dtype dtype,
                              int peer);
ls_status __wrap_ls_comm_recv(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int peer);

/* The operation is executed nevertheless, so that a body that ignores the failure ends without another one. */
static ls_status break_operation(const ls_comm *comm, ls_stream *stream, enum operation operation, ls_status status) {
    if (ls_comm_rank(comm) != fault.rank || operation != fault.operation) return status;
    if (fault.failure == REFUSED) return LS_ERR_PEER;
    ls_device_fail(ls_stream_device(stream), LS_ERR_PEER);
    return status;
}

ls_status __wrap_ls_comm_send(ls_comm *comm, ls_stream *stream, const void *buffer, size_t count, ls_dtype dtype,
                              int peer) {
    ls_status status = __real_ls_comm_send(comm, stream, buffer, count, dtype, peer);
    return break_operation(comm, stream, OPERATION_SEND, status);
}

ls_status __wrap_ls_comm_recv(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int peer) {
    ls_status status = __real_ls_comm_recv(comm, stream, buffer, count, dtype, peer);
    return break_operation(comm, stream, OPERATION_RECV, status);
}

/* Reads the letter as soon as the call has returned, and overwrites its memory. On compute streams: shuffled work there
 * that waits for other ranks has a thread of its own (common/device/cpu_shuffle.c). */
static ls_status pass_letter(crew_rank *rank) {
    struct round *round = rank->argument;
    ls_stream *stream = ls_device_stream(rank->device, LS_STREAM_COMPUTE);
    char message[512] = "";
    int64_t letter[HELLO_LETTER];
    for (int i = 0; i < HELLO_LETTER; i++) letter[i] = rank->rank == 0 ? round->begun[i] : round->junk - i;
    ls_log_sink before = ls_log_capture(message, sizeof message);
    ls_status status = round->status[rank->rank] = hello_pass_letter(rank->comm, stream, letter);
    if (status != LS_OK) ls_comm_abort(rank->comm, "this rank has failed"); /* the others need not wait for it */
    ls_log_restore(before);
    round->complained[rank->rank] = message[0] != '\0';
    memcpy(round->letters[rank->rank], letter, sizeof letter);
    for (int i = 0; i < HELLO_LETTER; i++) letter[i] = round->junk;
    if (status == LS_OK) status = ls_stream_synchronize(stream);
    ls_comm_traffic_read(rank->comm, &round->traffic[rank->rank]);
    return status;
}

static void see_letters(probe *p, const struct round *round, int ranks) {
    for (int r = 0; r < ranks; r++) {
        const int64_t *letter = round->letters[r];
        probe_see(p, probe_name(p, "rank %d's letter", r), "%lld, signed by %lld, who add up to %lld",
                  (long long)letter[HELLO_WORD], (long long)letter[HELLO_SIGNED], (long long)letter[HELLO_SUM]);
    }
    for (int r = 0; r < ranks; r++)
        probe_see(p, probe_name(p, "what rank %d's operations report", r), "%s",
                  round->complained[r] ? "an error" : "nothing");
    for (int r = 0; r < ranks; r++) {
        const ls_comm_traffic *traffic = &round->traffic[r];
        probe_see(p, probe_name(p, "rank %d's messages", r), "%llu sent, %llu received",
                  (unsigned long long)traffic->sent_messages, (unsigned long long)traffic->received_messages);
    }
}

static void round_of(probe *p, const char *streams, int ranks, const int64_t begun[HELLO_LETTER]) {
    struct round round = {.junk = -1 - (int64_t)probe_draw(p, 1000)};
    memcpy(round.begun, begun, sizeof round.begun);
    probe_must(p, "the round", crew_run(ranks, NULL, streams, pass_letter, &round));
    see_letters(p, &round, ranks);
}

/* With two ranks the left and the right neighbour are the same. */
static void letters(probe *p, const char *streams, int first_world) {
    static const int worlds[] = {1, 2, 3, 4, 5, 8};
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        if (worlds[w] < first_world) continue;
        probe_case(p, "%d rank%s, %s", worlds[w], worlds[w] > 1 ? "s" : "",
                   strcmp(streams, "inline") == 0 ? "streams that run at once" : "streams that run late");
        round_of(p, streams, worlds[w], (const int64_t[]){1 + (int64_t)probe_draw(p, 1000000), 0, 0});
    }
}

/* An integer that neither 32 bits nor a double can represent. */
static int64_t draw_large(probe *p) {
    return ((int64_t)1 << 61) + ((int64_t)probe_draw(p, 1 << 30) << 24) + (int64_t)probe_draw(p, 1 << 24);
}

/* Signatures are added to the letter's values, whatever these are. */
static void letter_of_large_numbers(probe *p, int ranks) {
    const int64_t begun[] = {draw_large(p), draw_large(p), -draw_large(p)};
    probe_case(p, "%d ranks, and a letter that has %lld signatures, who add up to %lld", ranks,
               (long long)begun[HELLO_SIGNED], (long long)begun[HELLO_SUM]);
    round_of(p, "inline", ranks, begun);
}

/* The failure of each operation must be returned. */
static void with_fault(probe *p, int ranks, struct fault broken) {
    struct round round = {.junk = -1, .begun = {7}};
    probe_case(p, "%d ranks, of which rank %d's %s %s", ranks, broken.rank,
               broken.operation == OPERATION_SEND ? "send" : "receive",
               broken.failure == REFUSED ? "returns a failure" : "fails on its stream");
    fault = broken;
    (void)crew_run(ranks, NULL, "inline", pass_letter, &round);
    fault.rank = -1;
    probe_see(p, probe_name(p, "what rank %d returns", broken.rank), "%s",
              round.status[broken.rank] == LS_OK ? "success" : "a failure");
}

static void with_every_fault(probe *p, enum failure failure) {
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int r = 0; r < ranks; r++)
            for (int operation = OPERATION_SEND; operation <= OPERATION_RECV; operation++)
                with_fault(p, ranks, (struct fault){.rank = r, .operation = operation, .failure = failure});
}

static void letter_round(probe *p) {
    letters(p, "inline", 1);
    letter_of_large_numbers(p, 1);
    letter_of_large_numbers(p, 3);
    letter_of_large_numbers(p, LS_COMM_MAX_RANKS);
    with_every_fault(p, REFUSED);
}

/* A body that does not wait for an operation does not notice its failure either. */
static void letter_waits(probe *p) {
    for (int again = 0; again < 3; again++) {
        char streams[32];
        snprintf(streams, sizeof streams, "shuffle:%d", 1 + (int)probe_draw(p, 1000));
        letters(p, streams, 2);
    }
    with_every_fault(p, FAILS_LATER);
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"env-read", env_read},         {"env-half", env_half},
                                         {"env-wrong", env_wrong},       {"letter-round", letter_round},
                                         {"letter-waits", letter_waits}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
