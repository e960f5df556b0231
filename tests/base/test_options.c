/* options: which are accepted, which are refused and with which message, and the --help page. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/version.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

enum { COUNT = 13 };

struct settings {
    bool quiet, shuffle;
    int epochs, optimizer;
    int64_t seed;
    size_t memory_bytes;
    double lr, ratio;
    const char *file;
    const char *data;
    ls_int_list devices;
};

static const char *const optimizers[] = {"sgd", "adam", "adamw", NULL};

static const struct settings defaults = {.shuffle = true,
                                         .epochs = 3,
                                         .optimizer = 1,
                                         .seed = 42,
                                         .memory_bytes = (size_t)64 << 20,
                                         .lr = 0.1,
                                         .ratio = 1.0 / 3,
                                         .data = "data/digits",
                                         .devices = {0}};

static void fill(ls_option *options, struct settings *s) {
    const ls_option rows[COUNT] = {
        {.kind = LS_OPTION_HEADING, .help = "Training"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &s->quiet, .help = "no notes"},
        {.kind = LS_OPTION_SWITCH, .name = "shuffle", .to.flag = &s->shuffle, .help = "draw a new order each epoch"},
        {.kind = LS_OPTION_INT,
         .name = "epochs",
         .to.number = &s->epochs,
         .argument = "N",
         .limits = LS_BETWEEN(1, 100),
         .help = "passes over the data"},
        {.kind = LS_OPTION_CHOICE,
         .name = "optimizer",
         .to.number = &s->optimizer,
         .choices = optimizers,
         .help = "the rule of the update, in words that are many enough to need a second line on the page of options"},
        {.kind = LS_OPTION_INT64, .name = "seed", .to.big_number = &s->seed, .limits = LS_AT_LEAST(0), .help = "seed"},
        {.kind = LS_OPTION_BYTES,
         .name = "device-memory",
         .to.nbytes = &s->memory_bytes,
         .argument = "BYTES",
         .empty = "all there is",
         .help = "cap"},
        {.kind = LS_OPTION_HEADING, .help = "Other"},
        {.kind = LS_OPTION_DOUBLE, .name = "lr", .to.real = &s->lr, .limits = LS_ABOVE(0), .help = "learning rate"},
        {.kind = LS_OPTION_DOUBLE, .name = "ratio", .to.real = &s->ratio, .help = "a third"},
        {.kind = LS_OPTION_STRING, .name = "file", .to.text = &s->file, .argument = "FILE", .help = "a file"},
        {.kind = LS_OPTION_STRING, .name = "data", .to.text = &s->data, .argument = "DIR", .help = "digits"},
        {.kind = LS_OPTION_INT_LIST,
         .name = "device-ids",
         .to.list = &s->devices,
         .limits = LS_AT_LEAST(0),
         .empty = "all devices",
         .help = "the devices"},
    };
    memcpy(options, rows, sizeof rows);
}

/* Parses "prog WORDS" into *s, which starts as the defaults; the error line is stored in message. */
static ls_status parse(struct settings *s, const char *operands, char *words[], ls_parsed *parsed, char message[512]) {
    char *argv[16] = {"prog"};
    int argc = 1;
    while (words[argc - 1]) {
        argv[argc] = words[argc - 1];
        argc++;
    }
    ls_option options[COUNT];
    *s = defaults;
    fill(options, s);
    const ls_command command = {.options = options, .count = COUNT, .operands = operands, .purpose = "Tests options."};
    ls_log_capture(message, 512);
    ls_status status = ls_options_parse(&command, argc, argv, parsed);
    ls_log_capture(NULL, 0);
    return status;
}

#define WORDS(...) ((char *[]){__VA_ARGS__, NULL})

static void accepts(struct settings *s, char *words[]) {
    ls_parsed parsed;
    char message[512];
    assert_int_equal(parse(s, NULL, words, &parsed, message), LS_OK);
    assert_string_equal(message, "");
    assert_false(parsed.help);
}

