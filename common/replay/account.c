/* skeleton */
#include "common/replay/account.h"

ls_status ls_account_make(struct ls_account **out, const ls_trace *trace, const ls_timeline *timeline,
                          const ls_node *node) {
    (void)out;
    (void)trace;
    (void)timeline;
    (void)node;
    return LS_ERR_UNSUPPORTED;
}
void ls_account_free(struct ls_account *account) { (void)account; }
ls_status ls_account_recorded(struct ls_account **out, const ls_trace *trace) {
    (void)out;
    (void)trace;
    return LS_ERR_UNSUPPORTED;
}
