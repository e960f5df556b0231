/* Creates folders for results. */
#ifndef LS_BASE_FOLDER_H
#define LS_BASE_FOLDER_H

#include "common/base/status.h"

/* Creates the folder and its parents. Existing folders stay as they are. LS_ERR_IO, reported. */
ls_status ls_make_folders(const char *folder);

#endif
