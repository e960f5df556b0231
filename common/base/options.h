/* Command lines: one table, with a row per option, drives parsing, checking and the --help page.
 *
 * The caller keeps its settings in a plain struct, fills in the defaults, points one row at each field, and parses:
 *
 *     struct settings s = {.epochs = 1, .shuffle = true};
 *     const ls_option options[] = {
 *         {.kind = LS_OPTION_HEADING, .help = "Training"},
 *         {.kind = LS_OPTION_INT, .name = "epochs", .to.number = &s.epochs, .argument = "N",
 *          .limits = LS_AT_LEAST(1), .help = "passes over the data"},
 *         {.kind = LS_OPTION_SWITCH, .name = "shuffle", .to.flag = &s.shuffle, .help = "draw a new order each epoch"},
 *     };
 *     ls_parsed parsed;
 *     ls_status status = ls_options_parse(&(ls_command){.options = options, .count = 3}, argc, argv, &parsed);
 *     if (status != LS_OK || parsed.help) return ls_status_exit_code(status);
 *
 * The defaults that --help shows are read from the fields themselves, so they cannot differ from those in force. --help
 * (-h) and --version always exist. The parser accepts GNU's long forms: --name=value and --name value, an unambiguous
 * prefix of a name, -- to end the options; and --batch_size for --batch-size. If an option is given twice, the last one
 * counts. For an unknown name the error suggests the nearest option (nearest.h). */
#ifndef LS_BASE_OPTIONS_H
#define LS_BASE_OPTIONS_H

#include <stdbool.h>

#include "common/base/option.h"
#include "common/base/status.h"

typedef struct ls_parsed {
    bool help;         /* --help or --version was given and printed: exit with status 0; no other field is set */
    int first_operand; /* argv[first_operand] ... argv[argc - 1] are the operands */
} ls_parsed;

/* Parses argv[1] ... into the fields of the table. argv is not changed; string values point into it. LS_ERR_USAGE,
 * after one line that names the option and its fault; some fields may then be set and others not. Uses getopt_long's
 * global state: one thread at a time. */
ls_status ls_options_parse(const ls_command *command, int argc, char **argv, ls_parsed *parsed);

#endif
