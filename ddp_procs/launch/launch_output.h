/* Copies the output of ranks: to the console with the rank in front of each line (--tee), and to a file per rank (--tee
 * and --redirects with --log-dir). Without either, a rank inherits the launcher's stream. */
#ifndef DDP_LAUNCH_LAUNCH_OUTPUT_H
#define DDP_LAUNCH_LAUNCH_OUTPUT_H

#include "ddp_procs/launch/launch_logs.h"
#include "ddp_procs/launch/launch_options.h"
#include "ddp_procs/launch/launch_plan.h"

typedef struct ddp_output ddp_output;

/* File descriptors that the ranks of such a job need for their output, at most. */
int ddp_output_descriptors(const ddp_launch_options *options);

/* For one start of the ranks. *out is NULL if nothing is to be done, which all functions take. */
ls_status ddp_output_create(ddp_output **out, const ddp_spawn_plan *plan, const ddp_logs *logs);

/* Fills in a rank's stdout and stderr; -1: the launcher's. They close on exec; the caller closes them. */
ls_status ddp_output_open(ddp_output *output, int rank, ddp_rank_files *files);

/* Begins to copy, when all ranks have been started. */
ls_status ddp_output_start(ddp_output *output);

/* Copies what is left, when the ranks have ended, and frees all. LS_ERR_IO if something could not be written, now or
 * before; it was reported. Waits DDP_OUTPUT_PATIENCE_S at most for a console that takes nothing. */
ls_status ddp_output_finish(ddp_output *output);

#define DDP_OUTPUT_PATIENCE_S 5.0

#endif
