/* The files of tables: refused files; every published figure has a source, a bound and a row; and the bounds detect an
 * error in a replay. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/tables/book.h"
#include "labs/replay/tables/file.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

static const char *const names[] = {TABLES_NAMES};
enum { TABLES = sizeof names / sizeof *names };

static const tables_settings settings = {.quick = true, .timeout_s = PROGRAM_DEADLINE_S};

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A part with one row, without anything that the cases below vary. */
#define SHARED "\"how\": \"replayed\", \"column\": \"step\", \"plan\": \"ddp\", \"samples\": 32"
#define ON "\"node\": \"dgx1-v100\", \"workload\": \"resnet50\""
#define ROW "\"quantity\": \"step, ms\", \"mode\": \"DDP\", \"n\": [2, 4]"
#define SHOWN "\"published\": [103, 104], \"must\": \"be shown\", \"source\": \"an example\""
#define PART(shared, row) "{" SHARED ", " shared ", \"rows\": [{" row "}]}"
#define SUMMED PART(ON, ROW ", \"published\": [103], \"source\": \"s\", \"must\": \"count in the sums\"")

static void write_parts(const char *name, const char *parts) {
    char text[3000];
    int nbytes = snprintf(text, sizeof text, "{\"title\": \"a table\", \"parts\": [%s], \"lists\": {}}\n", parts);
    scratch_write(name, text, (size_t)nbytes);
}

static ls_status open_parts(tables_file *file, const char *parts) {
    write_parts("table.json", parts);
    return tables_file_open(file, scratch_path("table.json"));
}

