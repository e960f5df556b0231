/* bench_comm: its command line, arithmetic, formulas, exact contents, choices and files, on numbers made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/bench_comm/bench_comm.h"
#include "tests/base/scratch.h"

static comm_settings settings;

static void expect_near(double value, double expected) {
    if (!(fabs(value - expected) < 1e-9 * fabs(expected) + 1e-12)) fail_msg("%.17g is not %.17g", value, expected);
}

/* --- the command line -------------------------------------------------------------------------------------------- */

/* Up to four arguments, as in main(). */
static ls_status parse(const char *a, const char *b, const char *c, const char *d) {
    static char words[5][128];
    const char *const given[] = {"bench_comm", a, b, c, d};
    char *argv[6] = {NULL};
    int argc = 0;
    for (; argc < 5 && given[argc]; argc++) {
        snprintf(words[argc], sizeof words[argc], "%s", given[argc]);
        argv[argc] = words[argc];
    }
    bool help;
    return comm_parse(&settings, argc, argv, &help);
}

static void test_defaults(void **state) {
    (void)state;
    assert_int_equal(parse(NULL, NULL, NULL, NULL), LS_OK);
    int rows = 0, operations = 0, all_reduces = 0;
    while (ls_allreduce_algorithms[rows].name) rows++;
    while (comm_operations[operations].name) operations++;
    for (int c = 0; c < settings.case_count; c++) all_reduces += comm_is_all_reduce(settings.cases[c].operation);
    assert_int_equal(all_reduces, rows + 1); /* every row of the table, and auto */
    assert_int_equal(settings.case_count, rows + operations);
    assert_int_equal(comm_owner(&settings, settings.case_count - 1), all_reduces); /* the first that is none */
    assert_int_equal(settings.n.count, 2);
    assert_int_equal(settings.sizes[0], 8);
    assert_int_equal(settings.sizes[settings.size_count - 1], 32 << 20);
    assert_true(settings.variants[COMM_SHM_SHARED]);
    assert_false(settings.variants[COMM_SHM_PRIVATE] || settings.variants[COMM_THREADS]);
    assert_int_equal(settings.runs, 7);
    assert_true(settings.cache_bytes > 0);
    assert_int_equal(parse("--cache=0", NULL, NULL, NULL), LS_OK);
    assert_int_equal(comm_slots_of(comm_operation_find("all_reduce"), 2, 1, &settings).count, 1);
    assert_int_equal(parse("--tune=x", NULL, NULL, NULL), LS_OK);
    assert_int_equal(settings.case_count, rows);
    assert_int_equal(settings.n.count, 7);
    assert_int_equal(settings.n.values[6], 8);
}

static void test_sizes(void **state) {
    (void)state;
    assert_int_equal(comm_parse_sizes(&settings, "64K,8,1M,8"), LS_OK);
    assert_int_equal(settings.size_count, 3);
    assert_int_equal(settings.sizes[0], 8);
    assert_int_equal(settings.sizes[1], 65536);
    assert_int_equal(settings.sizes[2], 1 << 20);
    assert_int_equal(comm_parse_sizes(&settings, "1K:5K:2"), LS_OK);
    assert_int_equal(settings.size_count, 3);
    assert_int_equal(settings.sizes[2], 4096);
    assert_int_equal(comm_parse_sizes(&settings, "2G"), LS_OK);
    assert_int_equal(settings.sizes[0], (size_t)2 << 30);
    const char *const bad[] = {"",        "0",       "-8",    "8:", "8:4", "8:64:1",
                               "8,,16",   "8,16:32", "8:4G:", "1T", "8 ",  "99999999999999999999",
                               "8:16:2:4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (comm_parse_sizes(&settings, bad[i]) != LS_ERR_USAGE) fail_msg("'%s' was taken", bad[i]);
        scratch_expect_error("--sizes", bad[i]);
    }
}

