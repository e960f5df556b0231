/* options_page: prints the values of a table as text, and the --help page. */
#include "common/base/options_page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/version.h"

enum { HELP_COLUMN = 30, PAGE_COLUMNS = 100 };

static void text_of_double(double value, char *text, size_t capacity) {
    for (int digits = 6; digits <= 17; digits++) { /* the fewest digits that read back as this number */
        snprintf(text, capacity, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

static void text_of_bytes(size_t nbytes, char *text, size_t capacity) {
    static const char *const suffixes[] = {"", "K", "M", "G"};
    int thousands = 0;
    while (nbytes > 0 && nbytes % 1024 == 0 && thousands < 3) {
        nbytes /= 1024;
        thousands++;
    }
    snprintf(text, capacity, "%zu%s", nbytes, suffixes[thousands]);
}

static void text_of_list(const ls_int_list *list, char *text, size_t capacity) {
    size_t length = 0;
    for (int i = 0; i < list->count && length < capacity; i++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%d", i ? "," : "", list->values[i]);
}

static bool is_empty(const ls_option *option) {
    switch (option->kind) {
    case LS_OPTION_INT: return *option->to.number == 0;
    case LS_OPTION_INT64: return *option->to.big_number == 0;
    case LS_OPTION_BYTES: return *option->to.nbytes == 0;
    case LS_OPTION_DOUBLE: return *option->to.real == 0;
    case LS_OPTION_STRING: return *option->to.text == NULL;
    case LS_OPTION_INT_LIST: return option->to.list->count == 0;
    case LS_OPTION_CHOICE: return *option->to.number < 0;
    default: return false;
    }
}

void ls_option_text(const ls_option *option, char *text, size_t capacity) {
    bool is_number = option->kind != LS_OPTION_STRING && option->kind != LS_OPTION_INT_LIST;
    snprintf(text, capacity, "%s", "");
    if (is_empty(option) && (option->empty || !is_number)) {
        snprintf(text, capacity, "%s", option->empty ? option->empty : "none");
        return;
    }
    switch (option->kind) {
    case LS_OPTION_FLAG:
    case LS_OPTION_SWITCH: snprintf(text, capacity, "%s", *option->to.flag ? "on" : "off"); break;
    case LS_OPTION_INT: snprintf(text, capacity, "%d", *option->to.number); break;
    case LS_OPTION_INT64: snprintf(text, capacity, "%" PRId64, *option->to.big_number); break;
    case LS_OPTION_BYTES: text_of_bytes(*option->to.nbytes, text, capacity); break;
    case LS_OPTION_DOUBLE: text_of_double(*option->to.real, text, capacity); break;
    case LS_OPTION_STRING: snprintf(text, capacity, "%s", *option->to.text); break;
    case LS_OPTION_CHOICE: snprintf(text, capacity, "%s", option->choices[*option->to.number]); break;
    case LS_OPTION_INT_LIST: text_of_list(option->to.list, text, capacity); break;
    case LS_OPTION_HEADING:
    case LS_OPTION_KIND_COUNT: break;
    }
}

/* Prints text word by word from HELP_COLUMN on, where the cursor is; further lines begin in that column, too. */
static void print_wrapped(const char *text) {
    int column = HELP_COLUMN;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column == HELP_COLUMN) {
            column += printf("%.*s", length, text);
        } else if (column + 1 + length <= PAGE_COLUMNS) {
            column += printf(" %.*s", length, text);
        } else {
            printf("\n%*s%.*s", HELP_COLUMN, "", length, text);
            column = HELP_COLUMN + length;
        }
        text += length + (text[length] ? 1 : 0);
    }
}

static int print_name(const ls_option *option) {
    int column = option->letter ? printf("  -%c,", option->letter) : printf(" ");
    column += printf(" --%s%s", option->kind == LS_OPTION_SWITCH ? "[no-]" : "", option->name);
    if (option->kind == LS_OPTION_CHOICE) {
        for (int i = 0; option->choices[i]; i++) column += printf("%s%s", i ? "|" : "=", option->choices[i]);
    } else if (option->kind != LS_OPTION_FLAG && option->kind != LS_OPTION_SWITCH) {
        column += printf("=%s", option->argument ? option->argument : "VALUE");
    }
    return column;
}

static void print_row(const ls_option *option) {
    if (option->kind == LS_OPTION_HEADING) {
        printf("\n%s:\n", option->help);
        return;
    }
    char value[256], help[1536];
    ls_option_text(option, value, sizeof value);
    snprintf(help, sizeof help, "%s (default: %s)", option->help ? option->help : "", value);
    int column = print_name(option);
    if (column > HELP_COLUMN - 2) {
        printf("\n");
        column = 0;
    }
    printf("%*s", HELP_COLUMN - column, "");
    print_wrapped(help);
    printf("\n");
}

ls_status ls_options_page(const ls_command *command, const char *program) {
    printf("Usage: %s [OPTION...]%s%s\n", program, command->operands ? " " : "",
           command->operands ? command->operands : "");
    if (command->purpose) printf("%s\n", command->purpose);
    if (command->count == 0 || command->options[0].kind != LS_OPTION_HEADING) printf("\n");
    for (size_t i = 0; i < command->count; i++) print_row(&command->options[i]);
    printf("\n%-*s%s\n", HELP_COLUMN, "  -h, --help", "show this page and do nothing else");
    printf("%-*s%s\n", HELP_COLUMN, "  --version", "name and version, and nothing else");
    if (fflush(stdout) != 0 && errno != EPIPE) /* EPIPE: the reader has quit */
        return ls_fail(LS_ERR_IO, "cannot write the --help page: %s", strerror(errno));
    return LS_OK;
}

ls_status ls_options_version(const char *program) {
    const char *slash = strrchr(program, '/');
    printf("%s (lockstep) %s\n", slash ? slash + 1 : program, LS_VERSION);
    if (fflush(stdout) != 0) return ls_fail(LS_ERR_IO, "cannot write the version: %s", strerror(errno));
    return LS_OK;
}