TEST(test_values) {
    struct settings s;
    accepts(&s, WORDS("--epochs=7", "--lr", "1e-3", "--quiet", "--no-shuffle", "--optimizer", "adamw"));
    assert_int_equal(s.epochs, 7);
    assert_true(s.lr == 1e-3);
    assert_true(s.quiet);
    assert_false(s.shuffle);
    assert_int_equal(s.optimizer, 2);
    accepts(&s, WORDS("--no-shuffle", "--shuffle", "--seed", "9223372036854775807", "--file=--x", "--epochs", "1"));
    assert_true(s.shuffle);
    assert_true(s.seed == INT64_MAX);
    assert_string_equal(s.file, "--x");
    assert_int_equal(s.epochs, 1);
    accepts(&s, WORDS("--device-memory", "3G", "--epochs", "100", "--optimizer=sgd"));
    assert_true(s.memory_bytes == (size_t)3 << 30);
    assert_int_equal(s.optimizer, 0);
    accepts(&s, WORDS("--device-memory=5K", "--ratio", "-0.5"));
    assert_int_equal(s.memory_bytes, 5120);
    assert_true(s.ratio == -0.5);
    accepts(&s, WORDS("--device-memory=2M", "--quie"));
    assert_int_equal(s.memory_bytes, 2 << 20);
    assert_true(s.quiet);
    accepts(&s, WORDS("--device_memory=3K", "--device_ids", "4", "--no_shuffle"));
    assert_int_equal(s.memory_bytes, 3072);
    assert_int_equal(s.devices.values[0], 4);
    assert_false(s.shuffle);
    accepts(&s, WORDS("--device-memory=77", "--epochs=5", "--epochs=6", "--"));
    assert_int_equal(s.memory_bytes, 77);
    assert_int_equal(s.epochs, 6);
}

TEST(test_untouched_fields_keep_their_defaults) {
    struct settings s;
    accepts(&s, WORDS("--quiet"));
    assert_true(s.shuffle);
    assert_int_equal(s.epochs, 3);
    assert_int_equal(s.seed, 42);
    assert_int_equal(s.memory_bytes, 64 << 20);
    assert_null(s.file);
    assert_string_equal(s.data, "data/digits");
    assert_int_equal(s.devices.count, 0);
}

TEST(test_lists) {
    struct settings s;
    accepts(&s, WORDS("--device-ids", "0,0,12"));
    assert_int_equal(s.devices.count, 3);
    assert_int_equal(s.devices.values[0], 0);
    assert_int_equal(s.devices.values[1], 0);
    assert_int_equal(s.devices.values[2], 12);
    accepts(&s, WORDS("--device-ids=5"));
    assert_int_equal(s.devices.count, 1);
    assert_int_equal(s.devices.values[0], 5);

    char many[256] = "0";
    for (int i = 1; i < LS_INT_LIST_MAX; i++) strcat(many, ",1");
    accepts(&s, WORDS("--device-ids", many));
    assert_int_equal(s.devices.count, LS_INT_LIST_MAX);
    ls_parsed parsed;
    char message[512];
    strcat(many, ",1");
    assert_int_equal(parse(&s, NULL, WORDS("--device-ids", many), &parsed, message), LS_ERR_USAGE);
    assert_string_equal(message, "option --device-ids: too many numbers; expected at most 64");
}

struct refusal {
    char *words[3];
    const char *message;
};

static void expect_refusals(const struct refusal *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct settings s;
        ls_parsed parsed;
        char message[512];
        char *words[] = {cases[i].words[0], cases[i].words[1], cases[i].words[2], NULL};
        assert_int_equal(parse(&s, NULL, words, &parsed, message), LS_ERR_USAGE);
        assert_string_equal(message, cases[i].message);
    }
}