static void test_wrong_usage(void **state) {
    (void)state;
    static const struct {
        const char *a, *b, *text;
    } lines[] = {
        {"--op=all_reduce,allreduce", NULL, "there is no operation 'allreduce'; there are: all, all_reduce, broadcast"},
        {"--allreduce=ring,rang", NULL, "there is no algorithm 'rang'; there are: all, auto, direct"},
        {"--n=1", NULL, "--n"},
        {"--n=2,65", NULL, "--n"},
        {"--runs=0", NULL, "--runs"},
        {"--dtype=fp8", NULL, "--dtype"},
        {"--backend=mpi", NULL, "--backend"},
        {"--compare", "--dtype=fp16", "--compare is for fp32 sums"},
        {"--compare", "--sizes=8,10", "10 bytes are not a whole number of fp32"},
        {"--tune=x", "--check", "leave --check out"},
        {"--tune=x", "--compare", "leave --compare out"},
        {"--tune=x", "--allreduce=direct,auto", "--tune: auto"},
        {"operand", NULL, "operand"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (parse(lines[i].a, lines[i].b, NULL, NULL) != LS_ERR_USAGE) fail_msg("%s was taken", lines[i].a);
        scratch_expect_error(lines[i].text, NULL);
    }
    assert_int_not_equal(parse("--table=/no/such/file", NULL, NULL, NULL), LS_OK);
    scratch_expect_error("/no/such/file", NULL);
}

static void test_lists_keep_their_order_and_drop_doubles(void **state) {
    (void)state;
    assert_int_equal(
        parse("--op=broadcast,all_reduce,broadcast", "--allreduce=ring,direct,ring", "--n=4,2,4", "--backend=all"),
        LS_OK);
    assert_int_equal(settings.case_count, 3);
    assert_string_equal(settings.cases[0].operation->name, "broadcast");
    assert_string_equal(settings.cases[1].algorithm, "ring");
    assert_string_equal(settings.cases[2].algorithm, "direct");
    assert_int_equal(settings.n.count, 2);
    assert_int_equal(settings.n.values[0], 2);
    assert_true(settings.variants[COMM_SHM_SHARED] && settings.variants[COMM_THREADS]);
    assert_false(settings.variants[COMM_SHM_PRIVATE]);
    /* operations other than all_reduce share a process group, each all_reduce has its own */
    assert_int_equal(comm_owner(&settings, 0), 0);
    assert_int_equal(comm_owner(&settings, 1), 1);
    assert_int_equal(comm_owner(&settings, 2), 2);
}

/* --- sizes and bandwidths ---------------------------------------------------------------------------------------- */

static void test_bandwidths(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double factor; /* for N = 4 */
    } factors[] = {{"all_reduce", 1.5},      {"broadcast", 1}, {"reduce", 1},     {"all_gather", 0.75},
                   {"reduce_scatter", 0.75}, {"gather", 0.75}, {"scatter", 0.75}, {"send_recv", 1}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        comm_row row = {.operation = comm_operation_find(factors[i].name),
                        .n = 4,
                        .nbytes = 6000000,
                        .run_count = 3,
                        .run_us = {4000, 2000, 3000}};
        assert_non_null(row.operation);
        comm_assemble(&row);
        expect_near(row.time_us, 3000);
        expect_near(row.least_us, 2000);
        expect_near(row.p10_us, 2200);
        expect_near(row.p90_us, 3800);
        expect_near(row.algbw_GBps, 2);
        expect_near(row.busbw_GBps, 2 * factors[i].factor);
    }
    comm_row barrier = {.operation = comm_operation_find("barrier"), .n = 4, .run_count = 1, .run_us = {5}};
    comm_assemble(&barrier);
    expect_near(barrier.time_us, 5);
    assert_true(isnan(barrier.algbw_GBps) && isnan(barrier.busbw_GBps));
    barrier.run_count = 0;
    comm_assemble(&barrier);
    assert_true(isnan(barrier.time_us));
}

static void test_what_a_size_means(void **state) {
    (void)state;
    const comm_operation *gather = comm_operation_find("all_gather"), *reduce = comm_operation_find("all_reduce");
    assert_int_equal(comm_part_count(reduce, 4, 4096, LS_FP32), 1024);
    assert_int_equal(comm_part_count(gather, 4, 4096, LS_FP32), 256); /* all parts together */
    assert_int_equal(comm_part_count(gather, 4, 8, LS_FP32), 1);
    assert_int_equal(comm_part_count(reduce, 4, 4096, LS_INT64), 512);
    assert_int_equal(comm_part_count(comm_operation_find("barrier"), 4, 4096, LS_FP32), 0);
    settings = (comm_settings){.dtype = LS_FP32, .cache_bytes = 1 << 20};
    comm_slots slots = comm_slots_of(gather, 2, 3, &settings);
    assert_int_equal(slots.receive_offset, 64);
    assert_int_equal(slots.stride_bytes, 128);
    assert_int_equal(slots.count * slots.stride_bytes * 2, 2 << 20); /* twice the cache, over both ranks */
    slots = comm_slots_of(reduce, 2, 4 << 20, &settings);
    assert_int_equal(slots.count, 1);
    assert_int_equal(slots.receive_offset, 0);
}

/* --- formulas ---------------------------------------------------------------------------------------------------- */

