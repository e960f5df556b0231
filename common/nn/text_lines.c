/* text_lines — parses a network's text line by line: words and numbers, names and references.
 *   limits: a text has at most MOST_LAYERS layers, and numbers of which no product of three overflows 64 bits. So a
 *           damaged file may describe a large network, but no memory is allocated for it before the device's size is
 *           checked
 *   fails : one message, with source and line */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/text_internal.h"

enum { MOST_LAYERS = 1000, MOST_LINE = 200, MOST_WORDS = 16, MOST_SIDE = 65536, MOST_UNITS = 1 << 24, MOST_STEP = 255 };

const char *const ls_text_words[LS_WORD_COUNT] = {"conv",    "batchnorm", "relu",   "maxpool",
                                                  "avgpool", "flatten",   "linear", "add"};

ls_status ls_text_fail(const struct ls_text *t, int number, const char *format, ...) {
    char message[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return ls_fail(t->wrong, "%s:%d: %s", t->source, number, message);
}

/* --- numbers and shapes ---------------------------------------------------------------------------------------------- */

/* Reads the digits at *at as a number from 0 to `most`, and moves *at past them. Returns -1 if it is none. */
static int read_number(const char **at, int most) {
    int number = **at >= '0' && **at <= '9' ? 0 : -1;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        number = number * 10 + (**at - '0');
        if (number > most) return -1;
    }
    return number;
}

bool ls_text_parse_shape(const char *text, const char *end, struct ls_text_value *value) {
    int sides[3] = {1, 1, 1}, count = 0;
    const char *at = text;
    if (!end) end = text + strlen(text);
    do {
        sides[count] = read_number(&at, count == 0 ? MOST_UNITS : MOST_SIDE);
        if (sides[count++] < 1) return false;
    } while (count < 3 && *at == 'x' && at++ < end);
    *value = (struct ls_text_value){.shape = {sides[0], sides[1], sides[2], 0}, .is_flat = count == 1};
    return at == end && count != 2 && ls_shape_count(value->shape) <= INT32_MAX;
}

const char *ls_text_shape(struct ls_text_value value, char text[LS_TEXT_SHAPE_NBYTES]) {
    struct ls_shape s = value.shape;
    if (value.is_flat)
        snprintf(text, LS_TEXT_SHAPE_NBYTES, "%d", s.channels);
    else
        snprintf(text, LS_TEXT_SHAPE_NBYTES, "%dx%dx%d", s.channels, s.height, s.width);
    return text;
}

/* --- one line -------------------------------------------------------------------------------------------------------- */

struct words {
    char text[MOST_LINE + 1];
    const char *list[MOST_WORDS];
    int count;
};

static ls_status split(const struct ls_text *t, int number, const char *line, size_t nbytes, struct words *words) {
    words->count = 0;
    if (nbytes > MOST_LINE)
        return ls_text_fail(t, number, "a line has %zu bytes; expected at most %d", nbytes, MOST_LINE);
    memcpy(words->text, line, nbytes);
    words->text[nbytes] = '\0';
    for (size_t i = 0; i < nbytes; i++) {
        unsigned char byte = (unsigned char)line[i];
        if ((byte < ' ' && byte != '\t' && byte != '\r') || byte > '~')
            return ls_text_fail(t, number, "byte 0x%02x is not plain text", byte);
    }
    words->text[strcspn(words->text, "#")] = '\0';
    char *rest = words->text, *word;
    while ((word = strtok_r(rest, " \t\r", &rest)) != NULL) {
        if (words->count == MOST_WORDS) return ls_text_fail(t, number, "a line has more than %d words", MOST_WORDS);
        words->list[words->count++] = word;
    }
    return LS_OK;
}

static ls_status parse_number(const struct ls_text *t, int number, const char *what, const char *word, int least,
                              int most, int *out) {
    const char *end = word;
    *out = word ? read_number(&end, most) : -1;
    if (*out >= least && *end == '\0') return LS_OK;
    return ls_text_fail(t, number, "%s needs a number from %d to %d%s%s", what, least, most, word ? ", not " : "",
                        word ? word : "");
}