TEST(test_names_are_refused) {
    static const struct refusal cases[] = {
        {{"--bogus"}, "unknown option --bogus; --help lists the options"},
        {{"--bogus=3"}, "unknown option --bogus; --help lists the options"},
        {{"--no-quiet"}, "unknown option --no-quiet; --help lists the options"},
        {{"-x"}, "unknown option -x; --help lists the options"},
        {{"--quiet", "-xy"}, "unknown option -xy; --help lists the options"},
        {{"--optimiser=sgd"}, "unknown option --optimiser; did you mean --optimizer?"},
        {{"--eopchs", "3"}, "unknown option --eopchs; did you mean --epochs?"},
        {{"--learning-rate", "0.1"}, "unknown option --learning-rate; did you mean --lr?"},
        {{"--learning_rate=0.1"}, "unknown option --learning_rate; did you mean --lr?"},
        {{"--dm=1G"}, "unknown option --dm; did you mean --device-memory?"},
        {{"--num-epochs", "3"}, "unknown option --num-epochs; did you mean --epochs?"},
        {{"--ids=0"}, "unknown option --ids; did you mean --device-ids?"},
        {{"--Epochs=3"}, "unknown option --Epochs; did you mean --epochs?"},
        {{"--no-shufle"}, "unknown option --no-shufle; did you mean --no-shuffle?"},
        {{"--rl=3"}, "unknown option --rl; --help lists the options"},
        {{"-lr", "0.1"}, "unknown option -lr; names take two dashes: --lr"},
        {{"--quiet", "-epochs=3"}, "unknown option -epochs; names take two dashes: --epochs"},
        {{"-device_ids=3"}, "unknown option -device_ids; names take two dashes: --device-ids"},
        {{"-epoch=3"}, "unknown option -epoch; did you mean --epochs?"},
        {{"epochs=3"}, "'epochs=3' is not an option; did you mean --epochs?"},
        {{"--optimizer", "Adam"},
         "option --optimizer: 'Adam' is unknown, choose sgd, adam or adamw; did you mean adam?"},
        {{"--device_=1"}, "option --device_ is ambiguous: --device-memory, --device-ids"},
        {{"--device=1"}, "option --device is ambiguous: --device-memory, --device-ids"},
        {{"--epochs"}, "option --epochs needs a value"},
        {{"--quiet=yes"}, "option --quiet takes no value"},
        {{"--no-shuffle=1"}, "option --no-shuffle takes no value"},
        {{"--help=1"}, "option --help takes no value"},
        {{"--version=1"}, "option --version takes no value"},
        {{"file.c"}, "'file.c' is not an option; --help lists the options"},
        {{"--", "--quiet"}, "'--quiet' is not an option; --help lists the options"},
        {{"\033[2J\177"}, "'?[2J?' is not an option; --help lists the options"},
    };
    expect_refusals(cases, sizeof cases / sizeof cases[0]);
}

TEST(test_values_are_refused) {
    static const struct refusal cases[] = {
        {{"--epochs", "abc"}, "option --epochs: 'abc' is not a whole number"},
        {{"--epochs="}, "option --epochs: '' is not a whole number"},
        {{"--epochs= 5"}, "option --epochs: ' 5' is not a whole number"},
        {{"--epochs=5x"}, "option --epochs: '5x' is not a whole number"},
        {{"--epochs=1\n2"}, "option --epochs: '1?2' is not a whole number"}, /* one line, without control characters */
        {{"--epochs=1.5"}, "option --epochs: '1.5' is not a whole number"},
        {{"--epochs=0"}, "option --epochs: 0 is out of range; expected 1 to 100"},
        {{"--epochs=101"}, "option --epochs: 101 is out of range; expected 1 to 100"},
        {{"--epochs=4294967297"}, "option --epochs: 4294967297 is out of range; expected -2147483648 to 2147483647"},
        {{"--seed=-1"}, "option --seed: -1 is out of range; expected at least 0"},
        {{"--seed=9223372036854775808"},
         "option --seed: 9223372036854775808 is out of range; expected -9223372036854775808 to 9223372036854775807"},
        {{"--lr", "fast"}, "option --lr: 'fast' is not a number"},
        {{"--lr", "1e-3,"}, "option --lr: '1e-3,' is not a number"},
        {{"--lr", "nan"}, "option --lr: 'nan' is not a number"},
        {{"--lr", "-nan"}, "option --lr: -nan is out of range; expected a finite number"},
        {{"--lr", "1e999"}, "option --lr: 1e999 is out of range; expected a finite number"},
        {{"--lr", "0"}, "option --lr: 0 is out of range; expected more than 0"},
        {{"--device-memory", "12Q"},
         "option --device-memory: '12Q' is not a size; give a whole number of bytes, or a number with K, M or G"},
        {{"--device-memory", "1GB"},
         "option --device-memory: '1GB' is not a size; give a whole number of bytes, or a number with K, M or G"},
        {{"--device-memory", "-1"},
         "option --device-memory: '-1' is not a size; give a whole number of bytes, or a number with K, M or G"},
        {{"--device-memory", "18014398509481984K"},
         "option --device-memory: 18014398509481984K is out of range; expected at most 18446744073709551615 bytes"},
        {{"--device-memory", "99999999999999999999"},
         "option --device-memory: 99999999999999999999 is out of range; expected at most 18446744073709551615 bytes"},
        {{"--optimizer", "lamb"}, "option --optimizer: 'lamb' is unknown, choose sgd, adam or adamw"},
        {{"--file", ""}, "option --file: expected a value, found an empty one"},
        {{"--device-ids", "0,,1"}, "option --device-ids: '0,,1' is not a list of whole numbers such as 0,1,2"},
        {{"--device-ids", "0,"}, "option --device-ids: '0,' is not a list of whole numbers such as 0,1,2"},
        {{"--device-ids", "0,b"}, "option --device-ids: 'b' is not a whole number"},
        {{"--device-ids", "0,-1"}, "option --device-ids: -1 is out of range; expected at least 0"},
    };
    expect_refusals(cases, sizeof cases / sizeof cases[0]);
}

