/* options: parsing the command line by the table, over getopt_long.
 *   idea  : each row becomes one struct option (a switch two: name and no-name) whose `val` leads back to the row. argv is
 *           walked twice: first only for --help, so that the page shows the defaults as they were before any other
 *           option changed them, then for the values.
 *   fails : at the first error, with one line; getopt's own messages are off. */
#define _GNU_SOURCE
#include "common/base/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/nearest.h"
#include "common/base/options_page.h"

enum { VAL_HELP = 256, VAL_VERSION, VAL_ROWS }; /* above every character, so that optopt distinguishes -x from --name */

/* --- values --------------------------------------------------------------------------------------------------------- */

static ls_status check_limits(const ls_option *option, double value, const char *text) {
    const ls_limits *limits = &option->limits;
    switch (limits->kind) {
    case LS_LIMIT_NONE: return LS_OK;
    case LS_LIMIT_AT_LEAST:
        if (value >= limits->min) return LS_OK;
        return ls_fail(LS_ERR_USAGE, "option --%s: %s is out of range; expected at least %g", option->name, text,
                       limits->min);
    case LS_LIMIT_ABOVE:
        if (value > limits->min) return LS_OK;
        return ls_fail(LS_ERR_USAGE, "option --%s: %s is out of range; expected more than %g", option->name, text,
                       limits->min);
    case LS_LIMIT_BETWEEN:
        if (value >= limits->min && value <= limits->max) return LS_OK;
        return ls_fail(LS_ERR_USAGE, "option --%s: %s is out of range; expected %g to %g", option->name, text,
                       limits->min, limits->max);
    }
    return ls_fail(LS_ERR_INVALID, "option --%s: its row has limits of an unknown kind", option->name);
}

/* The strto functions skip spaces before a number; a value must not begin with one. */
static bool begins_like_number(const char *text) { return strchr("+-.0123456789", text[0]) && text[0] != '\0'; }

static ls_status parse_whole(const ls_option *option, const char *text, int64_t least, int64_t most, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!begins_like_number(text) || end == text || *end != '\0')
        return ls_fail(LS_ERR_USAGE, "option --%s: '%s' is not a whole number", option->name, text);
    if (errno == ERANGE || value < least || value > most)
        return ls_fail(LS_ERR_USAGE, "option --%s: %s is out of range; expected %lld to %lld", option->name, text,
                       (long long)least, (long long)most);
    ls_status status = check_limits(option, (double)value, text);
    if (status == LS_OK) *out = value;
    return status;
}

static ls_status parse_int(const ls_option *option, const char *text, int *out) {
    int64_t value = 0;
    ls_status status = parse_whole(option, text, INT_MIN, INT_MAX, &value);
    if (status == LS_OK) *out = (int)value;
    return status;
}

static ls_status parse_double(const ls_option *option, const char *text, double *out) {
    char *end;
    double value = strtod(text, &end);
    if (!begins_like_number(text) || end == text || *end != '\0')
        return ls_fail(LS_ERR_USAGE, "option --%s: '%s' is not a number", option->name, text);
    if (!isfinite(value))
        return ls_fail(LS_ERR_USAGE, "option --%s: %s is out of range; expected a finite number", option->name, text);
    ls_status status = check_limits(option, value, text);
    if (status == LS_OK) *out = value;
    return status;
}

static ls_status parse_bytes(const ls_option *option, const char *text, size_t *out) {
    static const char suffixes[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9';
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (!is_number || (*end && (!suffix || end[1] != '\0')))
        return ls_fail(LS_ERR_USAGE,
                       "option --%s: '%s' is not a size; give a whole number of bytes, or a number with K, M or G",
                       option->name, text);
    int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (errno == ERANGE || value > SIZE_MAX >> shift)
        return ls_fail(LS_ERR_USAGE, "option --%s: %s is out of range; expected at most %zu bytes", option->name, text,
                       SIZE_MAX);
    size_t nbytes = (size_t)value << shift;
    ls_status status = check_limits(option, (double)nbytes, text);
    if (status == LS_OK) *out = nbytes;
    return status;
}

static ls_status parse_choice(const ls_option *option, const char *text, int *out) {
    char known[1024] = "";
    size_t length = 0;
    struct ls_nearest nearest = {.wrong = text, .length = strlen(text)};
    for (int i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *out = i;
            return LS_OK;
        }
        ls_nearest_offer(&nearest, option->choices[i]);
        const char *joint = i == 0 ? "" : option->choices[i + 1] ? ", " : " or ";
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", joint, option->choices[i]);
        if (length >= sizeof known) length = sizeof known - 1;
    }
    const char *near = nearest.name ? nearest.name : "";
    return ls_fail(LS_ERR_USAGE, "option --%s: '%s' is unknown, choose %s%s%s%s", option->name, text, known,
                   *near ? "; did you mean " : "", near, *near ? "?" : "");
}