static void expect_cost(const char *name, int n, int rank, size_t count, const size_t expected[4]) {
    struct ls_allreduce_cost cost = {.steps = 9, .sent_messages = 9, .received_bytes = 9};
    comm_operation_find(name)->cost(&cost, n, rank, count, 4);
    const size_t found[] = {cost.sent_messages, cost.sent_bytes, cost.received_messages, cost.received_bytes};
    for (int i = 0; i < 4; i++)
        if (found[i] != expected[i])
            fail_msg("%s, rank %d: number %d is %zu, not %zu", name, rank, i, found[i], expected[i]);
}

static void test_formulas(void **state) {
    (void)state;
    expect_cost("broadcast", 4, 0, 100, (size_t[]){3, 1200, 0, 0});
    expect_cost("broadcast", 4, 2, 100, (size_t[]){0, 0, 1, 400});
    expect_cost("gather", 4, 0, 100, (size_t[]){0, 0, 3, 1200});
    expect_cost("gather", 4, 3, 100, (size_t[]){1, 400, 0, 0});
    expect_cost("scatter", 4, 0, 100, (size_t[]){3, 1200, 0, 0});
    expect_cost("all_gather", 4, 1, 100, (size_t[]){3, 1200, 3, 1200});
    expect_cost("reduce_scatter", 4, 0, 100, (size_t[]){3, 1200, 3, 1200});
    expect_cost("send_recv", 4, 1, 100, (size_t[]){1, 400, 1, 400});
    expect_cost("barrier", 4, 1, 0, (size_t[]){0, 0, 0, 0});
    /* small: the root reduces; large: shares of 2032 elements, the last one of 2004, go to it */
    expect_cost("reduce", 4, 0, 100, (size_t[]){0, 0, 3, 1200});
    expect_cost("reduce", 4, 1, 100, (size_t[]){1, 400, 0, 0});
    expect_cost("reduce", 4, 0, 8100, (size_t[]){3, 4 * 6068, 6, 4 * (3 * 2032 + 6068)});
    expect_cost("reduce", 4, 3, 8100, (size_t[]){4, 4 * 8100, 3, 4 * 3 * 2004});
}

/* --- exact contents ---------------------------------------------------------------------------------------------- */

enum { RANKS = 3, COUNT = 5100, SALT = 7 };

static float memory[RANKS][2 * RANKS * COUNT], before[RANKS][2 * RANKS * COUNT];

static comm_slot slot_of(const comm_operation *operation, int rank) {
    return (comm_slot){.operation = operation,
                       .n = RANKS,
                       .rank = rank,
                       .count = COUNT,
                       .salt = SALT,
                       .send = (char *)memory[rank],
                       .receive = (char *)(memory[rank] + RANKS * COUNT)};
}

static float sum_of(size_t index) {
    float sum = 0;
    for (int r = 0; r < RANKS; r++) sum += before[r][index];
    return sum;
}

/* The meaning of an operation, element by element, where the send buffer begins at 0 and the receive buffer behind it. */
static void emulate(const char *name) {
    const size_t receive = (size_t)RANKS * COUNT;
    for (size_t rank = 0; rank < RANKS; rank++) {
        float *to = memory[rank] + receive;
        for (size_t i = 0; i < COUNT; i++) {
            if (strcmp(name, "all_reduce") == 0 || (strcmp(name, "reduce") == 0 && rank == 0))
                to[i] = sum_of(receive + i);
            if (strcmp(name, "broadcast") == 0) to[i] = before[0][receive + i];
            if (strcmp(name, "reduce_scatter") == 0) to[i] = sum_of(rank * COUNT + i);
            if (strcmp(name, "scatter") == 0) to[i] = before[0][rank * COUNT + i];
            if (strcmp(name, "send_recv") == 0) to[i] = before[(rank + RANKS - 1) % RANKS][i];
            bool gathers = strcmp(name, "all_gather") == 0 || (strcmp(name, "gather") == 0 && rank == 0);
            for (size_t part = 0; gathers && part < RANKS; part++) to[part * COUNT + i] = before[part][i];
        }
    }
}

static void expect_caught(const comm_patterns *patterns, const comm_operation *operation, int rank, float *element,
                          float value, const char *text) {
    float right = *element;
    *element = value;
    comm_slot slot = slot_of(operation, rank);
    if (comm_check(patterns, &slot, "the test") != LS_ERR_INVALID) fail_msg("%s: not caught", operation->name);
    scratch_expect_error("the test", text);
    *element = right;
    assert_int_equal(comm_check(patterns, &slot, "the test"), LS_OK);
}

