/* The line for what --data does not take: what it is, and what to do. Private to common/data. */
#ifndef LS_DATA_REFUSAL_H
#define LS_DATA_REFUSAL_H

#include <stdbool.h>

#include "common/base/status.h"

/* LS_ERR_IO unless there is a folder of that name. */
ls_status ls_data_check_folder(const char *folder);

/* LS_ERR_IO: of a folder that has none of the files that are taken. */
ls_status ls_data_refuse_folder(const char *folder);

#endif
