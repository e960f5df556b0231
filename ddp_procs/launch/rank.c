#include "ddp_procs/launch/rank.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/launcher.h"
#include "common/base/log.h"
#include "common/comm/comm.h"

#define LOOPBACK "127.0.0.1"

/* --- the rank's number -------------------------------------------------------------------------------------------- */

static const char *const variables[] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR", "MASTER_PORT"};
enum { VARIABLE_COUNT = sizeof variables / sizeof variables[0] }; /* the first four: launcher->place */

static ls_status fail_incomplete(const char *set, const char *missing) {
    return ls_fail(LS_ERR_INVALID,
                   "the environment has %s but not %s: start the ranks with ddprun, or set all of RANK, WORLD_SIZE, "
                   "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none to run alone",
                   set, missing);
}

/* Expects none of the variables (*any false), or all: the launcher may supply missing ones. */
static ls_status expect_all(const ls_launcher *launcher, bool *any) {
    const char *set = NULL, *missing = NULL;
    for (int i = 0; i < VARIABLE_COUNT; i++) {
        bool is_set = getenv(variables[i]) != NULL;
        bool is_known = is_set || (i < LS_PLACE_COUNT && launcher->place[i].text);
        if (is_set && !set) set = variables[i];
        if (!is_known && !missing) missing = variables[i];
    }
    *any = set != NULL;
    return set && missing ? fail_incomplete(set, missing) : LS_OK;
}

/* Reads a number of the launcher's, from `least` to `most`; `meaning` is for the error message. */
static ls_status read_number(const ls_place *place, int least, int most, const char *meaning, int *out) {
    const char *text = place->text ? place->text : "";
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    if (!is_number || value < least || value > most)
        return ls_fail(LS_ERR_INVALID, "the environment's %s is '%s', but must be a number from %d to %d (%s)",
                       place->variable, text, least, most, meaning);
    *out = (int)value;
    return LS_OK;
}

static ls_status expect_local_places(const ls_launcher *launcher) {
    if (launcher->place[LS_PLACE_LOCAL_RANK].text && launcher->place[LS_PLACE_LOCAL_SIZE].text) return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "%s does not tell which of its ranks run on this machine: set LOCAL_RANK and LOCAL_WORLD_SIZE",
                   launcher->name);
}

/* A number is read when its bounds are known: sizes before ranks, all ranks before those of this machine. */
static ls_status read_places(const ls_launcher *launcher, ddp_rank *self) {
    const ls_place *place = launcher->place;
    ls_status status = read_number(&place[LS_PLACE_SIZE], 1, LS_COMM_MAX_RANKS, "all ranks", &self->world_size);
    if (status == LS_OK)
        status = read_number(&place[LS_PLACE_RANK], 0, self->world_size - 1, "less than all ranks", &self->rank);
    if (status == LS_OK) status = expect_local_places(launcher);
    if (status == LS_OK)
        status = read_number(&place[LS_PLACE_LOCAL_SIZE], 1, self->world_size,
                             "the ranks on this machine, at most all of them", &self->local_world_size);
    if (status == LS_OK)
        status = read_number(&place[LS_PLACE_LOCAL_RANK], 0, self->local_world_size - 1,
                             "less than the ranks on this machine", &self->local_rank);
    return status;
}

static ls_status copy_job(const ls_launcher *launcher, ddp_rank *self) {
    if (launcher->job_length >= LS_JOB_CAPACITY)
        return ls_fail(LS_ERR_INVALID,
                       "the job's name, '%.16s...', has %zu characters; expected at most %d: set LS_JOB to a shorter "
                       "name for all ranks",
                       launcher->job, launcher->job_length, LS_JOB_CAPACITY - 1);
    memcpy(self->job, launcher->job, sizeof self->job);
    return LS_OK;
}

/* --- the rendezvous ----------------------------------------------------------------------------------------------- */

/* "tcp:HOST:PORT", of a launcher on host 0. */
static bool read_tcp_place(ddp_rank *self, const char *store) {
    const char *host = store + 4, *colon = strrchr(store, ':');
    if (strncmp(store, "tcp:", 4) != 0 || colon <= host || colon - host >= DDP_HOST_CAPACITY) return false;
    const int port = atoi(colon + 1);
    if (port < 1 || port > UINT16_MAX) return false;
    snprintf(self->master_host, sizeof self->master_host, "%.*s", (int)(colon - host), host);
    self->master_port = port;
    return true;
}

