/* skeleton */
#include "common/replay/engine.h"

ls_status ls_engine_run(ls_timeline **out, const ls_trace *trace, const ls_node *node) {
    (void)out;
    (void)trace;
    (void)node;
    return LS_ERR_UNSUPPORTED;
}
void ls_timeline_free(ls_timeline *timeline) { (void)timeline; }
