/* Flight records: a record that opens has ranks, groups and operations within their bounds, so that it can be compared
 * and printed, and does not change when it is written and read again. */
#include <string.h>

#include "common/comm/flight.h"
#include "tests/fuzz/targets/targets.h"

void fuzz_flight(const uint8_t *data, size_t nbytes) {
    ls_flight_record *record = NULL;
    char table[LS_FLIGHT_TABLE], history[LS_FLIGHT_HISTORY];
    ls_status status = ls_flight_read(&record, fuzz_memory_file(data, nbytes));
    fuzz_require((status == LS_OK) == (record != NULL), "a record is there if and only if it was read");
    if (!record) return;
    fuzz_require(record->group >= 0 && record->group < record->group_count, "the failed group is one of the record's");
    fuzz_require(strlen(ls_flight_table(table, record)) < LS_FLIGHT_TABLE, "a table fits");
    for (int r = 0; r < record->world_size; r++) {
        for (int i = 0; i < record->ranks[r].count; i++) {
            const ls_flight_operation *o = &record->ranks[r].operations[i];
            fuzz_require(o->group < record->group_count && o->root < record->world_size, "an operation has a place");
        }
        fuzz_require(strlen(ls_flight_history(history, record, r, LS_FLIGHT_KEPT)) < LS_FLIGHT_HISTORY,
                     "a history fits");
    }
    ls_flight_free(record);
}
