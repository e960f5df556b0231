/* gpt — the GPT's sizes as text. */
#include "common/nn/gpt.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

enum { MOST_LAYERS = 256, MOST_CHANNELS = 65536, MOST_POSITIONS = 65536, MOST_TOKENS = 1 << 20 };

bool ls_gpt_is_named(const char *description) {
    return strncmp(description, "gpt", 3) == 0 && strchr(":,", description[3]); /* '\0' is found, too */
}

/* Digits at *at, as a number from 1 to `most`, and moves *at behind them. 0: there is none. */
static int read_number(const char **at, int most) {
    int number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        number = number * 10 + (**at - '0');
        if (number > most) return 0;
    }
    return number;
}

/* "LAYERS,HEADS,CHANNELS,CONTEXT[,VOCABULARY]"; the vocabulary's comma may also be that of an option. */
static bool read_sizes(struct ls_gpt_sizes *sizes, const char **at) {
    const struct field {
        int *number, most;
    } fields[] = {{&sizes->layers, MOST_LAYERS},
                  {&sizes->heads, MOST_CHANNELS},
                  {&sizes->channels, MOST_CHANNELS},
                  {&sizes->context, MOST_POSITIONS}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (i > 0 && *(*at)++ != ',') return false;
        *fields[i].number = read_number(at, fields[i].most);
        if (*fields[i].number == 0) return false;
    }
    if (**at != ',' || (*at)[1] < '0' || (*at)[1] > '9') return true;
    ++*at;
    sizes->vocabulary = read_number(at, MOST_TOKENS);
    return sizes->vocabulary > 0;
}

ls_status ls_gpt_parse(struct ls_gpt_sizes *out, const char *description) {
    *out = (struct ls_gpt_sizes){.layers = 4, .heads = 4, .channels = 128, .context = 64};
    bool valid = ls_gpt_is_named(description);
    const char *at = valid ? description + 3 : ""; /* behind "gpt" */
    if (valid && *at == ':') {
        at++;
        valid = read_sizes(out, &at);
    }
    out->scores = valid && strcmp(at, ",scores") == 0;
    if (!valid || (*at != '\0' && !out->scores))
        return ls_fail(LS_ERR_USAGE,
                       "model \"%s\": a GPT is gpt[:LAYERS,HEADS,CHANNELS,CONTEXT[,VOCABULARY]][,scores], as in "
                       "gpt:4,4,128,64, with at most %d layers, %d channels, %d positions and %d tokens",
                       description, MOST_LAYERS, MOST_CHANNELS, MOST_POSITIONS, MOST_TOKENS);
    if (out->channels % out->heads != 0)
        return ls_fail(LS_ERR_USAGE, "model \"%s\": %d heads do not divide %d channels", description, out->heads,
                       out->channels);
    return LS_OK;
}

void ls_gpt_describe(const struct ls_gpt_sizes *sizes, char *text, size_t capacity) {
    char vocabulary[16] = "";
    if (sizes->vocabulary > 0) snprintf(vocabulary, sizeof vocabulary, ",%d", sizes->vocabulary);
    snprintf(text, capacity, "gpt:%d,%d,%d,%d%s%s", sizes->layers, sizes->heads, sizes->channels, sizes->context,
             vocabulary, sizes->scores ? ",scores" : "");
}