static bool is_name(const char *word) {
    size_t length = strlen(word);
    bool letters = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == length;
    bool dots = word[0] == '.' || strstr(word, "..") || (length > 0 && word[length - 1] == '.');
    return letters && !dots && (word[0] < '0' || word[0] > '9') && strcmp(word, "input") != 0;
}

static int find_name(const struct ls_text *t, const char *name) {
    if (strcmp(name, "input") == 0) return LS_TEXT_INPUT;
    for (int i = t->count - 1; i >= 0; i--)
        if (strcmp(t->lines[i].name, name) == 0) return i;
    return LS_TEXT_NOTHING;
}

static ls_status refer(const struct ls_text *t, const struct ls_text_line *line, const char *what, const char *name,
                       int *index) {
    if (!name) return ls_text_fail(t, line->number, "%s needs the name of an earlier layer", what);
    *index = find_name(t, name);
    return *index != LS_TEXT_NOTHING
               ? LS_OK
               : ls_text_fail(t, line->number, "%s %s: no earlier layer is called %s", what, name, name);
}

static ls_status take_name(const struct ls_text *t, struct ls_text_line *line, const char *name) {
    if (!name || !is_name(name) || strlen(name) >= sizeof line->name)
        return ls_text_fail(t, line->number,
                            "name needs letters, digits, _ and . (at most %zu, a letter or _ first; not `input`)%s%s",
                            sizeof line->name - 1, name ? ", not " : "", name ? name : "");
    if (find_name(t, name) != LS_TEXT_NOTHING) return ls_text_fail(t, line->number, "two layers are called %s", name);
    snprintf(line->name, sizeof line->name, "%s", name);
    return LS_OK;
}

/* Parses what follows the layer's word and argument, in pairs of words. */
static ls_status parse_option(const struct ls_text *t, struct ls_text_line *line, const char *word, const char *value) {
    bool conv = line->word == LS_WORD_CONV;
    if (strcmp(word, "name") == 0) return take_name(t, line, value);
    if (strcmp(word, "from") == 0) return refer(t, line, word, value, &line->reads);
    if (conv && strcmp(word, "kernel") == 0)
        return parse_number(t, line->number, word, value, 1, MOST_STEP, &line->kernel);
    if (conv && strcmp(word, "stride") == 0)
        return parse_number(t, line->number, word, value, 1, MOST_STEP, &line->stride);
    if (conv && strcmp(word, "padding") == 0)
        return parse_number(t, line->number, word, value, 0, MOST_STEP, &line->padding);
    if ((conv || line->word == LS_WORD_LINEAR) && strcmp(word, "bias") == 0) {
        line->no_bias = value && strcmp(value, "none") == 0;
        return line->no_bias ? LS_OK : ls_text_fail(t, line->number, "bias takes only `none`");
    }
    return ls_text_fail(t, line->number, "%s does not take `%s`; expected %sname NAME or from NAME",
                        ls_text_words[line->word], word,
                        conv                           ? "kernel K, stride S, padding P, bias none, "
                        : line->word == LS_WORD_LINEAR ? "bias none, "
                                                       : "");
}

/* Parses the word after the layer's. Sets *takes to whether the layer takes one. */
static ls_status parse_argument(const struct ls_text *t, struct ls_text_line *line, const char *word, bool *takes) {
    *takes = true;
    switch (line->word) {
    case LS_WORD_CONV: return parse_number(t, line->number, "conv", word, 1, MOST_SIDE, &line->units);
    case LS_WORD_MAXPOOL: return parse_number(t, line->number, "maxpool", word, 2, LS_POOL_MAX_SIZE, &line->kernel);
    case LS_WORD_LINEAR:
        line->takes_classes = word && strcmp(word, "classes") == 0;
        return line->takes_classes ? LS_OK : parse_number(t, line->number, "linear", word, 1, MOST_UNITS, &line->units);
    case LS_WORD_AVGPOOL:
        return word && strcmp(word, "global") == 0 ? LS_OK
                                                   : ls_text_fail(t, line->number, "avgpool takes only `global`");
    case LS_WORD_ADD: return refer(t, line, "add", word, &line->adds);
    default: *takes = false; return LS_OK;
    }
}

