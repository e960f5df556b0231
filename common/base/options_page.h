/* The --help page of a table of options; options.h calls it. */
#ifndef LS_BASE_OPTIONS_PAGE_H
#define LS_BASE_OPTIONS_PAGE_H

#include "common/base/option.h"
#include "common/base/status.h"

/* Writes the page to stdout: usage line, purpose, then each row with its present value as the default. LS_ERR_IO if the
 * write fails. */
ls_status ls_options_page(const ls_command *command, const char *program);

/* Writes a line with the program's name, without its folder, and LS_VERSION to stdout. LS_ERR_IO. */
ls_status ls_options_version(const char *program);

#endif
