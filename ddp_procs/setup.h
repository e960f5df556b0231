/* Everything that a rank of ddp_train builds and takes down. */
#ifndef DDP_SETUP_H
#define DDP_SETUP_H

#include "common/seam/devices.h"
#include "ddp_procs/agree.h"
#include "ddp_procs/groups.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/settings.h"

/* Zero-filled but for `self`: nothing is built yet. */
typedef struct ddp_setup {
    ddp_rank self;
    ddp_store *store;
    ddp_agreement agreement; /* where there is a store */
    int sizes[LS_MESH_AXES]; /* of the grid's axes */
    ddp_hosts hosts;         /* of the job's ranks, by the launcher's numbers */
    ddp_groups groups;
    int64_t meeting; /* after which the groups form; 0: there is none (elastic.h) */
    bool sync_bn;
    ls_device_choice choice; /* of all ranks of this machine */
    ls_device *device;
    ls_model *model;
    ls_dataset *train, *test;
    ls_parallel *parallel;
} ddp_setup;

/* What needs no other rank: the grid, and that nothing contradicts it or anything else. */
ls_status ddp_setup_check(ddp_setup *setup, ddp_settings *s);

/* Which devices; `flags` of ls_devices_find. */
ls_status ddp_setup_choose_devices(ddp_setup *setup, const ddp_settings *s, int flags);

/* The model, without weights, and the data, unless they are open. Flags: of ls_train_open_model. */
ls_status ddp_setup_open_model(ddp_setup *setup, ddp_settings *s, int flags);

/* What --init or --seed says. `tell`: what there is to say of the model, and of the weights that are read. */
ls_status ddp_setup_fill_model(ddp_setup *setup, const ddp_settings *s, bool tell);

/* All that a rank has whoever it trains with: it finds the others, and refuses to go on with any whose settings or data are
 * not rank 0's; device, model and data. Collective, but for one that comes late. */
ls_status ddp_setup_begin(ddp_setup *setup, ddp_settings *s);

/* The groups. Collective, as is ddp_setup_form_parallel behind it: what trains in them. */
ls_status ddp_setup_join_groups(ddp_setup *setup, const ddp_settings *s);
ls_status ddp_setup_form_parallel(ddp_setup *setup, const ddp_settings *s);

/* Takes down what the last two have built; `status`: of the run, after whose failure nobody is to wait for this rank. */
void ddp_setup_part(ddp_setup *setup, ls_status status);

/* Takes down all that there is. */
void ddp_setup_end(ddp_setup *setup, ls_status status);

#endif