static ls_status find_word(const struct ls_text *t, int number, const char *word, enum ls_text_word *out) {
    for (int w = 0; w < LS_WORD_COUNT; w++) {
        *out = (enum ls_text_word)w;
        if (strcmp(word, ls_text_words[w]) == 0) return LS_OK;
    }
    return ls_text_fail(t, number,
                        "unknown layer %s; expected conv, batchnorm, relu, maxpool, avgpool, flatten, linear or add "
                        "(and input and loss before them)",
                        word);
}

static ls_status parse_layer(struct ls_text *t, int number, const struct words *words) {
    struct ls_text_line line = {
        .number = number, .stride = 1, .reads = t->count - 1, .adds = LS_TEXT_NOTHING, .last_reader = LS_TEXT_NOTHING};
    if (t->count == MOST_LAYERS)
        return ls_text_fail(t, number, "a network cannot have more than %d layers", MOST_LAYERS);
    ls_status status = find_word(t, number, words->list[0], &line.word);
    if (status != LS_OK) return status;
    snprintf(line.name, sizeof line.name, "%d", t->count);
    bool takes;
    status = parse_argument(t, &line, words->count > 1 ? words->list[1] : NULL, &takes);
    for (int w = takes ? 2 : 1; status == LS_OK && w < words->count; w += 2)
        status = parse_option(t, &line, words->list[w], w + 1 < words->count ? words->list[w + 1] : NULL);
    if (status == LS_OK && line.word == LS_WORD_CONV && line.kernel == 0)
        status = ls_text_fail(t, number, "conv needs `kernel K`");
    if (status == LS_OK) t->lines[t->count++] = line;
    return status;
}

static ls_status parse_head(struct ls_text *t, int number, const struct words *words, bool *is_head) {
    const char *word = words->list[0], *value = words->count > 1 ? words->list[1] : "";
    bool input = strcmp(word, "input") == 0;
    *is_head = input || strcmp(word, "loss") == 0;
    if (!*is_head) return LS_OK;
    if (t->count > 0 || words->count > 2)
        return ls_text_fail(t, number, "%s must precede the layers, with one word after it", word);
    if (input) {
        t->takes_input = strcmp(value, "data") == 0;
        return t->takes_input || ls_text_parse_shape(value, NULL, &t->input)
                   ? LS_OK
                   : ls_text_fail(t, number,
                                  "input needs CHANNELSxHEIGHTxWIDTH, as in 3x32x32, a number of features, or data");
    }
    t->loss = strcmp(value, "squared_error") == 0 ? LS_LOSS_SQUARED_ERROR : LS_LOSS_CROSS_ENTROPY;
    return t->loss == LS_LOSS_SQUARED_ERROR || strcmp(value, "cross_entropy") == 0
               ? LS_OK
               : ls_text_fail(t, number, "loss must be cross_entropy or squared_error");
}

/* --- the text -------------------------------------------------------------------------------------------------------- */

ls_status ls_text_parse(struct ls_text *t, const char *source, ls_status wrong, const char *text, size_t nbytes) {
    *t = (struct ls_text){.wrong = wrong, .takes_input = true, .loss = LS_LOSS_CROSS_ENTROPY};
    snprintf(t->source, sizeof t->source, "%s", source);
    t->lines = calloc(MOST_LAYERS, sizeof *t->lines);
    if (!t->lines) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a network's text");
    ls_status status = LS_OK;
    int number = 1;
    for (const char *at = text, *end = text + nbytes; status == LS_OK && at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        struct words words;
        bool is_head = false;
        status = split(t, number, at, length, &words);
        if (status == LS_OK && words.count > 0) status = parse_head(t, number, &words, &is_head);
        if (status == LS_OK && words.count > 0 && !is_head) status = parse_layer(t, number, &words);
        at = newline ? newline + 1 : end;
    }
    if (status == LS_OK && t->count == 0) status = ls_fail(wrong, "%s has no layers", t->source);
    return status;
}

void ls_text_free(struct ls_text *t) {
    free(t->lines);
    t->lines = NULL;
}