static void test_wrong_results_are_caught(void **state) {
    (void)state;
    comm_patterns *patterns;
    assert_int_equal(comm_patterns_create(&patterns, RANKS, LS_FP32, LS_REDUCE_SUM), LS_OK);
    for (const comm_operation *operation = comm_operations; operation->name; operation++) {
        if (operation->latency_only) continue;
        for (int rank = 0; rank < RANKS; rank++) {
            comm_slot slot = slot_of(operation, rank);
            comm_fill(patterns, &slot);
        }
        memcpy(before, memory, sizeof memory);
        emulate(operation->name);
        for (int rank = 0; rank < RANKS; rank++) {
            comm_slot slot = slot_of(operation, rank);
            assert_int_equal(comm_check(patterns, &slot, operation->name), LS_OK);
            float *received = memory[rank] + RANKS * COUNT, *sent = memory[rank];
            size_t last = comm_receive_parts(operation, RANKS) * COUNT - 1;
            bool none = operation->result(RANKS, rank, 0).kind == COMM_UNTOUCHED;
            char text[80];
            snprintf(text, sizeof text,
                     none ? "rank %d gets no result, but element %zu"
                          : "on rank %d: element %zu of the result is 99 and should be %g",
                     rank, last, (double)received[last]);
            expect_caught(patterns, operation, rank, &received[last], 99, text);
            expect_caught(patterns, operation, rank, &received[0], none ? 0 : NAN, "element 0");
            if (!operation->in_place)
                expect_caught(patterns, operation, rank, &sent[COUNT - 1], 5, "element 5099 of the send buffer is 5");
        }
    }
    comm_patterns_destroy(patterns);
}

/* An operation that leaves every buffer as it was must not look right, on any rank that gets a result. */
static void test_nothing_done_is_caught(void **state) {
    (void)state;
    comm_patterns *patterns;
    assert_int_equal(comm_patterns_create(&patterns, RANKS, LS_FP32, LS_REDUCE_MAX), LS_OK);
    for (const comm_operation *operation = comm_operations; operation->name; operation++) {
        for (int rank = 0; rank < RANKS && !operation->latency_only; rank++) {
            comm_slot slot = slot_of(operation, rank);
            comm_fill(patterns, &slot);
            comm_content content = operation->result(RANKS, rank, 0);
            bool none = content.kind == COMM_UNTOUCHED ||
                        (operation->in_place && content.kind == COMM_OF_RANK && content.rank == rank);
            if ((comm_check(patterns, &slot, "") == LS_OK) != none) fail_msg("%s on rank %d", operation->name, rank);
            if (!none) scratch_expect_error("wrong result on rank", NULL);
        }
    }
    comm_patterns_destroy(patterns);
}

/* --- choosing ---------------------------------------------------------------------------------------------------- */

/* Rows of three runs each, which all have the median. */
static void make_rows(comm_row rows[3], double first_us, double second_us, double third_us) {
    const double times_us[] = {first_us, second_us, third_us};
    for (int i = 0; i < 3; i++) {
        rows[i] = (comm_row){.operation = &comm_operations[0], .n = 2, .run_count = 4};
        for (int run = 0; run < 4; run++) rows[i].run_us[run] = times_us[i];
        comm_assemble(&rows[i]);
    }
}