static ls_status parse_list(const ls_option *option, const char *text, ls_int_list *out) {
    ls_int_list list = {0};
    for (const char *item = text; item;) {
        const char *comma = strchr(item, ',');
        char number[32];
        size_t length = comma ? (size_t)(comma - item) : strlen(item);
        if (length == 0 || length >= sizeof number)
            return ls_fail(LS_ERR_USAGE, "option --%s: '%s' is not a list of whole numbers such as 0,1,2", option->name,
                           text);
        if (list.count == LS_INT_LIST_MAX)
            return ls_fail(LS_ERR_USAGE, "option --%s: too many numbers; expected at most %d", option->name,
                           LS_INT_LIST_MAX);
        memcpy(number, item, length);
        number[length] = '\0';
        ls_status status = parse_int(option, number, &list.values[list.count++]);
        if (status != LS_OK) return status;
        item = comma ? comma + 1 : NULL;
    }
    *out = list;
    return LS_OK;
}

static ls_status apply(const ls_option *option, const char *text, bool negated) {
    switch (option->kind) {
    case LS_OPTION_FLAG:
    case LS_OPTION_SWITCH: *option->to.flag = !negated; return LS_OK;
    case LS_OPTION_INT: return parse_int(option, text, option->to.number);
    case LS_OPTION_INT64: return parse_whole(option, text, INT64_MIN, INT64_MAX, option->to.big_number);
    case LS_OPTION_BYTES: return parse_bytes(option, text, option->to.nbytes);
    case LS_OPTION_DOUBLE: return parse_double(option, text, option->to.real);
    case LS_OPTION_CHOICE: return parse_choice(option, text, option->to.number);
    case LS_OPTION_INT_LIST: return parse_list(option, text, option->to.list);
    case LS_OPTION_STRING:
        if (text[0] == '\0')
            return ls_fail(LS_ERR_USAGE, "option --%s: expected a value, found an empty one", option->name);
        *option->to.text = text;
        return LS_OK;
    case LS_OPTION_HEADING:
    case LS_OPTION_KIND_COUNT: break;
    }
    return ls_fail(LS_ERR_INVALID, "option --%s: its row is of an unknown kind", option->name);
}

/* --- the walk over argv --------------------------------------------------------------------------------------------- */

static const char *const negation = "no-";

/* Adds the option under its name with '_' for each '-', as PyTorch's scripts spell it. Writes that name to *text, and
 * advances it. */
static size_t add_underscored(struct option *longs, size_t count, char **text) {
    struct option alias = longs[count - 1];
    if (!strchr(alias.name, '-')) return count;
    char *name = *text, *end = stpcpy(name, alias.name);
    for (char *at = name; at < end; at++)
        if (*at == '-') *at = '_';
    *text = end + 1;
    alias.name = name;
    longs[count] = alias;
    return count + 1;
}

static bool is_underscored(const struct option *option) { return strchr(option->name, '_') != NULL; }

/* One allocation: the struct options, up to four a row, then the text of "no-" names and of those with '_'. The caller
 * frees it. */
static struct option *make_long_options(const ls_command *command) {
    size_t text_bytes = 0, room = 4 * command->count + 3;
    for (size_t i = 0; i < command->count; i++)
        if (command->options[i].name) text_bytes += 3 * (strlen(negation) + strlen(command->options[i].name) + 1);
    struct option *longs = calloc(1, room * sizeof *longs + text_bytes);
    if (!longs) return NULL;
    char *text = (char *)(longs + room);
    size_t count = 0;
    longs[count++] = (struct option){.name = "help", .has_arg = no_argument, .val = VAL_HELP};
    longs[count++] = (struct option){.name = "version", .has_arg = no_argument, .val = VAL_VERSION};
    for (size_t i = 0; i < command->count; i++) {
        const ls_option *option = &command->options[i];
        if (option->kind == LS_OPTION_HEADING) continue;
        bool takes_value = option->kind != LS_OPTION_FLAG && option->kind != LS_OPTION_SWITCH;
        int val = VAL_ROWS + 2 * (int)i;
        longs[count++] = (struct option){.name = option->name, .has_arg = takes_value, .val = val};
        count = add_underscored(longs, count, &text);
        if (option->kind != LS_OPTION_SWITCH) continue;
        longs[count++] = (struct option){.name = text, .has_arg = no_argument, .val = val + 1};
        text = stpcpy(stpcpy(text, negation), option->name) + 1;
        count = add_underscored(longs, count, &text);
    }
    return longs;
}

