#include "common/comm/allreduce_tuning.h"

#include "common/base/log.h"

ls_status ls_allreduce_tuning_load(ls_allreduce_tuning **out, const char *path) {
    *out = NULL;
    return ls_fail(LS_ERR_IO, "cannot read %s", path);
}

void ls_allreduce_tuning_destroy(ls_allreduce_tuning *tuning) { (void)tuning; }

const ls_allreduce_algorithm *ls_allreduce_choose(const ls_allreduce_tuning *tuning, int world_size, size_t nbytes) {
    (void)tuning, (void)world_size, (void)nbytes;
    return &ls_allreduce_algorithms[0];
}

uint64_t ls_allreduce_tuning_hash(const ls_allreduce_tuning *tuning) {
    (void)tuning;
    return 0;
}
