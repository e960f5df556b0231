#define _GNU_SOURCE
#include "ddp_procs/launch/store_pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/secret.h"
#include "ddp_procs/launch/store_address.h"

enum { TOKEN_DIGITS = 32 };

ls_status ddp_store_pass_of_rank(ddp_store_pass *pass, const ddp_rank *self) {
    const char *token = getenv("LS_JOB_TOKEN");
    size_t length = token ? strlen(token) : 0;
    *pass = (ddp_store_pass){.world_size = self->world_size, .rank = self->rank};
    memcpy(pass->job, self->job, sizeof pass->job);
    if (length >= sizeof pass->token)
        return ls_fail(LS_ERR_INVALID, "the environment's LS_JOB_TOKEN has %zu characters; expected at most %zu",
                       length, sizeof pass->token - 1);
    if (token) memcpy(pass->token, token, length);
    return LS_OK;
}

ls_status ddp_store_pass_make(ddp_store_pass *pass, const char *job, int world_size) {
    *pass = (ddp_store_pass){.world_size = world_size};
    snprintf(pass->job, sizeof pass->job, "%s", job);
    return ls_secret_make(pass->token, TOKEN_DIGITS);
}

ls_status ddp_store_pass_check(const ddp_store_pass *pass, const char *host, int port) {
    if (pass->token[0] != '\0' || ddp_address_socket_name(host) || ddp_address_is_loopback(host)) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "a store at %s:%d is open to other machines, but this job has no secret: set LS_JOB_TOKEN to the "
                   "same random text for all %s, or %s to 127.0.0.1 for this machine alone",
                   host, port, pass->of_agent ? "hosts" : "ranks", pass->of_agent ? "--master-addr" : "MASTER_ADDR");
}
