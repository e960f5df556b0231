/* store_admit: the checks of a hello, in this order.
 *   token : compared first, completely, in constant time
 *   job   : two jobs on one port stay separate, though they may have the same token
 *   size  : the number of ranks, the same for all ranks of a job
 *   rank  : each is admitted once. A second process that claims a number is refused, and the first one does not notice.
 *           When the first has left, the number is free: a script may start one program after the other. The same
 *           client may have two connections for a moment, when one broke and it has made another */
#include "ddp_procs/launch/store_admit.h"

#include <string.h>

#include "common/base/secret.h"

ddp_store_result ddp_admit(ddp_admission *admission, const ddp_hello *hello) {
    const ddp_store_pass *mine = &admission->pass, *theirs = &hello->pass;
    if (!ls_secret_equal(mine->token, theirs->token, sizeof mine->token)) return DDP_RESULT_OTHER_TOKEN;
    if (strcmp(mine->job, theirs->job) != 0) return DDP_RESULT_OTHER_JOB;
    if (mine->world_size == 0) return DDP_RESULT_OK;
    if (mine->world_size != theirs->world_size) return DDP_RESULT_OTHER_SIZE;
    char *client = admission->clients[theirs->rank];
    if (admission->present[theirs->rank] > 0 && strcmp(client, hello->client) != 0) return DDP_RESULT_RANK_TAKEN;
    memcpy(client, hello->client, sizeof hello->client);
    admission->present[theirs->rank]++;
    admission->has_joined[theirs->rank] = true;
    return DDP_RESULT_OK;
}

void ddp_admission_leave(ddp_admission *admission, int rank) {
    if (admission->pass.world_size > 0) admission->present[rank]--;
}