/* The option that a name of `length` characters may stand for; NULL: none is near. A name with "no-" stands only for
 * one with "no-". */
static const char *find_near(const struct option *longs, const char *name, size_t length) {
    struct ls_nearest nearest = {.wrong = name, .length = length};
    bool negated = strncmp(name, negation, strlen(negation)) == 0;
    for (const struct option *o = longs; o->name; o++) {
        bool negates = strncmp(o->name, negation, strlen(negation)) == 0;
        if (!is_underscored(o) && negates == negated) ls_nearest_offer(&nearest, o->name);
    }
    return nearest.name;
}

/* `word`: `dashes` dashes and a name of `length` characters; other text may follow. */
static ls_status fail_unknown(const struct option *longs, const char *word, size_t dashes, size_t length) {
    const char *near = find_near(longs, word + dashes, length);
    int shown = (int)(dashes + length);
    if (!near) return ls_fail(LS_ERR_USAGE, "unknown option %.*s; --help lists the options", shown, word);
    return ls_fail(LS_ERR_USAGE, "unknown option %.*s; did you mean --%s?", shown, word, near);
}

static bool begins_with(const char *name, const char *beginning, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (name[i] != (beginning[i] == '_' ? '-' : beginning[i])) return false;
    return true;
}

/* getopt returns '?' for unknown names and for ambiguous abbreviations. */
static ls_status fail_name(const struct option *longs, const char *argument) {
    char known[512] = "";
    size_t length = 0, matches = 0;
    const char *name = argument + 2;
    size_t name_length = strcspn(name, "=");
    for (const struct option *o = longs; o->name; o++) {
        if (is_underscored(o) || !begins_with(o->name, name, name_length)) continue;
        length += (size_t)snprintf(known + length, sizeof known - length, "%s--%s", matches++ ? ", " : "", o->name);
        if (length >= sizeof known) length = sizeof known - 1;
    }
    if (matches > 1)
        return ls_fail(LS_ERR_USAGE, "option %.*s is ambiguous: %s", (int)name_length + 2, argument, known);
    return fail_unknown(longs, argument, 2, name_length);
}

/* A single dash and a long name, as in -lr 0.1. */
static ls_status fail_letters(const struct option *longs, const char *argument) {
    size_t length = strcspn(argument + 1, "=");
    for (const struct option *o = longs; o->name; o++) {
        if (!is_underscored(o) && begins_with(o->name, argument + 1, length) && o->name[length] == '\0')
            return ls_fail(LS_ERR_USAGE, "unknown option %.*s; names take two dashes: --%s", (int)length + 1, argument,
                           o->name);
    }
    return fail_unknown(longs, argument, 1, length);
}

static ls_status fail_operand(const struct option *longs, const char *argument) {
    const char *near = argument[0] == '-' ? NULL : find_near(longs, argument, strcspn(argument, "="));
    if (!near) return ls_fail(LS_ERR_USAGE, "'%s' is not an option; --help lists the options", argument);
    return ls_fail(LS_ERR_USAGE, "'%s' is not an option; did you mean --%s?", argument, near);
}

/* NULL: no row has it. */
static const ls_option *find_letter(const ls_command *command, int letter) {
    for (size_t i = 0; i < command->count; i++)
        if (command->options[i].letter && command->options[i].letter == letter) return &command->options[i];
    return NULL;
}

static ls_status fail_option(const ls_command *command, const struct option *longs, int result, const char *argument) {
    if (optopt == 0) return fail_name(longs, argument);
    const ls_option *lettered = optopt < VAL_HELP ? find_letter(command, optopt) : NULL;
    if (lettered) return ls_fail(LS_ERR_USAGE, "option --%s needs a value", lettered->name);
    if (optopt < VAL_HELP) return fail_letters(longs, argument);
    if (optopt == VAL_HELP) return ls_fail(LS_ERR_USAGE, "option --help takes no value");
    if (optopt == VAL_VERSION) return ls_fail(LS_ERR_USAGE, "option --version takes no value");
    const ls_option *option = &command->options[(optopt - VAL_ROWS) / 2];
    if (result == ':') return ls_fail(LS_ERR_USAGE, "option --%s needs a value", option->name);
    bool negated = (optopt - VAL_ROWS) % 2 == 1;
    return ls_fail(LS_ERR_USAGE, "option --%s%s takes no value", negated ? negation : "", option->name);
}

