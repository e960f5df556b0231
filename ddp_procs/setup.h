/* Everything that a rank of ddp_train creates and destroys. */
#ifndef DDP_SETUP_H
#define DDP_SETUP_H

#include "common/seam/devices.h"
#include "ddp_procs/agree.h"
#include "ddp_procs/groups.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/settings.h"

/* Zero-filled except for `self`: nothing is created yet. */
typedef struct ddp_setup {
    ddp_rank self;
    ddp_store *store;
    ddp_agreement agreement; /* if there is a store */
    int sizes[LS_MESH_AXES]; /* of the mesh's axes */
    ddp_hosts hosts;         /* of the job's ranks, by the launcher's numbers */
    ddp_groups groups;
    int64_t meeting; /* after which the groups form; 0: none (elastic.h) */
    bool sync_bn;
    ls_device_choice choice; /* of all ranks of this machine */
    ls_device *device;
    ls_model *model;
    ls_dataset *train, *test;
    ls_parallel *parallel;
} ddp_setup;

/* All checks that need no other rank: the mesh, and combinations of options. */
ls_status ddp_setup_check(ddp_setup *setup, ddp_settings *s);

/* Chooses the devices; `flags` of ls_devices_find. */
ls_status ddp_setup_choose_devices(ddp_setup *setup, const ddp_settings *s, int flags);

/* Opens the model, without weights, and the data, unless they are open. `flags` of ls_train_open_model. */
ls_status ddp_setup_open_model(ddp_setup *setup, ddp_settings *s, int flags);

/* Initialises the model according to --init or --seed. `tell`: print notes about the model and about the weights that
 * are read. */
ls_status ddp_setup_fill_model(ddp_setup *setup, const ddp_settings *s, bool tell);

/* Everything that does not depend on the other ranks' number: finds the other ranks and refuses to train if settings or
 * data differ from rank 0's; opens device, model and data. Collective, except on a late rank (agree.h). */
ls_status ddp_setup_begin(ddp_setup *setup, ddp_settings *s);

/* Joins the groups; then ddp_setup_form_parallel creates the mode that trains in them. Both are collective. */
ls_status ddp_setup_join_groups(ddp_setup *setup, const ddp_settings *s);
ls_status ddp_setup_form_parallel(ddp_setup *setup, const ddp_settings *s);

/* Destroys what the last two have created; `status`: of the run; after a failure no rank waits for this one. */
void ddp_setup_part(ddp_setup *setup, ls_status status);

/* Destroys everything. */
void ddp_setup_end(ddp_setup *setup, ls_status status);

#endif
