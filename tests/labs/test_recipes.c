#define _GNU_SOURCE
/* labs/bench/recipes/recipes.sh, as `make recipes` runs it: its table and its CSV agree, and an error is reported in
 * one line and changes no results. There are few real digits, so ten epochs take a second or two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

enum { EPOCHS = 10 };

static program run;

static int recipe(const char *data, const char *name) {
    return program_run(&run, "DATA=%s labs/bench/recipes/recipes.sh %s %s %s", data, build_folder(), scratch_folder(),
                       name);
}

static void expect_one_line(const char *text) {
    assert_non_null(strstr(run.err_text, text));
    assert_int_equal(count_lines(run.err_text), 1);
}

/* The line of `text` that begins with `begin`, after blanks. */
static const char *row(const char *text, const char *begin) {
    for (const char *line = text; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL) {
        const char *word = line + strspn(line, " ");
        if (strncmp(word, begin, strlen(begin)) == 0) return word;
    }
    return NULL;
}

/* Each row of the CSV has all fields, and the loss that the table shows, rounded. */
TEST_IN(programs, test_table_and_csv_agree) {
    if (recipe("data/digits", "convnet") != 0) fail_msg("%s", run.err_text);
    size_t nbytes;
    char *csv = scratch_read(scratch_path("recipe_convnet.csv"), &nbytes);
    assert_int_equal(count_lines(csv), 1 + EPOCHS);
    double before = 1e9;
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        char begin[16], loss[CSV_FIELD_CAPACITY], course[CSV_FIELD_CAPACITY], pytorch[CSV_FIELD_CAPACITY];
        snprintf(begin, sizeof begin, "%d,", epoch);
        const char *line = row(csv, begin);
        assert_non_null(line);
        assert_int_equal(csv_fields(line), csv_fields(csv));
        csv_field(loss, line, 1);
        csv_field(course, line, 3);
        csv_field(pytorch, line, 4);
        assert_true(strtod(loss, NULL) < before);
        before = strtod(loss, NULL);
        assert_string_equal(pytorch, "nan"); /* known for the 60,000 digits only */
        snprintf(begin, sizeof begin, "%d ", epoch);
        const char *shown = row(run.out_text, begin);
        assert_non_null(shown);
        double shown_loss, shown_course, difference;
        assert_int_equal(sscanf(shown, "%*d %lf %lf %lf", &shown_loss, &shown_course, &difference), 3);
        assert_true(strtod(loss, NULL) - shown_loss < 6e-5 && shown_loss - strtod(loss, NULL) < 6e-5);
        assert_true(shown_course == strtod(course, NULL));
        double expected = (shown_loss / shown_course - 1) * 100;
        assert_true(expected - difference < 0.06 && difference - expected < 0.06);
    }
    free(csv);
    assert_non_null(strstr(run.out_text, "Measured: one run, DistributedDataParallel on 4 "));
    assert_non_null(strstr(run.out_text, "Data: the digits in data/digits."));
    assert_null(strstr(run.out_text, "lockstep and PyTorch differ"));
    assert_int_equal(scratch_file_count(), 3); /* with the two pictures */
}

/* The command line that the recipe prints gives the same results. */
TEST_IN(programs, test_printed_command_gives_the_same) {
    if (recipe("data/digits", "mlp-amp") != 0) fail_msg("%s", run.err_text);
    double shown;
    assert_int_equal(sscanf(row(run.out_text, "fp32 "), "fp32 %*f %*f %*f %*f %lf", &shown), 1);
    static program again;
    const char *printed = strstr(run.out_text, "dp_train ");
    assert_non_null(printed);
    assert_int_equal(program_run(&again, "%.*s", (int)strcspn(printed, "\n"), printed), 0);
    char line[64];
    snprintf(line, sizeof line, "5  loss %.4f ", shown);
    assert_non_null(strstr(again.out_text, line));
    const char *const precisions[] = {"fp32,", "fp16,", "bf16,"};
    char *csv = scratch_read(scratch_path("recipe_mlp-amp.csv"), &(size_t){0});
    for (int p = 0; p < 3; p++) {
        assert_non_null(row(csv, precisions[p]));
        assert_int_equal(csv_fields(row(csv, precisions[p])), csv_fields(csv));
    }
    assert_int_equal(count_lines(csv), 1 + 3 * 5);
    free(csv);
}

TEST_IN(programs, test_failures_are_one_line_and_change_nothing) {
    assert_int_equal(recipe("", "resnet"), 2);
    expect_one_line("there is no recipe resnet; there are mlp-amp and convnet");
    assert_int_equal(recipe("tests/base", "convnet"), 1);
    expect_one_line("DATA=tests/base: there is neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz");
    assert_int_equal(scratch_file_count(), 0);

    /* files with the right names that contain no digits: the program reports it, and older results stay */
    const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                 "t10k-labels-idx1-ubyte"};
    for (int i = 0; i < 4; i++) scratch_write(names[i], "none", 4);
    scratch_write("recipe_convnet.csv", "older", 5);
    assert_int_equal(recipe(scratch_folder(), "convnet"), 1);
    assert_non_null(strstr(run.err_text, "the run failed; see above"));
    char *csv = scratch_read(scratch_path("recipe_convnet.csv"), &(size_t){0});
    assert_string_equal(csv, "older");
    free(csv);
}
