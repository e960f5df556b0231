/* ddp_train — trains a model with one process per device: DistributedDataParallel. Started by ddprun (or with its
 * variables in the environment) it is one rank; with --spawn N it starts N ranks of itself; alone it is the only
 * rank. */
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "ddp_procs/ddp_run.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/schedule_show.h"

/* Prints on rank 0 only. */
static ls_status show(ddp_settings *s) {
    ddp_rank self;
    ddp_schedule schedule = ddp_schedule_of(s);
    ls_status status = ddp_rank_discover(&self);
    if (status != LS_OK || self.rank != 0) return status;
    return s->show_schedule ? ddp_schedule_show(&schedule, stdout) : ls_train_show_model(&s->train);
}

int main(int argc, char **argv) {
    ddp_settings settings = ddp_settings_defaults();
    ls_train_result result;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = ddp_settings_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    bool shows = settings.show_schedule || settings.train.show_model || settings.train.show_pytorch;
    if (shows) return ls_status_exit_code(ls_results_written(show(&settings)));
    status = settings.spawn > 0 && !ddp_is_meta(&settings) ? ddp_spawn_ranks(&settings, argv, NULL, NULL)
                                                           : ddp_run_rank(&settings, argv[0], &result);
    return ls_status_exit_code(ls_results_written(status));
}
