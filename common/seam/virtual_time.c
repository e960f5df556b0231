#include "common/seam/virtual_time.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/seam/devices.h"

ls_status ls_virtual_time_begin(ls_train_options *o) {
    static const char *const variable = "LS_CPU_STREAMS";
    const char *streams = getenv(variable);
    if (!o->virtual_time) return LS_OK;
    if (!o->trace) return ls_fail(LS_ERR_USAGE, "--virtual-time needs a trace to be recorded: give --trace DIR, too");
    if (o->device_kind != LS_TRAIN_DEVICES_AUTO && o->device_kind != LS_TRAIN_DEVICES_CPU) {
        return ls_fail(LS_ERR_USAGE, "--virtual-time needs CPU devices; GPUs do not share cores");
    }
    if (streams && strcmp(streams, "inline") != 0 && strcmp(streams, "threads") != 0) {
        return ls_fail(LS_ERR_USAGE, "--virtual-time needs streams that run inline, or threads; %s is \"%s\"", variable,
                       streams);
    }
    o->device_kind = LS_TRAIN_DEVICES_CPU;
    if (setenv(variable, "inline", 0) != 0 || !ls_share_one_core()) {
        return ls_fail(LS_ERR_SYSTEM, "--virtual-time: this process cannot be bound to one core");
    }
    return LS_OK;
}
