/* Folders for results. */
#ifndef LS_BASE_FOLDER_H
#define LS_BASE_FOLDER_H

#include "common/base/status.h"

/* Makes the folder, with those above it; what is there already stays. LS_ERR_IO, reported. */
ls_status ls_make_folders(const char *folder);

#endif
