/* backends: the operations of each back-end on a machine without a GPU, with two, and with one on which an operation
 *           fails. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/segment.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program p;

/* The cells of an operation's row, separated by a blank. */
static const char *cells_of(const char *operation) {
    static char cells[128];
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\n%s ", operation);
    const char *row = strstr(p.out_text, wanted);
    if (!row) fail_msg("no row %s in\n%s", operation, p.out_text);
    size_t length = 0;
    for (row += strlen(wanted); *row && *row != '\n' && length + 1 < sizeof cells; row++)
        if (*row != ' ' || (length > 0 && cells[length - 1] != ' ')) cells[length++] = *row;
    cells[length] = '\0';
    return cells;
}

static void run_backends(const char *environment, int status) {
    program_run(&p, "%s %s/backends", environment, build_folder());
    if (p.status != status) fail_msg("status %d: %s%s", p.status, p.out_text, p.err_text);
}

/* Every operation that a stream can carry has a row; a send and its receive share one. */
TEST_IN(programs, test_every_operation_has_a_row) {
#define NAME(name, text, elements, preposition) text,
    static const char *const names[] = {LS_OPERATION_MAP(NAME)};
#undef NAME
    run_backends("LS_PLUGINS=/nowhere", 0);
    for (int kind = 0; kind <= LS_OPERATION_BARRIER; kind++) {
        bool pair = kind == LS_OPERATION_SEND || kind == LS_OPERATION_RECV;
        const char *cells = cells_of(pair ? "send_recv" : names[kind]);
        if (strncmp(cells, "yes yes ? ? ", 12) != 0) fail_msg("%s: %s", names[kind], cells);
    }
    program_expect_text(&p, "staged    threads that share GPU 0, through the host's memory; not here (");
}

TEST_IN(programs, test_with_two_gpus) {
    run_backends("CUDA_ON_CPU_DEVICES=2", 0);
    assert_string_equal(cells_of("all_reduce"), "yes yes yes yes yes");
    assert_string_equal(cells_of("gather"), "yes yes yes yes yes");
    assert_string_equal(cells_of("barrier"), "yes yes yes yes yes");
    run_backends("CUDA_ON_CPU_DEVICES=1", 0);
    assert_string_equal(cells_of("all_reduce"), "yes yes yes ? yes");
    program_expect_text(&p, "by NCCL; not here (there is only one GPU)");
}

TEST_IN(programs, test_an_operation_that_fails_is_no_operation) {
    run_backends("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=ncclReduce:1:2", 1);
    assert_string_equal(cells_of("reduce"), "yes yes yes FAILED yes");
    assert_string_equal(cells_of("broadcast"), "yes yes yes yes yes");
    assert_non_null(strstr(p.err_text, "reduce on nccl: "));
}