/* --- single-letter options, and the environment ------------------------------------------------------------------- */

struct lettered {
    int count;
    bool module, standalone;
    const char *text;
};

static ls_status parse_lettered(struct lettered *s, char *words[], int *first_operand, char message[512]) {
    *s = (struct lettered){.count = 1};
    const ls_option rows[] = {
        {.kind = LS_OPTION_HEADING, .help = "Letters"},
        {.kind = LS_OPTION_INT,
         .name = "nproc-per-node",
         .letter = 'n',
         .to.number = &s->count,
         .limits = LS_BETWEEN(1, 9)},
        {.kind = LS_OPTION_FLAG, .name = "module", .letter = 'm', .to.flag = &s->module},
        {.kind = LS_OPTION_FLAG, .name = "standalone", .to.flag = &s->standalone},
        {.kind = LS_OPTION_STRING, .name = "tee", .letter = 't', .to.text = &s->text},
    };
    const ls_command command = {.options = rows, .count = COUNT_OF(rows), .operands = "PROGRAM", .variables = "TRY_"};
    char *argv[16] = {"prog"};
    int argc = 1;
    ls_parsed parsed;
    while ((argv[argc] = words[argc - 1])) argc++;
    ls_log_capture(message, 512);
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    ls_log_capture(NULL, 0);
    *first_operand = parsed.first_operand;
    return status;
}

TEST(test_letters) {
    struct lettered s;
    int first;
    char message[512];
    assert_int_equal(parse_lettered(&s, WORDS("-n", "4", "-m", "-t3", "prog", "-n", "5"), &first, message), LS_OK);
    assert_int_equal(s.count, 4);
    assert_true(s.module);
    assert_string_equal(s.text, "3");
    assert_int_equal(first, 5); /* the rest belongs to the program */
    assert_int_equal(parse_lettered(&s, WORDS("-mn7"), &first, message), LS_OK);
    assert_int_equal(s.count, 7);
    assert_int_equal(parse_lettered(&s, WORDS("-n"), &first, message), LS_ERR_USAGE);
    assert_string_equal(message, "option --nproc-per-node needs a value");
    assert_int_equal(parse_lettered(&s, WORDS("-n", "0"), &first, message), LS_ERR_USAGE);
    assert_string_equal(message, "option --nproc-per-node: 0 is out of range; expected 1 to 9");
    assert_int_equal(parse_lettered(&s, WORDS("-x"), &first, message), LS_ERR_USAGE);
    assert_string_equal(message, "unknown option -x; --help lists the options");
}

TEST(test_variables_are_defaults) {
    struct lettered s;
    int first;
    char message[512];
    setenv("TRY_NPROC_PER_NODE", "6", 1);
    setenv("TRY_STANDALONE", "1", 1);
    setenv("TRY_MODULE", "0", 1);
    setenv("TRY_TEE", "", 1); /* as if it were not set */
    assert_int_equal(parse_lettered(&s, WORDS("prog"), &first, message), LS_OK);
    assert_int_equal(s.count, 6);
    assert_true(s.standalone);
    assert_false(s.module);
    assert_null(s.text);
    assert_int_equal(parse_lettered(&s, WORDS("--nproc_per_node=2"), &first, message), LS_OK);
    assert_int_equal(s.count, 2); /* the command line takes precedence */
    setenv("TRY_STANDALONE", "yes", 1);
    assert_int_equal(parse_lettered(&s, WORDS("prog"), &first, message), LS_ERR_USAGE);
    assert_string_equal(message, "the environment's TRY_STANDALONE is 'yes', but must be 0 or 1");
    unsetenv("TRY_STANDALONE");
    setenv("TRY_NPROC_PER_NODE", "12", 1);
    assert_int_equal(parse_lettered(&s, WORDS("prog"), &first, message), LS_ERR_USAGE);
    assert_string_equal(message, "the environment's TRY_NPROC_PER_NODE: option --nproc-per-node: 12 is out of range; "
                                 "expected 1 to 9");
    unsetenv("TRY_NPROC_PER_NODE");
    unsetenv("TRY_MODULE");
    unsetenv("TRY_TEE");
}