TEST_IN(scratch, test_refused_files) {
    static const struct {
        const char *parts, *refusal;
    } cases[] = {
        {"{\"txt\": \"a\"}", "txt is not a known key"},
        {"5", "an object"},
        {"[[1]]", "an object"},
        {"{" SHARED ", \"rows\": [3]}", "an object"},
        {"{\"text\": \"a\", \"from\": \"b\"}", "a part is a text, rows, the rows from a group, or sums"},
        {"{\"how\": \"a\"}", "a part is a text, rows, the rows from a group, or sums"},
        {"{\"from\": \"held\"}", "how it was obtained"},
        {PART(ON, ROW ", \"published\": [103, 104], \"must\": \"be shown\""), "a published figure has a source"},
        {PART(ON, ROW ", \"published\": [103, 104], \"source\": \"s\""), "a row says what it must"},
        {PART(ON, ROW ", " SHOWN ", \"claim\": 1"), "claim"},
        {PART(ON, ROW ", \"must\": \"be nice\""), "must is one of \"be shown\", \"be within\""},
        {PART(ON, ROW ", \"must\": \"be below\""), "nothing to compare with"},
        {PART(ON, ROW ", \"published\": [1], \"source\": \"s\", \"must\": \"be within\""), "within which tolerance?"},
        {PART(ON, ROW ", \"published\": [1, 2, 3], \"source\": \"s\", \"must\": \"be shown\""), "as many published"},
        {PART(ON, ROW ", \"published\": [-1], \"source\": \"s\", \"must\": \"be shown\""), "a number from 1e-9 to 1e9"},
        {PART(ON, "\"quantity\": \"step, ms\", \"mode\": \"DDP\", " SHOWN), "\"n\" is an array of numbers"},
        {PART(ON, "\"quantity\": \"step, ms\", \"mode\": \"DDP\", \"n\": [0, 2], " SHOWN), "a number from"},
        {PART(ON, "\"quantity\": \"step, ms\", \"mode\": \"DDP\", \"n\": [1.5, 2], " SHOWN), "no number of devices"},
        {PART(ON, "\"quantity\": \"step, ms\", \"n\": [2, 4], " SHOWN), "a row has a mode"},
        {PART(ON, "\"mode\": \"DDP\", \"n\": [2, 4], " SHOWN), "a row has a quantity"},
        {PART("\"workload\": \"resnet50\"", ROW ", " SHOWN), "a row has a node, or trains"},
        {PART(ON ", \"train\": \"--model=mlp\"", ROW ", " SHOWN), "a row has a node, or trains"},
        {PART("\"node\": \"dgx1-v100\"", ROW ", " SHOWN), "a row that is replayed has a workload"},
        {PART(ON ", \"calibrated_by\": \"step\"", ROW ", " SHOWN), "calibrated by a time"},
        {PART(ON ", \"calibrated_by\": \"hope\"", ROW ", " SHOWN), "calibrated_by is one of \"step\""},
        {"{\"how\": \"h\", \"column\": \"all_reduce_us\", \"node\": \"dgx-a100\", \"parameters\": 5, \"rows\": [{" ROW
         ", " SHOWN "}]}",
         "a row that is replayed has a workload"},
        {PART(ON ", \"latencies_us\": [10]", ROW ", " SHOWN), "latencies_us are those of two and of three"},
        {PART(ON ", \"all_reduce_ms\": [[1, 2, 3]]", ROW ", " SHOWN), "expected two numbers"},
        {PART(ON ", \"shard_state\": 4", ROW ", " SHOWN), "shard_state is a stage of ZeRO"},
        {PART(ON ", \"shard_state\": 1.5", ROW ", " SHOWN), "shard_state is a stage of ZeRO"},
        {PART(ON ", \"micro_batch\": 8", ROW ", " SHOWN), "no whole number of micro-batches"},
        {PART(ON ", \"batch\": 64, \"micro_batch\": 12", ROW ", " SHOWN), "no whole number of micro-batches"},
        {PART(ON ", \"batch\": 64, \"micro_batch\": 32", ROW ", " SHOWN), "no whole number of micro-batches"},
        {PART(ON, ROW ", " SHOWN) "," PART(ON, ROW ", " SHOWN), "this row is there twice"},
        {"{\"sums\": \"a\", \"unit\": \"ms\", \"mean_error\": 0.1}", "rows that count in them"},
        {SUMMED ", {\"sums\": \"a\", \"unit\": \"ms\"}", "a bound on the mean error"},
        {SUMMED ", {\"sums\": \"a\", \"unit\": \"ms\", \"how\": \"h\", \"mean_error\": 0.1, \"of_free\": 0.5}",
         "tell nothing \"free\""},
        {SUMMED, "rows count in sums that are not there"},
        {"{" SHARED ", \"rows\": \"no such list\"}", "no such list"},
    };
    tables_file file;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (open_parts(&file, cases[i].parts) != LS_ERR_INVALID) fail_msg("not refused: %s", cases[i].parts);
        scratch_expect_error("table.json:1: ", cases[i].refusal);
        assert_null(file.json);
    }
    assert_int_equal(tables_file_open(&file, "no such file"), LS_ERR_IO);
    scratch_expect_error("no such file", NULL);
    assert_int_equal(open_parts(&file, PART(ON, ROW ", " SHOWN)), LS_OK);
    assert_int_equal(file.count, 1);
    expect_near(tables_published(&file.parts[0], 1), 104);
    tables_file_close(&file);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static tables_book *make(const tables_file *file) {
    tables_book *book;
    assert_int_equal(tables_book_create(&book), LS_OK);
    tables_begin(book, 1, file->title);
    assert_int_equal(tables_make(book, file, &settings), LS_OK);
    return book;
}

/* A table of the tree, made once for all tests. */
static const tables_book *made_of(const char *name) {
    static tables_book *books[TABLES];
    static tables_file files[TABLES];
    int t = 0;
    while (strcmp(names[t], name) != 0) t++;
    if (books[t]) return books[t];
    assert_int_equal(tables_file_open(&files[t], name), LS_OK);
    return books[t] = make(&files[t]);
}

static const struct tables_item *next_row(const tables_book *book, size_t *at) {
    while (*at < book->count && book->items[*at].kind != TABLES_ROW) (*at)++;
    assert_true(*at < book->count);
    return &book->items[(*at)++];
}

