/* settings: the command line. */
#include <string.h>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/nn/gpt.h"
#include "common/nn/network.h"
#include "labs/replay/engine/library.h"
#include "labs/replay/plan/planner.h"

const char *const planner_optimizers[] = {"sgd", "adam", "adamw", NULL};
static const char *const precisions[] = {"fp32", "fp16", "bf16", NULL}; /* the order of ls_dtype */

/* clang-format off */
static ls_status parse(planner_settings *s, int argc, char **argv, ls_parsed *parsed) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is to be trained, and on what"},
        {.kind = LS_OPTION_STRING, .name = "model", .to.text = &s->model, .argument = "NAME|FILE.net",
         .help = "a network as ddp_train's --model has it, in place of MODEL"},
        {.kind = LS_OPTION_STRING, .name = "workload", .to.text = &s->workload, .argument = "NAME",
         .help = "a network that is only described, in place of MODEL: a file, or the name of one of labs/replay/workloads"},
        {.kind = LS_OPTION_INT, .name = "devices", .to.number = &s->devices, .argument = "N",
         .limits = LS_BETWEEN(1, PLANNER_MOST_DEVICES), .help = "devices", .empty = "needed"},
        {.kind = LS_OPTION_BYTES, .name = "memory", .to.nbytes = &s->memory_bytes, .argument = "BYTES",
         .limits = LS_AT_LEAST(1), .help = "memory of a device, as in 512M and 2G", .empty = "what the node's devices have"},
        {.kind = LS_OPTION_STRING, .name = "node", .to.text = &s->node, .argument = "NAME",
         .help = "the machine of the replays: a file, or the name of one of labs/replay/nodes",
         .empty = "build/results/this_machine.json if `make calibrate` has written it, else hgx-h200"},
        {.kind = LS_OPTION_DOUBLE, .name = "host-lock", .to.real = &s->host_lock_us, .argument = "US",
         .limits = LS_BETWEEN(-1, 1e6),
         .help = "time of a launch under its process's one lock, as in Python; 0: there is no lock; -1: the node's"},
        {.kind = LS_OPTION_INT64, .name = "batch", .to.big_number = &s->batch, .argument = "SAMPLES",
         .limits = LS_BETWEEN(1, 1 << 24), .help = "samples of a step over all devices", .empty = "the workload's, or 64"},
        {.kind = LS_OPTION_CHOICE, .name = "optimizer", .to.number = &s->optimizer, .choices = planner_optimizers,
         .help = "the rule of the update; a workload has its own", .empty = "ddp_train's default"},
        {.kind = LS_OPTION_CHOICE, .name = "precision", .to.number = &s->precision, .choices = precisions,
         .help = "plan this precision only", .empty = "fp32 and bf16"},
        {.kind = LS_OPTION_STRING, .name = "data", .to.text = &s->data, .argument = "DATA",
         .help = "a model's data, as ddp_train has them, whose shape they give a FILE.net or a gpt",
         .empty = "random samples, or for a gpt sums:0"},
        {.kind = LS_OPTION_HEADING, .help = "What is shown and written"},
        {.kind = LS_OPTION_INT, .name = "top", .to.number = &s->top, .argument = "ROWS", .limits = LS_BETWEEN(1, 100000),
         .help = "combinations that each table shows; the files have all"},
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->folder, .argument = "DIR", .help = "plan.csv and plan.json go there"},
        {.kind = LS_OPTION_STRING, .name = "json", .to.text = &s->json, .argument = "FILE", .help = "the JSON"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &s->quiet, .help = "no progress, no notes"},
    };
    const ls_command command = {
        .purpose = "Says which combinations of dp_train's and ddp_train's options fit into the memory of N devices, how fast they "
                   "would be, and why the others do not fit or do not go together. Nothing is computed: the programs' own steps "
                   "are recorded on meta devices, which count bytes, and replayed on a modelled machine. MODEL is a network of "
                   "--model or a workload.",
        .options = table, .count = sizeof table / sizeof *table, .operands = "[MODEL]"};
    return ls_options_parse(&command, argc, argv, parsed);
}
/* clang-format on */

/* Whether ddp_train's --model accepts the name. */
static bool is_model(const char *name) {
    char why[512];
    ls_network *network = NULL;
    size_t length = strlen(name);
    if (ls_gpt_is_named(name) || (length > 4 && strcmp(name + length - 4, ".net") == 0)) return true;
    ls_log_sink before = ls_log_capture(why, sizeof why);
    ls_status status = ls_network_create(&network, name);
    ls_log_restore(before);
    ls_network_destroy(network);
    return status == LS_OK;
}

static bool is_workload(const char *name) {
    char why[1024], path[LS_SHIPPED_PATH];
    ls_log_sink before = ls_log_capture(why, sizeof why);
    ls_status status = ls_library_find(path, LS_WORKLOADS_FOLDER, name);
    ls_log_restore(before);
    return status == LS_OK;
}

/* Takes MODEL, if neither option names one; NULL: there is none. */
static ls_status take_operand(planner_settings *s, const char *name) {
    if (is_model(name))
        s->model = name;
    else if (is_workload(name))
        s->workload = name;
    else
        return ls_fail(LS_ERR_USAGE,
                       "there is no network %s: expected one of ddp_train's --model, a FILE.net, or a workload of "
                       "labs/replay/workloads",
                       name);
    return LS_OK;
}

static ls_status check(planner_settings *s) {
    if (s->devices == 0) return ls_fail(LS_ERR_USAGE, "give --devices N, the number of devices");
    if (s->host_lock_us < 0 && s->host_lock_us != -1)
        return ls_fail(LS_ERR_USAGE, "--host-lock: %g is not a time", s->host_lock_us);
    if (s->workload && (s->data || s->optimizer >= 0))
        return ls_fail(LS_ERR_USAGE, "--%s is a model's; a workload has its own", s->data ? "data" : "optimizer");
    if (s->model && !s->data && !ls_gpt_is_named(s->model)) s->data = "random:0";
    return LS_OK;
}

/* MODEL may precede the options or follow them. */
ls_status planner_parse(planner_settings *settings, int argc, char **argv, bool *help) {
    ls_parsed parsed;
    int in_front = argc > 1 && argv[1][0] != '-';
    *settings = (planner_settings){.optimizer = -1, .precision = -1, .host_lock_us = -1, .top = 8};
    ls_status status = parse(settings, argc - in_front, argv + in_front, &parsed);
    *help = status == LS_OK && parsed.help;
    if (status != LS_OK || *help) return status;
    int behind = argc - in_front - parsed.first_operand;
    int named = (settings->model != NULL) + (settings->workload != NULL) + in_front + behind;
    if (named != 1)
        return ls_fail(LS_ERR_USAGE, "%s; give one MODEL, as in: plan deep --devices 4 --memory 512M",
                       named == 0 ? "no network is named" : "more than one network is named");
    if (in_front + behind > 0) status = take_operand(settings, in_front ? argv[1] : argv[argc - 1]);
    return status == LS_OK ? check(settings) : status;
}