/* A launcher's store replaces MASTER_ADDR. */
static ls_status read_store_place(ddp_rank *self) {
    const char *store = getenv("LS_STORE");
    self->hosts_store = !store && self->rank == 0;
    if (!store) return LS_OK;
    size_t length = strlen(store);
    if (read_tcp_place(self, store)) return LS_OK;
    if (strncmp(store, "unix:", 5) != 0 || length == 5 || length >= DDP_HOST_CAPACITY)
        return ls_fail(
            LS_ERR_INVALID,
            "the environment's LS_STORE is '%s', but must be 'unix:' and a socket's name, 'tcp:HOST:PORT', or "
            "not set",
            store);
    memcpy(self->master_host, store, length + 1);
    return LS_OK;
}

static ls_status copy_host(ddp_rank *self, const char *host) {
    size_t length = strlen(host);
    if (length < 1 || length >= DDP_HOST_CAPACITY)
        return ls_fail(LS_ERR_INVALID, "the environment's MASTER_ADDR has %zu characters, but must have 1 to %d",
                       length, DDP_HOST_CAPACITY - 1);
    memcpy(self->master_host, host, length + 1);
    return LS_OK;
}

/* Ranks of one machine compute the port from the job's name: below the kernel's ephemeral ports. */
static int port_of_job(const char *job) {
    enum { FIRST = 20000, COUNT = 10000 };
    return FIRST + (int)(ls_hash(LS_HASH_SEED, job, strlen(job)) % COUNT);
}

/* A port next to MASTER_PORT, on which torchrun's agent listens with its own protocol. */
static int port_beside_agent(int port) {
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!agent || strcmp(agent, "True") != 0 || getenv("LS_STORE")) return port;
    return port + DDP_AGENT_PORT_OFFSET <= UINT16_MAX ? port + DDP_AGENT_PORT_OFFSET : port - DDP_AGENT_PORT_OFFSET;
}

/* mpirun, mpiexec and srun do not set the address. Ranks of one machine do not need it. */
static ls_status find_master(const ls_launcher *launcher, ddp_rank *self) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    bool here = self->local_world_size == self->world_size;
    if ((!host && !here) || (!port && (!here || !self->job[0])))
        return ls_fail(LS_ERR_INVALID,
                       "%s runs %d ranks, %d of them on this machine, but does not tell where they meet: set "
                       "MASTER_ADDR (rank 0's host) and MASTER_PORT (a port that is free there)",
                       launcher->name, self->world_size, self->local_world_size);
    self->master_port = port_of_job(self->job);
    ls_status status = copy_host(self, host ? host : LOOPBACK);
    if (status == LS_OK && port) {
        const ls_place place = {"MASTER_PORT", port};
        status = read_number(&place, 1, UINT16_MAX, "a TCP port", &self->master_port);
    }
    if (status == LS_OK) self->master_port = port_beside_agent(self->master_port);
    return status;
}

/* PyTorch's env:// has four variables. If rank 0's host is this machine, all ranks are assumed to be on it. */
static void assume_local_places(ls_launcher *launcher) {
    ls_place *place = launcher->place;
    const char *host = getenv("MASTER_ADDR");
    bool says_where = place[LS_PLACE_LOCAL_RANK].text || place[LS_PLACE_LOCAL_SIZE].text;
    if (!launcher->by_rank_variable || says_where || !host || !ddp_address_is_loopback(host)) return;
    place[LS_PLACE_LOCAL_RANK] = place[LS_PLACE_RANK];
    place[LS_PLACE_LOCAL_SIZE] = place[LS_PLACE_SIZE];
}

/* --- discovery ---------------------------------------------------------------------------------------------------- */

ls_status ddp_rank_discover(ddp_rank *out) {
    *out = (ddp_rank){0};
    ddp_rank self = {.world_size = 1, .local_world_size = 1};
    ls_launcher launcher;
    bool any = false;
    ls_launcher_find(&launcher);
    ls_status status = ls_launcher_check(&launcher);
    assume_local_places(&launcher);
    if (status != LS_OK) return status;
    if (!launcher.name || launcher.by_rank_variable) status = expect_all(&launcher, &any);
    self.launched = any || (launcher.name && strcmp(launcher.place[LS_PLACE_SIZE].text, "1") != 0);
    if (status == LS_OK && self.launched) {
        status = read_places(&launcher, &self);
        if (status == LS_OK) status = copy_job(&launcher, &self);
        if (status == LS_OK) status = find_master(&launcher, &self);
        if (status == LS_OK) status = read_store_place(&self);
    }
    if (status == LS_OK) *out = self;
    return status;
}
