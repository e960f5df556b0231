/* settings: the command line. */
#include <string.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/train/loop.h"
#include "labs/bench/gpt/bench_gpt.h"
#include "labs/bench/shared/settings.h"

/* clang-format off */
static ls_status parse(gpt_settings *s, int argc, char **argv, bool *help) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is measured"},
        {.kind = LS_OPTION_STRING, .name = "model", .to.text = &s->model, .argument = "gpt:SIZES",
         .help = "LAYERS,HEADS,CHANNELS,CONTEXT[,VOCABULARY]; a vocabulary of 65 unless it is given"},
        {.kind = LS_OPTION_INT, .name = "batch", .to.number = &s->batch, .argument = "B", .limits = LS_BETWEEN(GPT_DEVICES, 1 << 16),
         .help = "sequences of a step over all devices, an even number"},
        {.kind = LS_OPTION_INT_LIST, .name = "contexts", .to.list = &s->contexts, .argument = "T,T,...", .limits = LS_BETWEEN(1, 1 << 14),
         .help = "lengths of sequences for attention with its scores in memory and tile by tile, at most 8 of them", .empty = "64,128,256,512,1024"},
        {.kind = LS_OPTION_STRING, .name = "python", .to.text = &s->python, .argument = "PROGRAM",
         .help = "Python with PyTorch to compare with, if found; none: no comparison"},
        {.kind = LS_OPTION_HEADING, .help = "How it is measured"},
        {.kind = LS_OPTION_INT, .name = "rounds", .to.number = &s->rounds, .argument = "R",
         .limits = LS_BETWEEN(1, GPT_ROUNDS_MAX), .help = "runs of each row; every row runs once per round"},
        {.kind = LS_OPTION_INT, .name = "steps", .to.number = &s->steps, .argument = "S",
         .limits = LS_BETWEEN(LS_WARMUP_STEPS + 1, 10000000), .help = "training steps per run; the first 10 are not timed"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &s->timeout_s, .argument = "SECONDS",
         .limits = LS_ABOVE(0), .help = "end a run after this many seconds; its row counts as failed"},
        {.kind = LS_OPTION_HEADING, .help = "What is written"},
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->folder, .argument = "DIR",
         .help = "folder for the results: gpt.txt, gpt.csv, gpt.json"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &s->quiet, .help = "no progress, no notes"},
    };
    return BENCH_PARSE(table, "Measures a training step of a small GPT on one core beside its matrix multiplies alone and beside "
                              "PyTorch's, in both modes on two devices, and its attention tile by tile beside scores in memory. It "
                              "prints the answers first, then two tables.", argc, argv, help);
}
/* clang-format on */

static ls_status check(gpt_settings *s) {
    if (!ls_gpt_is_named(s->model)) return ls_fail(LS_ERR_USAGE, "--model: expected a gpt, found %s", s->model);
    ls_status status = ls_gpt_parse(&s->sizes, s->model);
    if (status != LS_OK) return status;
    if (s->sizes.scores)
        return ls_fail(LS_ERR_USAGE, "--model: both forms of attention are measured; leave \"scores\" out");
    if (s->sizes.vocabulary == 0) s->sizes.vocabulary = 65; /* Shakespeare's letters */
    if (s->batch % GPT_DEVICES != 0)
        return ls_fail(LS_ERR_USAGE, "--batch: %d devices cannot share %d sequences equally", GPT_DEVICES, s->batch);
    if (s->contexts.count == 0) s->contexts = (ls_int_list){.values = {64, 128, 256, 512, 1024}, .count = 5};
    bench_sort_numbers(&s->contexts);
    if (s->contexts.count > GPT_CONTEXTS_MAX)
        return ls_fail(LS_ERR_USAGE, "--contexts: too many numbers; expected at most %d", GPT_CONTEXTS_MAX);
    if (strcmp(s->python, "none") == 0) s->python = NULL;
    return LS_OK;
}

ls_status gpt_parse(gpt_settings *settings, int argc, char **argv, bool *help) {
    *settings = (gpt_settings){.model = "gpt:4,4,128,64",
                               .batch = 12,
                               .steps = 40,
                               .rounds = 5,
                               .cores = ls_usable_cores(),
                               .python = "python3",
                               .timeout_s = 300,
                               .folder = "build/results"};
    ls_status status = parse(settings, argc, argv, help);
    return status != LS_OK || *help ? status : check(settings);
}
