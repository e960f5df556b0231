/* The settings of ddp_train: the common training options, and DDP's own. */
#ifndef DDP_SETTINGS_H
#define DDP_SETTINGS_H

#include "common/comm/mesh.h"
#include "common/seam/devices.h"
#include "common/seam/options.h"
#include "ddp_procs/compression.h"
#include "ddp_procs/launch/limits.h"
#include "ddp_procs/schedule.h"

/* The table's rows: the common ones, and three parts of DDP's own. */
enum { DDP_MAX_ALGORITHMS = 16, DDP_TABLE_ROWS = 19, DDP_OPTION_ROWS = LS_TRAIN_OPTION_ROWS + 3 * DDP_TABLE_ROWS };

typedef struct ddp_settings {
    ls_train_options train;
    int spawn, max_restarts;
    const char *elastic;    /* MIN:MAX, or NULL */
    ddp_limits limits;      /* parsed from `elastic` */
    const char *local_rank; /* an old launcher's argument; NULL: none */
    ls_int_list device_ids;
    int shard, backend, allreduce;
    const char *algorithms[DDP_MAX_ALGORITHMS + 1];
    double bucket_cap_mb;
    const char *compress;
    ddp_compression compression; /* parsed from `compress` */
    bool overlap, find_unused;
    int prefetch_blocks;           /* of --shard-state 3 */
    int shard_state;               /* the stage of ZeRO; 0: every rank has all */
    int pipeline;                  /* number of stages; 1: no pipeline */
    int schedule;                  /* ddp_schedule_kind of a pipeline */
    int tensor;                    /* ranks that split each layer; 1: no tensor parallelism */
    bool sequence_parallel;        /* ... and split the positions of a text */
    bool show_schedule;            /* print it, and train nothing */
    bool uneven, join, join_throw; /* ranks that run out of samples at different steps (distributed.h) */
    int join_divide;               /* 0: by the initial world size, 1: by the ranks that have samples */
    bool debug_ranks, debug_collectives, debug_values;
    const char *flight; /* the folder of flight records; NULL: none */
} ddp_settings;

/* The defaults that --help shows. */
ddp_settings ddp_settings_defaults(void);

/* Writes the option table's rows, pointing into `s`; returns how many. Ranks compare these rows (compared.h). */
size_t ddp_option_rows(ddp_settings *s, ls_option rows[DDP_OPTION_ROWS]);

/* Parses the command line. LS_ERR_USAGE with one line; *help: --help was given and has been printed. */
ls_status ddp_settings_parse(ddp_settings *s, int argc, char **argv, bool *help);

/* Checks combinations of options, about ranks that may run out of samples and about shards; after
 * ls_train_options_check. LS_ERR_USAGE with one line. */
ls_status ddp_settings_check(const ddp_settings *s);

/* The sizes of the mesh's axes; the data axis gets the ranks that the other axes leave. LS_ERR_USAGE with one line:
 * world_size is not divisible by the other axes. */
ls_status ddp_settings_sizes(const ddp_settings *s, int world_size, int sizes[LS_MESH_AXES]);

/* The schedule given by --pipeline, --schedule and --accumulate. */
static inline ddp_schedule ddp_schedule_of(const ddp_settings *s) {
    return (ddp_schedule){(ddp_schedule_kind)s->schedule, s->pipeline, s->train.accumulate};
}

/* For the main rank, after the check: prints a note for each of DDP's options that is given but has no effect. */
void ddp_settings_note_idle(const ddp_settings *s, int world_size);

/* Whether nothing is computed: one process is rank 0 of a job whose other ranks do not exist. */
static inline bool ddp_is_meta(const ddp_settings *s) { return s->train.device_kind == LS_TRAIN_DEVICES_META; }

/* How samples are divided among the ranks. */
static inline ls_sharing ddp_sharing_of(const ddp_settings *s) {
    return (ls_sharing){.shard = (ls_shard)s->shard, .uneven = s->uneven, .join = s->join};
}

#endif
