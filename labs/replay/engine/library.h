/* The files that replay knows by name: labs/replay/nodes/NAME.json, labs/replay/workloads/NAME.json. */
#ifndef LABS_REPLAY_ENGINE_LIBRARY_H
#define LABS_REPLAY_ENGINE_LIBRARY_H

#include "common/base/shipped.h"
#include "common/base/status.h"

#define LS_NODES_FOLDER "labs/replay/nodes"
#define LS_WORKLOADS_FOLDER "labs/replay/workloads"

/* The path of the file that `name` means. A name with "/" in it, or with ".json" at its end, is a path itself. Any
 * other means FOLDER/NAME.json in one of the places of shipped.h. LS_ERR_IO: there is none; the message names the paths
 * that were tried. */
ls_status ls_library_find(char path[LS_SHIPPED_PATH], const char *folder, const char *name);

#endif