enum { LETTERS_CAPACITY = 3 + 2 * 26 + 1 };

/* "+": stop at the first operand; ":": return ':' for a missing value; "h": -h is --help; then the rows' letters.
 * optind = 0 makes getopt_long restart. */
static void list_letters(const ls_command *command, char text[LETTERS_CAPACITY]) {
    char *at = stpcpy(text, "+:h");
    for (size_t i = 0; i < command->count && at < text + LETTERS_CAPACITY - 2; i++) {
        if (!command->options[i].letter) continue;
        *at++ = command->options[i].letter;
        if (command->options[i].kind != LS_OPTION_FLAG) *at++ = ':';
    }
    *at = '\0';
}

/* VAL_HELP or VAL_VERSION, whichever comes first; 0: neither. */
static int find_question(const struct option *longs, const char *letters, int argc, char **argv) {
    optind = 0;
    int at = 1;
    for (int result; (result = getopt_long(argc, argv, letters, longs, NULL)) != -1; at = optind) {
        if (result == 'h' && argv[at][1] == 'h') return VAL_HELP; /* -h, but not an h within -epochs */
        if (result == VAL_HELP || result == VAL_VERSION) return result;
    }
    return 0;
}

static ls_status walk(const ls_command *command, const struct option *longs, const char *letters, int argc,
                      char **argv) {
    optind = 0;
    int at = 1; /* the argument that getopt reads */
    for (int result; (result = getopt_long(argc, argv, letters, longs, NULL)) != -1; at = optind) {
        if (result == '?' || result == ':') return fail_option(command, longs, result, argv[at]);
        const ls_option *row =
            result < VAL_HELP ? find_letter(command, result) : &command->options[(result - VAL_ROWS) / 2];
        ls_status status = apply(row, optarg, result >= VAL_ROWS && (result - VAL_ROWS) % 2 == 1);
        if (status != LS_OK) return status;
    }
    if (optind < argc && !command->operands) return fail_operand(longs, argv[optind]);
    return LS_OK;
}

/* --- the environment ------------------------------------------------------------------------------------------------- */

static ls_status apply_variable(const ls_option *option, const char *variable, const char *value) {
    char why[512];
    bool is_flag = option->kind == LS_OPTION_FLAG || option->kind == LS_OPTION_SWITCH;
    if (is_flag && strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return ls_fail(LS_ERR_USAGE, "the environment's %s is '%s', but must be 0 or 1", variable, value);
    ls_log_sink before = ls_log_capture(why, sizeof why);
    ls_status status = apply(option, value, is_flag && value[0] == '0');
    ls_log_restore(before);
    return status == LS_OK ? LS_OK : ls_fail(status, "the environment's %s: %s", variable, why);
}

static ls_status take_variables(const ls_command *command) {
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < command->count; i++) {
        char variable[128];
        const ls_option *option = &command->options[i];
        if (option->kind == LS_OPTION_HEADING) continue;
        snprintf(variable, sizeof variable, "%s%s", command->variables, option->name);
        for (char *at = variable; *at; at++) *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
        const char *value = getenv(variable);
        if (value && value[0]) status = apply_variable(option, variable, value);
    }
    return status;
}

ls_status ls_options_parse(const ls_command *command, int argc, char **argv, ls_parsed *parsed) {
    *parsed = (ls_parsed){0};
    ls_status taken = command->variables ? take_variables(command) : LS_OK;
    if (taken != LS_OK) return taken;
    char letters[LETTERS_CAPACITY];
    list_letters(command, letters);
    struct option *longs = make_long_options(command);
    if (!longs) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to parse the command line");
    opterr = 0;
    const char *program = argc > 0 ? argv[0] : "program";
    int question = find_question(longs, letters, argc, argv);
    parsed->help = question != 0;
    ls_status status = question == VAL_HELP      ? ls_options_page(command, program)
                       : question == VAL_VERSION ? ls_options_version(program)
                                                 : walk(command, longs, letters, argc, argv);
    parsed->first_operand = optind;
    free(longs);
    return status;
}
