#include "ddp_procs/rank.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/comm/comm.h"

static const char *const variables[] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR", "MASTER_PORT"};
enum { VARIABLE_COUNT = sizeof variables / sizeof variables[0] };

/* All six, or none (*any false). */
static ls_status find_variables(bool *any) {
    const char *set = NULL, *missing = NULL;
    for (int i = 0; i < VARIABLE_COUNT; i++) {
        if (getenv(variables[i]))
            set = set ? set : variables[i];
        else
            missing = missing ? missing : variables[i];
    }
    *any = set != NULL;
    if (!set || !missing) return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "the environment has %s but not %s: start the ranks with ddprun, or set all of RANK, WORLD_SIZE, "
                   "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them to run alone",
                   set, missing);
}

static ls_status read_number(const char *name, int least, int most, const char *meaning, int *out) {
    const char *text = getenv(name);
    if (!text) text = "";
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    if (!is_number || value < least || value > most)
        return ls_fail(LS_ERR_INVALID, "the environment's %s is '%s', but must be a number from %d to %d (%s)", name,
                       text, least, most, meaning);
    *out = (int)value;
    return LS_OK;
}

static ls_status read_host(char host[DDP_HOST_CAPACITY]) {
    const char *text = getenv("MASTER_ADDR");
    if (!text) text = "";
    size_t length = strlen(text);
    if (length < 1 || length >= DDP_HOST_CAPACITY)
        return ls_fail(LS_ERR_INVALID, "the environment's MASTER_ADDR has %zu characters, but must have 1 to %d",
                       length, DDP_HOST_CAPACITY - 1);
    memcpy(host, text, length + 1);
    return LS_OK;
}

static ls_status read_store_place(ddp_rank *self) {
    const char *store = getenv("LS_STORE");
    if (store && strcmp(store, "launcher") != 0)
        return ls_fail(LS_ERR_INVALID, "the environment's LS_STORE is '%s', but must be 'launcher' or not set", store);
    self->hosts_store = !store && self->rank == 0;
    return LS_OK;
}

ls_status ddp_rank_discover(ddp_rank *out) {
    *out = (ddp_rank){0};
    ddp_rank self = {.world_size = 1, .local_world_size = 1};
    ls_status status = find_variables(&self.launched);
    if (status != LS_OK) return status;
    if (self.launched) {
        status = read_number("WORLD_SIZE", 1, LS_COMM_MAX_RANKS, "all ranks", &self.world_size);
        if (status == LS_OK) status = read_number("RANK", 0, self.world_size - 1, "less than WORLD_SIZE", &self.rank);
        if (status == LS_OK)
            status = read_number("LOCAL_WORLD_SIZE", 1, self.world_size,
                                 "the ranks on this machine, at most WORLD_SIZE", &self.local_world_size);
        if (status == LS_OK)
            status =
                read_number("LOCAL_RANK", 0, self.local_world_size - 1, "less than LOCAL_WORLD_SIZE", &self.local_rank);
        if (status == LS_OK) status = read_number("MASTER_PORT", 1, UINT16_MAX, "a TCP port", &self.master_port);
        if (status == LS_OK) status = read_host(self.master_host);
        if (status == LS_OK) status = read_store_place(&self);
    }
    if (status == LS_OK) *out = self;
    return status;
}
