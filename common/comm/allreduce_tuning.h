/* Which all-reduce algorithm is the fastest, by world size and message size: a table that `bench_comm --tune FILE`
 * measures and writes. Built in is the table of the machine that the repository's figures come from
 * (allreduce_tuned.def). All ranks of a group must hold the same table: joining compares the hash.
 *
 * One text format serves both, so that a measured file can take the built-in table's place. A row is a line
 *     LS_TUNED(world size, up to so many bytes of the message, algorithm)
 * for example
 *     // 2 x AMD EPYC 9R14, 2026-11-21, median of 200 all-reduces of fp32 sums per size
 *     LS_TUNED(2, 65536, direct)
 *     LS_TUNED(2, LS_TUNED_MAX, halving-doubling)
 * Rows ascend in world size (2 to LS_COMM_MAX_RANKS) and, within one, in bytes; a world size's last row goes up to
 * LS_TUNED_MAX, so no message is without a row. Algorithms are names of ls_allreduce_algorithms. Empty lines and
 * comments from // to the line's end may stand anywhere; a file begins with comments that say on what machine, when and
 * how it was measured. Files larger than LS_TUNED_FILE_BYTES are refused. */
#ifndef LS_COMM_ALLREDUCE_TUNING_H
#define LS_COMM_ALLREDUCE_TUNING_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/comm/allreduce.h"

#define LS_TUNED_MAX SIZE_MAX
#define LS_TUNED_FILE_BYTES ((size_t)1 << 20)

typedef struct ls_allreduce_tuning ls_allreduce_tuning;

/* Messages of up to `up_to_bytes`, and more than the row before takes, use this algorithm. */
typedef struct ls_allreduce_tuned {
    int world_size;
    size_t up_to_bytes;
    const char *algorithm;
} ls_allreduce_tuned;

/* Reads a table. LS_ERR_IO: unreadable; LS_ERR_FORMAT: names the line and what is wrong with it; LS_ERR_NO_MEMORY. On
 * failure *out is NULL. */
ls_status ls_allreduce_tuning_load(ls_allreduce_tuning **out, const char *path);
void ls_allreduce_tuning_destroy(ls_allreduce_tuning *tuning); /* NULL is a no-op */

/* Writes a table that load accepts, as a whole or not at all. `comment` (may hold several lines) says on what machine,
 * when and how it was measured. LS_ERR_INVALID: rows that load would refuse; LS_ERR_IO: cannot write. */
ls_status ls_allreduce_tuning_save(const char *path, const char *comment, const ls_allreduce_tuned *rows, size_t count);

/* The row to use for a message of `nbytes` in a group of `world_size`; tuning NULL: the built-in table. Never NULL.
 * World sizes that the table lacks use the nearest that it has, the smaller of two. Any thread. */
const ls_allreduce_algorithm *ls_allreduce_choose(const ls_allreduce_tuning *tuning, int world_size, size_t nbytes);

/* Of the table's rows (comments do not count); tuning NULL: the built-in one. Any thread. */
uint64_t ls_allreduce_tuning_hash(const ls_allreduce_tuning *tuning);

#endif