/* Checks the lines of a file's row: its figures as reference, and its input among the results. */
static void expect_lines(const struct tables_part *part, const tables_book *book, size_t *at) {
    for (int i = 0; i < cJSON_GetArraySize(part->n); i++) {
        const struct tables_row *row = &next_row(book, at)->row;
        assert_non_null(strstr(row->quantity, part->quantity));
        assert_string_equal(row->mode, part->mode);
        assert_int_equal(row->n, cJSON_GetArrayItem(part->n, i)->valueint);
        assert_true(row->ours > 0);
        assert_true(!part->source || strstr(row->how, part->source));
        if (part->reference == TABLES_T1_DDP) assert_true(fabs(row->ours / row->reference - 1) < 1e-3);
        if (part->published && !part->reference) expect_near(row->reference, tables_published(part, i));
    }
}

/* In all files, and in those that are not computed, which are 2, 5 and 7. */
TEST_IN(scratch, test_every_published_figure_has_its_row) {
    int published = 0, texts = 0;
    for (int t = 0; t < TABLES; t++) {
        tables_file file;
        size_t at = 0;
        assert_int_equal(tables_file_open(&file, names[t]), LS_OK);
        const tables_book *book = file.compute ? NULL : made_of(names[t]);
        for (int i = 0; i < file.count; i++) {
            const struct tables_part *part = &file.parts[i];
            texts += part->text != NULL;
            published += part->published != NULL;
            if (part->published) assert_true(part->must && (part->source || file.source || part->reference));
            if (!book) continue;
            if (part->quantity) expect_lines(part, book, &at);
            for (int k = 0; part->sums && k < (part->of_free > 0 ? 4 : 2); k++)
                assert_string_equal(next_row(book, &at)->row.mode, part->sums);
        }
        tables_file_close(&file);
    }
    assert_true(published >= 30 && texts >= 20);
}

/* --- planted errors ----------------------------------------------------------------------------------------------- */

static bool holds(const tables_book *book, const char *quantity, const char *mode) {
    for (size_t i = 0; i < book->count; i++) {
        const struct tables_row *row = &book->items[i].row;
        if (book->items[i].kind == TABLES_ROW && strcmp(row->quantity, quantity) == 0 && strcmp(row->mode, mode) == 0)
            return tables_holds(row);
    }
    fail_msg("there is no %s of %s", quantity, mode);
    return false;
}

static void shift(cJSON *numbers, double factor) {
    cJSON *number;
    cJSON_ArrayForEach(number, numbers) cJSON_SetNumberHelper(number, factor * number->valuedouble);
}

/* With one device's step a third longer and latencies a third shorter, bounds that held are missed. */
TEST_IN(scratch, test_bounds_see_a_planted_error) {
    static const struct {
        const char *quantity, *mode;
    } bounds[] = {{"mean absolute error", "ResNets with DDP"},
                  {"mean |log error| of T_N", "ResNets with DDP"},
                  {"mean absolute error", "GPT-2 124M on A100"},
                  {"llm.c step on dgx-a100, ms", "DDP, ZeRO-1, PyTorch's T1"},
                  {"llm.c step on hgx-h100, ms", "DDP, ZeRO-1, PyTorch's T1"},
                  {"mean absolute error", "latency of a ring"}};
    enum { BOUNDS = sizeof bounds / sizeof *bounds };
    tables_file file;
    for (size_t i = 0; i < BOUNDS; i++) assert_true(holds(made_of("published"), bounds[i].quantity, bounds[i].mode));
    assert_int_equal(tables_file_open(&file, "published"), LS_OK);
    for (int i = 0; i < file.count; i++) {
        struct tables_run *run = &file.parts[i].run;
        run->t1_ddp_ms *= 4.0 / 3;
        if (run->calibrated_by) run->t1_ms *= 4.0 / 3;
        shift((cJSON *)(uintptr_t)run->latencies_us, 2.0 / 3);
    }
    tables_book *book = make(&file);
    for (size_t i = 0; i < BOUNDS; i++) assert_false(holds(book, bounds[i].quantity, bounds[i].mode));
    tables_book_destroy(book);
    tables_file_close(&file);
}

