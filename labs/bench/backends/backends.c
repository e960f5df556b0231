/* backends — which operation each back-end has, found by trying.
 *
 *     build/backends
 *
 * Exit status 1 if an operation fails that the back-end has. A back-end that is not available here (no GPU, no NCCL) is
 * shown as such, and is not a failure. */
#include <stdio.h>

#include "common/base/results.h"
#include "common/base/table.h"
#include "labs/bench/backends/backends.h"
#include "labs/bench/shared/settings.h"

enum { MOST_BACKENDS = 8, MOST_OPERATIONS = 16 };

struct tried {
    int operations, backends;
    backends_answer answers[MOST_OPERATIONS][MOST_BACKENDS];
};

/* A back-end that is not available is tried once. */
static ls_status try_all(struct tried *tried) {
    ls_status status = LS_OK;
    for (int o = 0; status == LS_OK && comm_operations[o].name && o < MOST_OPERATIONS; o++) {
        tried->operations = o + 1;
        for (int b = 0; status == LS_OK && backends_all[b].name && b < MOST_BACKENDS; b++) {
            tried->backends = b + 1;
            tried->answers[o][b] = tried->answers[0][b];
            if (o > 0 && tried->answers[0][b].kind == BACKENDS_ABSENT) continue;
            status = backends_try(&tried->answers[o][b], &backends_all[b], &comm_operations[o]);
        }
    }
    return status;
}

static ls_status print_table(const struct tried *tried) {
    static const char *const words[] = {
        [BACKENDS_YES] = "yes", [BACKENDS_NO] = "no", [BACKENDS_ABSENT] = "?", [BACKENDS_WRONG] = "FAILED"};
    ls_column columns[1 + MOST_BACKENDS] = {{"operation", LS_LEFT}};
    for (int b = 0; b < tried->backends; b++) columns[1 + b] = (ls_column){backends_all[b].name, LS_LEFT};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, 1 + (size_t)tried->backends);
    if (status != LS_OK) return status;
    for (int o = 0; o < tried->operations; o++) {
        ls_table_cell(table, "%s", comm_operations[o].name);
        for (int b = 0; b < tried->backends; b++) ls_table_cell(table, "%s", words[tried->answers[o][b].kind]);
    }
    return ls_table_finish(table, stdout);
}

static void print_legend(const struct tried *tried) {
    printf("\nTried here: each operation once, on two ranks and 1000 numbers a part, every element compared\n\n");
    for (int b = 0; b < tried->backends; b++) {
        printf("%-8s  %s", backends_all[b].name, backends_all[b].ranks);
        if (tried->answers[0][b].kind == BACKENDS_ABSENT) printf("; not here (%s)", tried->answers[0][b].why);
        printf("\n");
    }
}

/* One line for each operation that failed. */
static ls_status judge(const struct tried *tried) {
    ls_status status = LS_OK;
    for (int o = 0; o < tried->operations; o++)
        for (int b = 0; b < tried->backends; b++)
            if (tried->answers[o][b].kind == BACKENDS_WRONG)
                status = ls_fail(LS_ERR_INVALID, "%s on %s: %s", comm_operations[o].name, backends_all[b].name,
                                 tried->answers[o][b].why);
    return status;
}

static ls_status run(void) {
    static struct tried tried;
    ls_status status = try_all(&tried);
    if (status == LS_OK) status = print_table(&tried);
    if (status != LS_OK) return status;
    print_legend(&tried);
    return judge(&tried);
}

int main(int argc, char **argv) {
    bool help;
    ls_log_init(argv[0], -1, false);
    ls_status status = bench_parse_options(
        NULL, 0, "Tries every operation of process groups on every back-end, and prints which has which.", argc, argv,
        &help);
    if (status == LS_OK && !help) status = run();
    return ls_status_exit_code(ls_results_written(status));
}
