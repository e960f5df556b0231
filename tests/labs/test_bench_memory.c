/* bench_memory: its command line, the figures that it reads from a run, its arithmetic and its sentences on synthetic
 *               rows; that a described network holds and sends as much as the real one; and one complete run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "labs/bench/memory/bench_memory.h"
#include "labs/bench/shared/child.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

static memory_settings settings;
static memory_results results;

static ls_status parse(char *a, char *b, char *c) {
    char name[] = "bench_memory";
    char *argv[] = {name, a, b, c, NULL};
    int argc = 1;
    bool help;
    while (argv[argc]) argc++;
    return memory_parse(&settings, argc, argv, &help);
}

#define WORD(text) ((char[]){text})

/* --- the command line -------------------------------------------------------------------------------------------- */

TEST(defaults) {
    assert_int_equal(parse(NULL, NULL, NULL), LS_OK);
    assert_int_equal(settings.model_count, 3);
    assert_string_equal(settings.models[2].name, "resnet50");
    assert_null(settings.models[2].data);
    assert_int_equal(settings.n.count, 3);
    assert_int_equal(settings.n.values[2], 8);
}

TEST_IN(scratch, wrong_usage) {
    assert_int_equal(parse(WORD("--models=mlp"), NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("unknown model mlp; expected deep, wide or resnet50", NULL);
    assert_int_equal(parse(WORD("--models=deep,deep"), NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("deep is named twice", NULL);
    assert_int_equal(parse(WORD("--models=deep"), WORD("--n=3"), NULL), LS_ERR_USAGE);
    scratch_expect_error("deep: 3 devices cannot share a batch of 512 equally", NULL);
    assert_int_equal(parse(WORD("--n=2,4,8,16,32"), NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("expected at most 4", NULL);
    assert_int_equal(parse(WORD("--models=deep"), WORD("--n=4,2,4"), WORD("--batch=8")), LS_OK);
    assert_int_equal(settings.n.count, 2);
    assert_int_equal(settings.models[0].batch, 8);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void plan(const char *models, const char *n, int cores) {
    char words[2][64];
    snprintf(words[0], sizeof words[0], "--models=%s", models);
    snprintf(words[1], sizeof words[1], "--n=%s", n);
    assert_int_equal(parse(words[0], words[1], NULL), LS_OK);
    settings.cores = cores;
    results = (memory_results){.machine = &example_machine, .settings = &settings};
    memory_plan_rows(&results);
}

static memory_row *row_of(int model, int n, size_t technique) {
    memory_row *row = (memory_row *)(void *)memory_find(&results, &settings.models[model], n, technique);
    assert_non_null(row);
    return row;
}

TEST(what_can_be_run_is_measured_and_the_rest_replayed) {
    plan("deep,resnet50", "2,4,8", 4);
    size_t count = 0, replayed = 0;
    for (; memory_techniques[count].name; count++) replayed += memory_techniques[count].is_replayed;
    assert_int_equal(results.row_count,
                     2 * count + 4 * replayed - 3); /* resnet50 does not describe how its layers are cut */
    assert_true(replayed >= 5);
    assert_null(memory_techniques[0].option);
    for (size_t t = 0; t < count; t++) {
        assert_true(row_of(0, 2, t)->is_measured && row_of(0, 4, t)->is_measured);
        assert_false(row_of(0, 4, t)->oversubscribed);
        if (memory_techniques[t].is_replayed) assert_false(row_of(0, 8, t)->is_measured);
        if (memory_techniques[t].is_replayed && !memory_techniques[t].split) assert_false(row_of(1, 2, t)->is_measured);
    }
    plan("wide", "2,4", 4); /* which has two layers */
    for (size_t t = 0; t < count; t++)
        assert_true((memory_find(&results, &settings.models[0], 4, t) != NULL) == !memory_techniques[t].by_blocks);
    plan("deep", "2,4", 1);
    assert_true(row_of(0, 2, 0)->is_measured && row_of(0, 2, 0)->oversubscribed);
    assert_false(row_of(0, 4, 0)->is_measured);
}

TEST(every_technique_has_a_name_of_its_own) {
    for (const memory_technique *t = memory_techniques; t->name; t++) {
        for (const memory_technique *u = memory_techniques; u < t; u++) assert_string_not_equal(t->name, u->name);
        assert_true(t == memory_techniques || t->option || t->split);
        assert_true(t - memory_techniques < MEMORY_TECHNIQUES_MAX);
    }
}

/* --- reading a run ------------------------------------------------------------------------------------------------ */

#define RANK(total, adam, sent)                                                                                        \
    "{\"peak_bytes\":{\"parameter\":100,\"gradient\":0,\"optimizer\":" adam ",\"activation\":30,\"input\":2,"          \
    "\"gathered output\":0,\"bucket\":100,\"workspace\":1,\"total\":" total "},\"bytes_per_step_by_phase\":{" sent     \
    "}}"
#define SUMMARY(model, ms, hash)                                                                                       \
    "{\"summary\":{\"model\":\"" model "\",\"devices\":2,\"batch_size\":512,\"median_step_ms\":" ms                    \
    ",\"parameter_hash\":\"" hash "\",\"device_table\":[" RANK("400", "150", "\"all-reduce\":100") "," RANK(           \
        "450", "200", "\"all-reduce\":100,\"broadcast\":7") "]}}"

TEST(a_summary_is_read) {
    plan("deep", "2", 2);
    memory_row *row = row_of(0, 2, 0);
    assert_int_equal(memory_read_summary(row, SUMMARY("deep", "12.5", "ab")), LS_OK);
    assert_int_equal(memory_read_summary(row, SUMMARY("deep", "11.5", "ab")), LS_OK);
    assert_true(row->repeats && row->run_count == 2 && row->run_ms[1] == 11.5);
    assert_true(row->total_bytes == 450 && row->bytes[LS_MEMORY_OPTIMIZER] == 200); /* of the rank that holds most */
    assert_true(row->bytes[LS_MEMORY_BUCKET] == 100 && row->bytes[LS_MEMORY_WORKSPACE] == 1);
    expect_near(row->sent_bytes, 107);
    assert_int_equal(memory_read_summary(row, SUMMARY("deep", "11.5", "cd")), LS_OK);
    assert_false(row->repeats);
}

TEST_IN(scratch, other_summaries_are_refused) {
    static const char *const bad[] = {"",
                                      "{}",
                                      SUMMARY("wide", "12.5", "ab"),
                                      SUMMARY("deep", "0", "ab"),
                                      SUMMARY("deep", "null", "ab"),
                                      SUMMARY("deep", "12.5", "")};
    plan("deep", "2", 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(memory_read_summary(row_of(0, 2, 0), bad[i]), LS_ERR_FORMAT);
        scratch_expect_error("the summary of deep, plain DDP on 2 ranks, cannot be read", NULL);
    }
    assert_int_equal(row_of(0, 2, 0)->run_count, 0);
}

TEST(bytes_are_sent_as_rings_send_them) {
    static const struct {
        const char *phases;
        double bytes; /* of 4 ranks */
        bool is_split;
    } cases[] = {{"{\"all-reduce\": 100}", 150, false},
                 {"{\"all-reduce\": 100, \"broadcast\": 9, \"tensor\": 40}", 60, true},
                 {"{\"all-reduce\": 100, \"stages\": 7}", 7, true},
                 {"{\"reduce\": 100, \"gather\": 100}", 150, false},
                 {"{\"gather\": 200, \"reduce\": 100}", 225, false},
                 {"{\"broadcast\": 8, \"forward\": 99}", 8, false},
                 {"{}", 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *object = cJSON_Parse(cases[i].phases);
        expect_near(memory_sent_bytes(object, 4, cases[i].is_split), cases[i].bytes);
        cJSON_Delete(object);
    }
}

/* --- figures and sentences ---------------------------------------------------------------------------------------- */

static void fill(memory_row *row, double ms, double total, const char *weights) {
    row->run_count = 3;
    row->run_ms[0] = ms;
    row->run_ms[1] = 9 * ms; /* disturbed */
    row->run_ms[2] = 0.9 * ms;
    row->total_bytes = total * 1048576;
    snprintf(row->weights, sizeof row->weights, "%s", weights);
}

static void make_rows(void) {
    plan("deep", "2,8", 2);
    for (int i = 0; i < results.row_count; i++) fill(&results.rows[i], 20, 300, "ab");
    fill(row_of(0, 2, 1), 25, 150, "ab");
    fill(row_of(0, 2, 2), 16, 225, "ab");
    fill(row_of(0, 8, 0), 10, 200, "");
    fill(row_of(0, 8, 2), 11, 120, "");
    memory_assemble(&results);
}

static void expect_answer(const char *text) {
    bench_text written;
    FILE *file = bench_text_open(&written);
    assert_int_equal(memory_put_answers(file, &results), LS_OK);
    char *answers = bench_text_close(&written);
    if (!strstr(answers, text)) fail_msg("\"%s\" is not in:\n%s", text, answers);
    free(answers);
}

TEST(techniques_are_compared_with_plain_ddp_on_as_many_devices) {
    make_rows();
    expect_near(row_of(0, 2, 1)->step_ms, 25);
    expect_near(row_of(0, 2, 1)->step_ms_min, 22.5);
    expect_near(row_of(0, 2, 1)->step_ms_max, 225);
    expect_near(row_of(0, 2, 1)->step_ratio, 1.25);
    expect_near(row_of(0, 2, 1)->total_ratio, 0.5);
    expect_near(row_of(0, 8, 2)->total_ratio, 0.6);
    expect_answer(
        "deep, N = 2, measured: checkpoint sqrt holds least, 0.50x of plain DDP's 300 MiB, in 1.25x its 20.0 ms "
        "(within the spread); "
        "ZeRO-1 is fastest, 0.80x (within the spread)\n");
    expect_answer("deep, N = 8, replayed: ZeRO-1 holds least, 0.60x of plain DDP's 200 MiB, in 1.10x its 10.0 ms; "
                  "plain DDP is fastest, 1.00x\n");
    row_of(0, 2, 2)->step_ms_max = 17; /* and plain DDP's fastest run took 18 */
    expect_answer("ZeRO-1 is fastest, 0.80x\n");
    row_of(0, 2, 2)->run_count = 1;
    expect_answer("ZeRO-1 is fastest, 0.80x (one run)\n");
    expect_answer(
        "Same weights: yes, bit for bit, in every measured run (a network in parts has its own, the same in every "
        "run)\n");
    expect_answer(
        "Sharding on hgx-h200: reduce-scatter and all-gather take 1.00x, 1.33x an all-reduce's time on N = 2, 8\n");
}

TEST(a_row_that_failed_is_not_compared) {
    make_rows();
    row_of(0, 2, 1)->failed = true;
    memory_assemble(&results);
    assert_true(isnan(row_of(0, 2, 1)->step_ms) && isnan(row_of(0, 2, 1)->total_bytes));
    expect_answer("deep, N = 2, measured: ZeRO-1 holds least, 0.75x");
    row_of(0, 2, 0)->failed = true;
    memory_assemble(&results);
    expect_answer("deep, N = 2: plain DDP failed, so nothing is compared\n");
}

TEST(other_weights_are_told) {
    make_rows();
    assert_true(memory_same_weights(&results, &settings.models[0], 2));
    strcpy(row_of(0, 2, 2)->weights, "cd");
    assert_false(memory_same_weights(&results, &settings.models[0], 2));
    expect_answer("Same weights: no, in every measured run");
    strcpy(row_of(0, 2, 2)->weights, "ab");
    row_of(0, 2, 2)->repeats = false;
    assert_false(memory_same_weights(&results, &settings.models[0], 2));
}

/* --- described and real ------------------------------------------------------------------------------------------- */

static program p;

/* The figures that ddp_train counts on meta devices, with rank 0's for all. */
static memory_row count_real(const memory_row *row) {
    memory_row real = {.n = row->n, .technique = row->technique};
    const char *option = row->technique->option;
    char split[32] = "";
    if (row->technique->split) snprintf(split, sizeof split, "%s=%d", row->technique->split, row->n);
    program_run(&p,
                "ddp_train --spawn %d --device-kind meta --model %s --data %s --optimizer adam --batch-size %lld "
                "--steps 4 --drop-last --no-evaluate --quiet %s %s --summary %s",
                row->n, row->model->name, row->model->data, (long long)row->model->batch, split, option ? option : "",
                scratch_path("summary"));
    assert_int_equal(p.status, 0);
    char *text = scratch_read_text("summary");
    cJSON *wrapper = cJSON_Parse(text);
    const cJSON *summary = cJSON_GetObjectItem(wrapper, "summary");
    assert_true(memory_read_ranks(&real, cJSON_GetObjectItem(summary, "device_table")));
    cJSON_Delete(wrapper);
    free(text);
    return real;
}

/* Except lists of tensors. A described network may keep one more boundary of segments. */
static double allowed_bytes(const memory_row *row, int category, double bytes) {
    return category == LS_MEMORY_ACTIVATION && row->technique->every != 0 ? 0.15 * bytes : 1024 + 0.001 * bytes;
}

/* Each category, for all techniques; padded slots of ZeRO, too. */
TEST_IN(programs, described_networks_hold_and_send_what_the_real_ones_do) {
    plan("deep,wide", "4", 1);
    for (int i = 0; i < results.row_count; i++) {
        memory_row *row = &results.rows[i];
        assert_false(row->is_measured);
        assert_int_equal(memory_replay(row, &settings), LS_OK);
        const memory_row real = count_real(row);
        for (int c = 0; c < LS_MEMORY_COUNT; c++) {
            double more = row->bytes[c] - real.bytes[c];
            bool inputs = c == LS_MEMORY_INPUT; /* a GPU's host is a step ahead: two batches */
            if (inputs ? row->bytes[c] < real.bytes[c] : fabs(more) > allowed_bytes(row, c, real.bytes[c]))
                fail_msg("%s, %s: %s: %.0f bytes described, %.0f real", row->model->name, row->technique->name,
                         ls_memory_name((ls_memory_category)c), row->bytes[c], real.bytes[c]);
        }
        if (fabs(row->sent_bytes - real.sent_bytes) > 1e-4 * real.sent_bytes)
            fail_msg("%s, %s: %.0f bytes sent as counted, %.0f by phases", row->model->name, row->technique->name,
                     row->sent_bytes, real.sent_bytes);
    }
}

/* --- the program -------------------------------------------------------------------------------------------------- */

/* A ddp_train beside the bench that runs, under the name "deep", a network that is as deep, but narrow. */
static void put_narrow_ddp_train(void) {
    static const char script[] =
        "#!/bin/sh\n"
        "for word; do\n"
        "    shift\n"
        "    [ \"$word\" = --model=deep ] && word=--model=mlp:784,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,10\n"
        "    set -- \"$@\" \"$word\"\n"
        "done\n"
        "'%s/ddp_train' \"$@\" >'%s' || exit\n"
        "sed 's/\"model\": *\"mlp[^\"]*\"/\"model\":\"deep\"/' '%s'\n";
    char text[2000], said[600];
    snprintf(said, sizeof said, "%s", scratch_path("said"));
    int nbytes = snprintf(text, sizeof text, script, build_folder(), said, said);
    assert_in_range(nbytes, 1, sizeof text - 1);
    scratch_write("ddp_train", text, (size_t)nbytes);
    assert_int_equal(chmod(scratch_path("ddp_train"), 0700), 0);
    assert_int_equal(program_run(&p, "/bin/cp %s/bench_memory %s", build_folder(), scratch_folder()), 0);
}

TEST_IN(programs, a_small_run) {
    put_narrow_ddp_train();
    program_start(&p, "%s/bench_memory --models=deep --n=2,4 --batch=16 --rounds=1 --steps=11 --quiet --out=%s",
                  scratch_folder(), scratch_folder());
    assert_int_equal(program_finish_within(&p, 150), 0); /* a run for each technique, in parallel with other tests */
    program_expect_text(&p, "deep, N = 2, measured: ");
    program_expect_text(&p, "Same weights: yes, bit for bit, in every measured run");
    program_expect_text(&p, "deep     4  replayed  plain DDP");
    char *csv = scratch_read_text("memory.csv"), *json = scratch_read_text("memory.json"),
         *text = scratch_read_text("memory.txt");
    assert_non_null(strstr(csv, "memory,\"deep\",2,\"measured\",\"checkpoint sqrt\",16,1,"));
    assert_non_null(strstr(csv, "memory,\"deep\",4,\"replayed\",\"ZeRO-1\",16,1,"));
    assert_non_null(strstr(csv, ",\"hgx-h200\","));
    assert_non_null(strstr(text, "ZeRO-1"));
    cJSON *object = cJSON_Parse(json);
    const cJSON *rows = cJSON_GetObjectItem(object, "rows");
    int expected = 0; /* N = 2 is measured, N = 4 replayed */
    for (const memory_technique *t = memory_techniques; t->name; t++) expected += 1 + t->is_replayed;
    assert_int_equal(cJSON_GetArraySize(rows), expected);
    const cJSON *measured = cJSON_GetArrayItem(rows, 0), *replayed = cJSON_GetArrayItem(rows, expected - 1);
    double narrow = bench_number_of(measured, "parameters_bytes");
    assert_true(narrow > 4 * 784 * 32 && narrow < 4 * 784 * 64);
    assert_true(bench_number_of(replayed, "parameters_bytes") > 66e6 / 4);
    assert_true(bench_number_of(measured, "step_ms") > 0);
    cJSON_Delete(object);
    free(csv);
    free(json);
    free(text);
}
