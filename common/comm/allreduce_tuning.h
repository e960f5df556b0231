/* Which all-reduce algorithm is the fastest, by world size and message size: a table that `bench_comm --tune FILE` measures and
 * writes. Built in is the table of the machine that the repository's figures come from (allreduce_table.def). All ranks of a
 * group must hold the same table: joining compares the hash. */
#ifndef LS_COMM_ALLREDUCE_TUNING_H
#define LS_COMM_ALLREDUCE_TUNING_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/comm/allreduce.h"

typedef struct ls_allreduce_tuning ls_allreduce_tuning;

/* Reads a table. LS_ERR_IO: unreadable; LS_ERR_FORMAT: names the line and what is wrong with it. On failure *out is NULL. */
ls_status ls_allreduce_tuning_load(ls_allreduce_tuning **out, const char *path);
void ls_allreduce_tuning_destroy(ls_allreduce_tuning *tuning); /* NULL is a no-op */

/* The row to use for a message of `nbytes` in a group of `world_size`; tuning NULL: the built-in table. Never NULL. World sizes
 * that the table lacks use the nearest that it has. Any thread. */
const ls_allreduce_algorithm *ls_allreduce_choose(const ls_allreduce_tuning *tuning, int world_size, size_t nbytes);

/* Of the table's content; tuning NULL: the built-in one. */
uint64_t ls_allreduce_tuning_hash(const ls_allreduce_tuning *tuning);

#endif
