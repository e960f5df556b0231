/* mkdigits — makes a data set of MNIST's size out of a few real digits: each sample is a real digit, shifted, rotated,
 * scaled, sheared and noisy. Training samples come from the source's training files and test samples from its t10k
 * files, so no digit is in both, however it is warped. */
#include <inttypes.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/results.h"
#include "labs/bench/mkdigits/mkdigits.h"

#define COUNT_MAX 1e9

/* Options may precede the folder or follow it. */
static ls_status parse_around_folder(const ls_command *command, mkdigits_options *o, int argc, char **argv,
                                     bool *help) {
    ls_parsed parsed;
    ls_status status = ls_options_parse(command, argc, argv, &parsed);
    *help = status == LS_OK && parsed.help;
    if (status != LS_OK || *help) return status;
    int at = parsed.first_operand;
    if (at >= argc)
        return ls_fail(LS_ERR_USAGE, "mkdigits needs the folder to write to: %s FOLDER [OPTION...]", argv[0]);
    o->folder = argv[at];
    if (o->folder[0] == '\0') return ls_fail(LS_ERR_USAGE, "the folder's name is empty");
    argv[at] = argv[0];
    status = ls_options_parse(command, argc - at, argv + at, &parsed);
    *help = status == LS_OK && parsed.help;
    if (status != LS_OK || *help) return status;
    int next = at + parsed.first_operand;
    if (next < argc)
        return ls_fail(LS_ERR_USAGE, "mkdigits takes one folder only, but '%s' follows %s", argv[next], o->folder);
    return LS_OK;
}

static ls_status parse(mkdigits_options *o, int argc, char **argv, bool *help) {
    /* clang-format off */
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is made"},
        {.kind = LS_OPTION_INT64, .name = "count", .to.big_number = &o->counts[LS_SPLIT_TRAIN], .argument = "N",
         .limits = LS_BETWEEN(1, COUNT_MAX), .help = "training samples"},
        {.kind = LS_OPTION_INT64, .name = "test-count", .to.big_number = &o->counts[LS_SPLIT_TEST], .argument = "N",
         .limits = LS_BETWEEN(1, COUNT_MAX), .help = "test samples"},
        {.kind = LS_OPTION_STRING, .name = "source", .to.text = &o->source, .argument = "DIR",
         .help = "the real digits: a folder in MNIST's format; its README.md goes along"},
        {.kind = LS_OPTION_INT64, .name = "seed", .to.big_number = &o->seed, .argument = "N", .limits = LS_AT_LEAST(0),
         .help = "of the order and the warps; the same command makes the same bytes"},
        {.kind = LS_OPTION_STRING, .name = "list", .to.text = &o->list, .argument = "FILE",
         .help = "write a line for each sample that names its source: split,index,source,label"},
        {.kind = LS_OPTION_FLAG, .name = "force", .to.flag = &o->force,
         .help = "replace a data set that is in the folder already"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &o->quiet, .help = "no progress"},
        {.kind = LS_OPTION_HEADING, .help = "How far the warps go, in both directions"},
        {.kind = LS_OPTION_DOUBLE, .name = "shift", .to.real = &o->limits.shift_pixels, .argument = "PIXELS",
         .limits = LS_BETWEEN(0, 100), .help = "along each axis"},
        {.kind = LS_OPTION_DOUBLE, .name = "rotation", .to.real = &o->limits.rotation_degrees, .argument = "DEGREES",
         .limits = LS_BETWEEN(0, 45), .help = "around the centre"},
        {.kind = LS_OPTION_DOUBLE, .name = "scale", .to.real = &o->limits.scale, .argument = "X",
         .limits = LS_BETWEEN(0, 0.9), .help = "factors from 1-X to 1+X along each axis"},
        {.kind = LS_OPTION_DOUBLE, .name = "shear", .to.real = &o->limits.shear, .argument = "X",
         .limits = LS_BETWEEN(0, 1), .help = "pixels to the side per pixel down"},
        {.kind = LS_OPTION_DOUBLE, .name = "noise", .to.real = &o->limits.noise, .argument = "GREY",
         .limits = LS_BETWEEN(0, 255), .help = "standard deviation of the noise on inked pixels, in levels of 255"},
        {.kind = LS_OPTION_SWITCH, .name = "warp-test", .to.flag = &o->warp_test,
         .help = "warp the test digits, too; else they are repeated as they are"},
    };
    /* clang-format on */
    const ls_command command = {
        .purpose = "Makes a data set of MNIST's size and format in FOLDER, by warping a few real handwritten digits.",
        .options = table,
        .count = sizeof table / sizeof *table,
        .operands = "FOLDER"};
    return parse_around_folder(&command, o, argc, argv, help);
}

static void print_split(const mkdigits_options *o, const mkdigits_result *result, ls_split split) {
    size_t count = (size_t)o->counts[split], sources = result->splits[split].source_count;
    size_t least = count / sources, most = least + (count % sources > 0);
    const char *name = split == LS_SPLIT_TRAIN ? "training" : "test";
    const char *made = split == LS_SPLIT_TRAIN || o->warp_test ? "warps" : "copies";
    printf("%zu %s samples: %s of %zu real digits, %zu", count, name, made, sources, least);
    if (most > least) printf(" or %zu", most);
    printf(" of each; of the classes 0 to 9");
    for (int c = 0; c < DIGIT_CLASSES; c++) printf(" %zu", result->splits[split].per_class[c]);
    printf("\n");
}

static void print_result(const mkdigits_options *o, const mkdigits_result *result, double seconds) {
    for (int s = 0; s < DIGIT_SPLITS; s++) print_split(o, result, (ls_split)s);
    printf("written to %s in %.1f s, hash %016" PRIx64 "\n", o->folder, seconds, result->hash);
}

int main(int argc, char **argv) {
    mkdigits_options options = mkdigits_defaults();
    mkdigits_result result;
    bool help = false;
    double start_us = ls_now_us();
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&options, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, options.quiet);
    status = mkdigits_make(&options, &result);
    if (status == LS_OK) print_result(&options, &result, (ls_now_us() - start_us) * 1e-6);
    return ls_status_exit_code(ls_results_written(status));
}