/* With a third of the network's rate, and with a free network: in the scene that the network dominates. */
TEST_IN(scratch, test_bounds_see_another_network) {
    static const double factors[] = {1.0 / 3, 1e3};
    static const char *const quantities[] = {"mean absolute error", "mean |log error| of T_N"};
    const char *scene = "a GPT on four nodes";
    tables_file file;
    for (size_t q = 0; q < 2; q++) assert_true(holds(made_of("nodes"), quantities[q], scene));
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        const cJSON *last = NULL;
        int end = 0;
        assert_int_equal(tables_file_open(&file, "nodes"), LS_OK);
        while (!file.parts[end].sums || strcmp(file.parts[end].sums, scene) != 0) end++;
        for (int part = 0; part < end; part++) {
            cJSON *rate = cJSON_GetArrayItem(file.parts[part].run.network, 1);
            if (rate && rate != last) cJSON_SetNumberHelper(rate, factors[i] * rate->valuedouble);
            last = rate;
        }
        file.count = end + 1;
        tables_book *book = make(&file);
        for (size_t q = 0; q < 2; q++) assert_false(holds(book, quantities[q], scene));
        tables_book_destroy(book);
        tables_file_close(&file);
    }
}

/* --- the program -------------------------------------------------------------------------------------------------- */

/* Runs the program with the test's own files: those of the current folder take precedence. */
#define TABLES_THERE "/usr/bin/env -C %s %s/tables --out=%s --tables="

static void make_folder_of_tables(void) {
    static program run;
    program_run(&run, "/bin/mkdir -p %s/labs/replay/tables", scratch_folder());
}

/* Missed bounds are a result, but with --strict a failure. */
TEST_IN(programs, test_exit_status) {
    static const char *const parts[] = {
        PART(ON, ROW ", \"published\": [103, 104], \"source\": \"s\", \"must\": \"be within\", \"tolerance\": 0.9"),
        PART(ON, ROW ", \"published\": [103, 1], \"source\": \"s\", \"must\": \"be within\", \"tolerance\": 0.9")};
    static program run;
    make_folder_of_tables();
    for (int missed = 0; missed < 2; missed++) {
        write_parts("labs/replay/tables/published.json", parts[missed]);
        const char *folder = scratch_folder(), *made = scratch_path("made");
        assert_int_equal(program_run(&run, TABLES_THERE "5", folder, build_folder(), made), 0);
        assert_int_equal(strstr(run.out_text, " in table 5)") != NULL, missed);
        assert_int_equal(program_run(&run, TABLES_THERE "5 --strict", folder, build_folder(), made), missed);
        assert_int_equal(strstr(run.err_text, "1 of 2 bounds were missed, first table 5") != NULL, missed);
    }
}

/* Mistakes in a file end the program before it makes anything; a missing node ends its table. */
TEST_IN(programs, test_a_bad_file) {
    static program run;
    tables_file file;
    tables_book *book;
    assert_int_equal(
        open_parts(&file, PART("\"node\": \"no-such-machine\", \"workload\": \"resnet50\"", ROW ", " SHOWN)), LS_OK);
    assert_int_equal(tables_book_create(&book), LS_OK);
    assert_int_equal(tables_make(book, &file, &settings), LS_ERR_IO);
    scratch_expect_error("no-such-machine", NULL);
    tables_book_destroy(book);
    tables_file_close(&file);
    make_folder_of_tables();
    scratch_write("labs/replay/tables/published.json", "{\n\"titel\": \"\"}\n", 15);
    program_run(&run, TABLES_THERE "2,5", scratch_folder(), build_folder(), scratch_path("made"));
    assert_int_equal(run.status, 1);
    assert_non_null(strstr(run.err_text, "labs/replay/tables/published.json:"));
    assert_int_equal(count_lines(run.err_text), 1);
    assert_string_equal(run.out_text, "");
}
