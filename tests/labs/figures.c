#include "tests/labs/figures.h"

#include <math.h>
#include <stdbool.h>

#include "tests/base/test.h"

const bench_machine example_machine = {.cpu = "A \"fast\" CPU, really",
                                       .system = "Linux 6",
                                       .compiler = "gcc 12",
                                       .onednn = "2.6.3",
                                       .commit = "abc",
                                       .date = "2026-01-02T03:04:05Z",
                                       .cores = 2,
                                       .load = 0.5};

void expect_near(double value, double expected) {
    if (!(fabs(value - expected) < 1e-12 * (1 + fabs(expected)))) fail_msg("%.17g is not %.17g", value, expected);
}

/* Copies one field (NULL: none) and counts all. */
static int scan(char *field, const char *line, int wanted) {
    int index = 0, length = 0;
    bool quoted = false;
    for (; *line && *line != '\n'; line++) {
        if (*line == '"') quoted = !quoted;
        if (*line == ',' && !quoted) {
            index++;
        } else if (field && index == wanted && length < CSV_FIELD_CAPACITY - 1) {
            field[length++] = *line;
        }
    }
    if (field) field[length] = '\0';
    return index + 1;
}

void csv_field(char field[CSV_FIELD_CAPACITY], const char *line, int index) { scan(field, line, index); }

int csv_fields(const char *line) { return scan(NULL, line, 0); }

calibrate_spread even_spread(double us) { return (calibrate_spread){us, us, us, us, 31}; }

calibrate_figures example_figures(void) {
    calibrate_figures f = {.devices = 2,
                           .cores = 2,
                           .batch_count = CALIBRATE_BATCHES,
                           .width = 512,
                           .node_pass = CALIBRATE_NODE_PASS,
                           .launch_us = even_spread(0.5),
                           .smallest_us = even_spread(0.75),
                           .event_us = even_spread(0.25),
                           .sync_us = even_spread(1.5),
                           .hand_over_us = even_spread(0.125),
                           .awake_us = even_spread(0.0625),
                           .spin_us = 50,
                           .collective_us = even_spread(2),
                           .products_crowded = 1.25,
                           .passes_crowded = 1.5,
                           .products_beside_copies = 1.0625,
                           .copies_both = 1.25,
                           .taken_bytes = 1e5,
                           .taken_us = even_spread(60),
                           .kept_us = even_spread(10),
                           .cache_bytes = 2 << 20,
                           .copy_bytes = 4e6,
                           .copy_us = even_spread(400),
                           .copy_both_us = even_spread(500),
                           .copy_smallest_us = even_spread(3)};
    for (int i = 0; i < CALIBRATE_BATCHES; i++) {
        f.batches[i] = 1 << (2 * i);
        f.gemm_flops[i] = 1e6 * (i + 1);
        f.fp32_us[i] = even_spread(100);
        f.bf16_us[i] = even_spread(25);
    }
    for (int i = 0; i < CALIBRATE_PASSES; i++) {
        f.pass_bytes[i] = 1e6 * (i + 1);
        f.pass_of_bytes[i] = f.pass_bytes[i] / 2;
        f.pass_us[i] = even_spread(50);
    }
    for (int o = 0; o < LS_NODE_OPERATIONS; o++) { /* the two halves take 3/4 and 4/4 of an all-reduce's time */
        double share = o == LS_NODE_ALL_REDUCE ? 1 : 0.5 + 0.25 * o;
        f.tables[o] = (calibrate_table){.rows = {{2, 1024, even_spread(4 * share), 4 * share},
                                                 {2, 4000000, even_spread(2000 * share), 2000 * share}},
                                        .row_count = 2};
    }
    return f;
}

ls_status bench_parse_words(bench_settings *settings, char *a, char *b, char *c, char *d) {
    char program[] = "bench_dp_vs_ddp";
    char *argv[] = {program, a, b, c, d, NULL};
    int argc = 1;
    bool help;
    while (argv[argc]) argc++;
    return bench_parse(settings, argc, argv, &help);
}
