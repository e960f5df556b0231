/* Error messages for files and folders that --data refuses. Private to common/data. */
#ifndef LS_DATA_REFUSAL_H
#define LS_DATA_REFUSAL_H

#include <stdbool.h>

#include "common/base/status.h"

/* LS_ERR_IO unless `folder` exists. */
ls_status ls_data_check_folder(const char *folder);

/* LS_ERR_IO, with a message: the folder has none of the accepted files. */
ls_status ls_data_refuse_folder(const char *folder);

#endif
