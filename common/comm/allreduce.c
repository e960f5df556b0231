#include "common/comm/allreduce.h"

#include <string.h>

#include "common/comm/comm_internal.h"

const ls_allreduce_algorithm ls_allreduce_algorithms[] = {
    {.name = "direct",
     .description = "each rank reduces its share in shared memory and writes it to all",
     .run = ls_allreduce_direct,
     .one_round_bytes = LS_EAGER_BYTES},
    {.name = "naive", .description = "rank 0 reduces all, then all copy (the reference)", .run = ls_allreduce_naive},
    {.name = NULL},
};

const ls_allreduce_algorithm *ls_allreduce_find(const char *name) {
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++)
        if (strcmp(row->name, name) == 0) return row;
    return NULL;
}
