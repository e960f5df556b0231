/* flight — shows flight records that a job wrote when it hung (common/comm/flight.h).
 *
 *     build/flight --last 5 records/flight-4711.jsonl */
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/results.h"
#include "common/comm/flight.h"

static void show_history(const ls_flight_record *record, int count) {
    char text[LS_FLIGHT_HISTORY];
    for (int r = 0; count > 0 && r < record->world_size; r++)
        printf("rank %d, the last of its operations, by when it called them:\n%s", r,
               ls_flight_history(text, record, r, count));
}

static ls_status show(const char *path, int count) {
    ls_flight_record *record;
    char table[LS_FLIGHT_TABLE];
    ls_status status = ls_flight_read(&record, path);
    if (status != LS_OK) return status;
    printf("%s: %s, %d ranks over %s; rank %d noticed: %s\n%s", path, record->program, record->world_size,
           record->backend, record->taken_by, record->reason, ls_flight_table(table, record));
    show_history(record, count);
    ls_flight_free(record);
    return LS_OK;
}

int main(int argc, char **argv) {
    int last = 0;
    const ls_option options[] = {
        {.kind = LS_OPTION_INT,
         .name = "last",
         .to.number = &last,
         .argument = "COUNT",
         .limits = LS_BETWEEN(0, LS_FLIGHT_KEPT),
         .help = "also show the last COUNT operations of each rank"},
    };
    const ls_command command = {.purpose = "Shows where the ranks of a job were when it hung: the files that "
                                           "ddp_train --flight or LS_FLIGHT has written.",
                                .options = options,
                                .count = sizeof options / sizeof options[0],
                                .operands = "FILE..."};
    ls_parsed parsed;
    ls_log_init(argv[0], -1, false);
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    if (status != LS_OK || parsed.help) return ls_status_exit_code(status);
    if (parsed.first_operand == argc)
        status = ls_fail(LS_ERR_USAGE, "flight needs the files of a record: flight [OPTION...] FILE...");
    for (int i = parsed.first_operand; i < argc; i++) {
        ls_status shown = show(argv[i], last);
        if (status == LS_OK) status = shown;
    }
    return ls_status_exit_code(ls_results_written(status));
}
