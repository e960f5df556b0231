#ifndef DDP_LAUNCH_OPEN_FILES_H
#define DDP_LAUNCH_OPEN_FILES_H

#include "common/base/status.h"

/* Whether this process may open `count` more files (pipes and sockets count), which `who` needs. If not, LS_ERR_SYSTEM
 * after a line that says so: later on, each of them would fail in words of its own. */
ls_status ddp_check_open_files(int count, const char *who);

#endif
