/* The table of all-reduce algorithms: a table that loads answers every question, with an algorithm that exists. */
#include "common/comm/allreduce_tuning.h"
#include "common/comm/comm.h"
#include "tests/fuzz/targets/targets.h"

void fuzz_allreduce_table(const uint8_t *data, size_t nbytes) {
    static const size_t sizes[] = {0, 1, 4, 4096, 1 << 20, SIZE_MAX};
    ls_allreduce_tuning *table = NULL;
    ls_status status = ls_allreduce_tuning_load(&table, fuzz_memory_file(data, nbytes));
    fuzz_require((status == LS_OK) == (table != NULL), "a table is there if and only if it was read");
    if (!table) return;
    for (int world_size = 1; world_size <= LS_COMM_MAX_RANKS; world_size++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const ls_allreduce_algorithm *chosen = ls_allreduce_choose(table, world_size, sizes[s]);
            fuzz_require(chosen && ls_allreduce_find(chosen->name) == chosen,
                         "an algorithm is chosen for every message");
        }
    }
    (void)ls_allreduce_tuning_hash(table);
    ls_allreduce_tuning_destroy(table);
}
