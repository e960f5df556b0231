#include "ddp_procs/launch/limits.h"

#include <stdio.h>

#include "common/base/log.h"
#include "common/comm/comm.h"

ls_status ddp_limits_parse(ddp_limits *limits, const char *text, int ranks) {
    ddp_limits l = {0, 0};
    int used = 0;
    *limits = l;
    if (!text) return LS_OK;
    bool read = sscanf(text, "%2d:%2d%n", &l.least, &l.most, &used) == 2 && text[used] == '\0';
    if (!read || l.least < 1 || l.most < l.least || l.most > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_USAGE, "--elastic is '%s'; expected MIN:MAX, two numbers of ranks from 1 to %d", text,
                       LS_COMM_MAX_RANKS);
    if (ranks > 0 && (ranks < l.least || ranks > l.most))
        return ls_fail(LS_ERR_USAGE, "--elastic %s does not allow the %d rank%s to be started", text, ranks,
                       ranks == 1 ? "" : "s");
    *limits = l;
    return LS_OK;
}