TEST(test_operands_end_the_options) {
    struct settings s;
    ls_parsed parsed;
    char message[512];
    char **words = WORDS("--epochs", "5", "program", "--epochs", "9", "--help");
    assert_int_equal(parse(&s, "PROGRAM [ARGUMENT...]", words, &parsed, message), LS_OK);
    assert_int_equal(parsed.first_operand, 3);
    assert_false(parsed.help);
    assert_int_equal(s.epochs, 5);
    assert_int_equal(parse(&s, "PROGRAM", WORDS("--quiet", "--", "--lr"), &parsed, message), LS_OK);
    assert_int_equal(parsed.first_operand, 3);
    assert_int_equal(parse(&s, "PROGRAM", WORDS("--quiet"), &parsed, message), LS_OK);
    assert_int_equal(parsed.first_operand, 2);
}

/* Runs the parser with stdout in a file; returns what it wrote. */
static void read_page(char *words[], char *page, size_t capacity) {
    struct settings s;
    ls_parsed parsed;
    char message[512];
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    ls_status status = parse(&s, NULL, words, &parsed, message);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(status, LS_OK);
    assert_true(parsed.help);
    assert_int_equal(s.epochs, 3); /* nothing is set when the page was requested */
    rewind(file);
    page[fread(page, 1, capacity - 1, file)] = '\0';
    fclose(file);
}

TEST(test_help_shows_every_default) {
    static const char expected[] =
        "Usage: prog [OPTION...]\n"
        "Tests options.\n"
        "\n"
        "Training:\n"
        "  --quiet                     no notes (default: off)\n"
        "  --[no-]shuffle              draw a new order each epoch (default: on)\n"
        "  --epochs=N                  passes over the data (default: 3)\n"
        "  --optimizer=sgd|adam|adamw  the rule of the update, in words that are many enough to need a second\n"
        "                              line on the page of options (default: adam)\n"
        "  --seed=VALUE                seed (default: 42)\n"
        "  --device-memory=BYTES       cap (default: 64M)\n"
        "\n"
        "Other:\n"
        "  --lr=VALUE                  learning rate (default: 0.1)\n"
        "  --ratio=VALUE               a third (default: 0.3333333333333333)\n"
        "  --file=FILE                 a file (default: none)\n"
        "  --data=DIR                  digits (default: data/digits)\n"
        "  --device-ids=VALUE          the devices (default: all devices)\n"
        "\n"
        "  -h, --help                  show this page and do nothing else\n"
        "  --version                   name and version, and nothing else\n";
    char page[4096];
    read_page(WORDS("--help"), page, sizeof page);
    assert_string_equal(page, expected);
    read_page(WORDS("--epochs", "9", "--bogus", "--lr=x", "--help"), page, sizeof page);
    assert_string_equal(page, expected);
    read_page(WORDS("--epochs", "9", "-h", "--version"), page, sizeof page);
    assert_string_equal(page, expected);
}

/* The version has one source; the changelog's first heading must match it. */
TEST(test_version) {
    char page[200];
    read_page(WORDS("--epochs", "9", "--version", "--help"), page, sizeof page);
    assert_string_equal(page, "prog (lockstep) " LS_VERSION "\n");
    size_t nbytes;
    char *changes = scratch_read("CHANGELOG.md", &nbytes), *heading = strstr(changes, "\n## ");
    assert_non_null(heading);
    if (strncmp(heading, "\n## " LS_VERSION, strlen("\n## " LS_VERSION)) != 0)
        fail_msg("CHANGELOG.md begins with %.20s, and programs say " LS_VERSION, heading + 1);
    free(changes);
}

TEST(test_values_as_text) {
    struct settings s = defaults;
    ls_option options[COUNT];
    fill(options, &s);
    char text[32], tiny[3];
    s.memory_bytes = 0;
    ls_option_text(&options[6], text, sizeof text);
    assert_string_equal(text, "all there is");
    s.memory_bytes = 1536;
    ls_option_text(&options[6], text, sizeof text);
    assert_string_equal(text, "1536");
    s.memory_bytes = (size_t)2048 << 30;
    ls_option_text(&options[6], text, sizeof text);
    assert_string_equal(text, "2048G");
    s.seed = 0;
    ls_option_text(&options[5], text, sizeof text);
    assert_string_equal(text, "0");
    s.lr = 1e-8;
    ls_option_text(&options[8], text, sizeof text);
    assert_string_equal(text, "1e-08");
    s.devices = (ls_int_list){3, {0, 1, 12}};
    ls_option_text(&options[12], text, sizeof text);
    assert_string_equal(text, "0,1,12");
    ls_option_text(&options[12], tiny, sizeof tiny);
    assert_string_equal(tiny, "0,");
}
