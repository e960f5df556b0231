/* columns: what a row is, in text, CSV and JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/bench/comm/bench_comm.h"

bool comm_is_ours(const comm_row *row) { return strcmp(row->library, "lockstep") == 0; }

static const char *const agreements[] = {"", "=", "differs"};

BENCH_MADE_TEXT_OF(n_of, comm_row, true, "%d%s", row->n, row->oversubscribed ? "*" : "")
BENCH_TEXT_OF(algorithm_of, comm_row, !comm_is_ours(row) ? row->library : row->algorithm[0] ? row->algorithm : "-")
BENCH_TEXT_OF(agreement_of, comm_row, agreements[row->agreement])
BENCH_NUMBER_OF(messages_of, comm_row, (double)(row->counted.sent_messages + row->counted.received_messages))
BENCH_NUMBER_OF(bytes_of, comm_row, (double)(row->counted.sent_bytes + row->counted.received_bytes))

/* What is not defined for a row stays empty, and so does the rate of what took no time. */
static void put_number(char cell[BENCH_CELL], int decimals, double value) {
    if (isfinite(value)) snprintf(cell, BENCH_CELL, "%.*f", decimals, value);
}

static void put_time(char cell[BENCH_CELL], int decimals, double us) { put_number(cell, us < 100 ? decimals : 0, us); }

/* So that small messages do not all have 0.000. */
static void put_bandwidth(char cell[BENCH_CELL], int decimals, double value) {
    put_number(cell, value < 0.1 ? decimals : value < 10 ? 3 : 1, value);
}

const bench_column comm_which[] = {
    {.head = "N", .text = n_of, .align = LS_RIGHT},
    {.head = "size\nbytes", BENCH_AT(BENCH_SIZE, comm_row, nbytes)},
    {.head = "algorithm", .text = algorithm_of},
    {.kind = BENCH_END},
};

#define TIME(field, title)                                                                                             \
    BENCH_COLUMN(.name = #field, .head = title, BENCH_AT(BENCH_DOUBLE, comm_row, field), .decimals = 2,                \
                 .format = put_time)
#define RATE(field, title)                                                                                             \
    BENCH_COLUMN(.name = #field, .head = title, BENCH_AT(BENCH_DOUBLE, comm_row, field), .decimals = 4,                \
                 .format = put_bandwidth)
const bench_column comm_numbers[] = {
    TIME(time_us, "time\nus"),
    TIME(least_us, NULL),
    TIME(p10_us, "10 %\nus"),
    TIME(p90_us, "90 %\nus"),
    RATE(algbw_GBps, "algbw\nGB/s"),
    RATE(busbw_GBps, "busbw\nGB/s"),
    {.kind = BENCH_END},
};

#define COUNT(what, field) BENCH_COLUMN(.name = what, BENCH_AT(BENCH_SIZE, comm_row, field))
const bench_column comm_counts[] = {
    {.name = "rank", BENCH_AT(BENCH_INT, comm_row, busiest_rank)},
    COUNT("sent_messages", counted.sent_messages),
    COUNT("sent_bytes", counted.sent_bytes),
    COUNT("received_messages", counted.received_messages),
    COUNT("received_bytes", counted.received_bytes),
    COUNT("formula_sent_messages", formula.sent_messages),
    COUNT("formula_sent_bytes", formula.sent_bytes),
    COUNT("formula_received_messages", formula.received_messages),
    COUNT("formula_received_bytes", formula.received_bytes),
    {.head = "messages\nper rank", .number = messages_of},
    {.head = "bytes\nper rank", .number = bytes_of},
    {.head = "formula", .text = agreement_of},
    {.kind = BENCH_END},
};
