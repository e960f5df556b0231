/* The files that replay knows by name: labs/replay/nodes/NAME.json, labs/replay/workloads/NAME.json. */
#ifndef LABS_REPLAY_ENGINE_LIBRARY_H
#define LABS_REPLAY_ENGINE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

#define LS_LIBRARY_PATH 1024
#define LS_NODES_FOLDER "labs/replay/nodes"
#define LS_WORKLOADS_FOLDER "labs/replay/workloads"

/* The path of the file that `name` means. A name with "/" in it, or with ".json" at its end, is a path itself. Any
 * other means FOLDER/NAME.json: in the current folder, or in the folder above the running program's (for build/replay),
 * or two above it (for build/tests/test_x). LS_ERR_IO: there is none; the line says which were looked for. */
ls_status ls_library_find(char path[LS_LIBRARY_PATH], const char *folder, const char *name);

/* Whether the project has that file, "plots/tn_fit.gp", in one of the same places; then its path. */
bool ls_library_has(char path[LS_LIBRARY_PATH], const char *file);

#endif
