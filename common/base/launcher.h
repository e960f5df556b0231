/* Finds the launcher that started this process, and the rank and world size that it set: the environment variables of
 * ddprun, torchrun, mpirun, mpiexec and srun. Their table is in launcher.c. */
#ifndef LS_BASE_LAUNCHER_H
#define LS_BASE_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

#define LS_JOB_CAPACITY 128

typedef enum ls_place_kind { LS_PLACE_RANK, LS_PLACE_SIZE, LS_PLACE_LOCAL_RANK, LS_PLACE_LOCAL_SIZE } ls_place_kind;
enum { LS_PLACE_COUNT = LS_PLACE_LOCAL_SIZE + 1 };

/* A number as the launcher wrote it, not parsed yet. */
typedef struct ls_place {
    const char *variable; /* the environment variable that has it; NULL: none has */
    const char *text;
} ls_place;

/* Texts are valid as long as both the environment and this struct. */
typedef struct ls_launcher {
    const char *name;      /* "mpirun"; NULL: no launcher sets a rank and a size */
    bool by_rank_variable; /* the rank comes from RANK: ddprun, torchrun, or set by hand */
    ls_place place[LS_PLACE_COUNT];
    char job[LS_JOB_CAPACITY]; /* the same text in all processes of the job, and in no other job; "": not known */
    size_t job_length;         /* LS_JOB_CAPACITY or more: `job` is truncated */
    char local_size[16];       /* storage for a place that had to be computed */
    /* another launcher whose variables give a different rank or size though it cannot have started `name`; NULL:
     * none */
    const char *against;
    ls_place against_place[LS_PLACE_COUNT];
} ls_launcher;

/* Reads the environment. RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE take precedence. Missing ones come from the
 * launcher's own variables, unless those give a different rank or size: then either they belong to an outer launcher
 * that started this one (an agent or a daemon on each machine; launcher.c has the rules), or `against` is set. The
 * job's name is LS_JOB if that is set, else the launcher's job id. */
void ls_launcher_find(ls_launcher *out);

/* LS_ERR_USAGE: two launchers contradict each other. The message names their variables and says which to unset. */
ls_status ls_launcher_check(const ls_launcher *launcher);

/* For programs that must run only once: LS_ERR_USAGE if a launcher has started several copies, or if two launchers
 * contradict each other. `harm` says what each copy would do, `advice` what to do instead. */
ls_status ls_launcher_refuse_copies(const char *harm, const char *advice);

#endif
