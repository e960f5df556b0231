/* Which launcher has started this process, and which of how many it is: what ddprun, torchrun, mpirun, mpiexec and srun
 * say in the environment. The table of their variables is in launcher.c. */
#ifndef LS_BASE_LAUNCHER_H
#define LS_BASE_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

#define LS_JOB_CAPACITY 128

typedef enum ls_place_kind { LS_PLACE_RANK, LS_PLACE_SIZE, LS_PLACE_LOCAL_RANK, LS_PLACE_LOCAL_SIZE } ls_place_kind;
enum { LS_PLACE_COUNT = LS_PLACE_LOCAL_SIZE + 1 };

/* One number, as the launcher wrote it: nobody has checked that it is one. */
typedef struct ls_place {
    const char *variable; /* where it was found; NULL: nobody says it */
    const char *text;
} ls_place;

/* Texts live as long as the environment, or as this struct. */
typedef struct ls_launcher {
    const char *name;      /* "mpirun"; NULL: no launcher says a rank and a size */
    bool by_rank_variable; /* the rank is that of RANK: ddprun, torchrun, or by hand */
    ls_place place[LS_PLACE_COUNT];
    char job[LS_JOB_CAPACITY]; /* the same text in all processes of the job, and in no other job; "": not known */
    size_t job_length;         /* from LS_JOB_CAPACITY on: `job` is only the name's beginning */
    char local_size[16];       /* what a place points to, where it had to be worked out */
    /* another launcher that says another rank or size, though it cannot have started this one; NULL: there is none */
    const char *against;
    ls_place against_place[LS_PLACE_COUNT];
} ls_launcher;

/* Reads the environment. RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE count most. What they leave out comes from
 * the launcher's own variables, unless those speak of another rank or size: then they are another launcher's, which has
 * started this one (an agent or a daemon on each machine; launcher.c has the rules), or `against` is set. The job's name
 * is LS_JOB if that is set, or else the launcher's name for it. */
void ls_launcher_find(ls_launcher *out);

/* LS_ERR_USAGE: two launchers contradict each other. The line has their variables, and which to unset. */
ls_status ls_launcher_check(const ls_launcher *launcher);

/* For programs that are to run once: LS_ERR_USAGE where a launcher has started several copies, or two contradict each
 * other. `harm` says what each
 * copy would do, `advice` what to do instead. */
ls_status ls_launcher_refuse_copies(const char *harm, const char *advice);

#endif