static void test_the_fastest_must_win_clearly(void **state) {
    (void)state;
    comm_row rows[3];
    make_rows(rows, 100, 94, 120); /* 6 % */
    assert_int_equal(comm_tune_winner(rows, 3, 0, 0), 1);
    make_rows(rows, 100, 96, 120); /* 4 %: a near tie */
    assert_int_equal(comm_tune_winner(rows, 3, 0, 0), 0);
    assert_int_equal(comm_tune_winner(rows, 3, 1, 0), 0); /* goes to the preferred one, even from the one in force */
    make_rows(rows, 100, 50, 49);
    assert_int_equal(comm_tune_winner(rows, 3, 1, 0), 1); /* stays */
    assert_int_equal(comm_tune_winner(rows, 3, 0, 0), 2);
    make_rows(rows, 100, 50, 40);
    assert_int_equal(comm_tune_winner(rows, 3, 1, 0), 2);
    make_rows(rows, 100, 90, 120);
    rows[1].run_us[2] = rows[1].run_us[3] = 101; /* slower in half of the runs, whatever the median says */
    assert_int_equal(comm_tune_winner(rows, 3, 0, 0), 0);
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static const bench_machine machine = {.cpu = "A \"fast\" CPU, really",
                                      .system = "Linux 6",
                                      .compiler = "gcc 12",
                                      .onednn = "2.6.3",
                                      .commit = "abc",
                                      .date = "2026-01-02T03:04:05Z",
                                      .cores = 2,
                                      .load = 0.5};

/* Fields of a CSV line, with commas in quotes left alone. */
static int fields_of(const char *line) {
    int fields = 1;
    bool quoted = false;
    for (; *line && *line != '\n'; line++) {
        if (*line == '"') quoted = !quoted;
        if (*line == ',' && !quoted) fields++;
    }
    return fields;
}

static comm_results *make_results(void) {
    comm_results *results;
    assert_int_equal(parse("--op=all_reduce,barrier", "--allreduce=ring,auto", "--n=2,4", "--sizes=8,64"), LS_OK);
    settings.cores = 2;
    settings.folder = scratch_folder();
    assert_int_equal(comm_results_create(&results, &settings, &machine), LS_OK);
    assert_int_equal(results->group_count, 2);
    assert_int_equal(results->row_count, 2 * (2 * 2 + 1)); /* a barrier has no sizes */
    for (int i = 0; i < results->row_count; i++) {
        comm_row *row = &results->rows[i];
        row->run_count = 1;
        row->run_us[0] = 2 + i;
        row->agreement = COMM_EQUAL;
        comm_assemble(row);
    }
    results->others[0] = (comm_row){
        .library = "Other, 1.0", .operation = &comm_operations[0], .n = 2, .nbytes = 8, .run_count = 1, .run_us = {9}};
    comm_assemble(&results->others[0]);
    results->other_count = 1;
    return results;
}

static void test_files(void **state) {
    (void)state;
    comm_results *results = make_results();
    settings.json = scratch_path("other.json");
    assert_int_equal(comm_prepare_files(&settings), LS_OK);
    assert_int_equal(comm_write_files(results), LS_OK);
    assert_int_equal(scratch_file_count(), 3);
    size_t nbytes;
    char *csv = scratch_read(scratch_path("comm.csv"), &nbytes);
    int fields = fields_of(csv), lines = 0;
    assert_true(strncmp(csv, "library,backend,buffers,op,algorithm,n,bytes,", 45) == 0);
    for (char *line = csv; *line; line = strchr(line, '\n') + 1, lines++)
        if (fields_of(line) != fields) fail_msg("line %d has %d fields, not %d", lines, fields_of(line), fields);
    assert_int_equal(lines, 1 + results->row_count + 1);
    assert_non_null(strstr(csv, "\n\"lockstep\",shm,shared,all_reduce,auto,4,64,16,fp32,sum,1,0,measured,"));
    assert_non_null(strstr(csv, "\n\"Other, 1.0\",,private,all_reduce,,2,8,"));
    free(csv);
    char *json = scratch_read(scratch_path("comm.json"), &nbytes), *copy = scratch_read(settings.json, &nbytes);
    assert_string_equal(json, copy);
    cJSON *all = cJSON_Parse(json);
    const cJSON *rows = cJSON_GetObjectItem(all, "rows");
    assert_int_equal(cJSON_GetArraySize(rows), results->row_count + 1);
    const cJSON *third = cJSON_GetArrayItem(rows, 2); /* the barrier */
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(third, "op")), "barrier");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(third, "busbw_GBps")));
    expect_near(cJSON_GetNumberValue(cJSON_GetObjectItem(third, "time_us")), 4);
    cJSON_Delete(all);
    free(json);
    free(copy);
    comm_results_destroy(results);
}

static void test_counts_that_differ(void **state) {
    (void)state;
    comm_results *results = make_results();
    assert_int_equal(comm_check_counts(results), LS_OK);
    comm_row *row = &results->rows[3];
    row->agreement = COMM_DIFFERS;
    row->busiest_rank = 1;
    row->counted = (struct ls_allreduce_cost){.sent_messages = 2, .sent_bytes = 64};
    row->formula = (struct ls_allreduce_cost){.sent_messages = 3, .sent_bytes = 64};
    assert_int_equal(comm_check_counts(results), LS_ERR_INVALID);
    scratch_expect_error("N 2, 64 bytes: rank 1 sent 2 messages, 64 bytes", "the formula says sent 3, 64");
    comm_results_destroy(results);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_defaults),
        TEST(test_sizes),
        TEST(test_wrong_usage),
        TEST(test_lists_keep_their_order_and_drop_doubles),
        TEST(test_bandwidths),
        TEST(test_what_a_size_means),
        TEST(test_formulas),
        TEST(test_wrong_results_are_caught),
        TEST(test_nothing_done_is_caught),
        TEST(test_the_fastest_must_win_clearly),
        TEST(test_files),
        TEST(test_counts_that_differ),
    };
    return cmocka_run_group_tests_name("bench_comm", tests, NULL, NULL);
}
