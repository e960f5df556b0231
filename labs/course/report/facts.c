#include "labs/course/report/facts.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"

enum { MOST_BYTES = 4 << 20 };

/* Cuts the next field off; what remains may be empty. */
static char *take_field(char **rest) {
    char *field = *rest, *tab = strchr(field, '\t');
    *rest = tab ? tab + 1 : field + strlen(field);
    if (tab) *tab = '\0';
    return field;
}

/* NULL, or what is wrong. */
static const char *take_prediction(facts *f, char *rest) {
    if (f->prediction_count == FACTS_MOST_PREDICTIONS) return "too many predictions";
    prediction *p = &f->predictions[f->prediction_count++];
    *p = (prediction){.name = take_field(&rest)};
    p->question = rest;
    return NULL;
}

static const char *take_result(facts *f, char *rest) {
    if (f->prediction_count == 0) return "a result follows its question";
    prediction *p = &f->predictions[f->prediction_count - 1];
    p->came_true = strcmp(take_field(&rest), "=") == 0;
    p->kind = take_field(&rest);
    p->result = rest;
    f->came_true += p->came_true;
    return NULL;
}

static const char *take_check(facts *f, char *rest) {
    if (f->check_count == FACTS_MOST_CHECKS) return "too many checks";
    f->checks[f->check_count].name = take_field(&rest);
    f->checks[f->check_count++].words = rest;
    return NULL;
}

static const char *take_line(facts *f, char *line) {
    char *rest = line, *key = take_field(&rest);
    if (strcmp(key, "predict") == 0) return take_prediction(f, rest);
    if (strcmp(key, "result") == 0) return take_result(f, rest);
    if (strcmp(key, "check") == 0) return take_check(f, rest);
    if (strcmp(key, "number") == 0) f->number = rest;
    if (strcmp(key, "folder") == 0) f->folder = rest;
    if (strcmp(key, "title") == 0) f->title = rest;
    if (strcmp(key, "graded") == 0) {
        f->graded = strcmp(rest, "never") != 0;
        f->graded_other = strcmp(rest, "other") == 0;
    }
    if (strcmp(key, "predicted") == 0 && f->prediction_count > 0)
        f->predictions[f->prediction_count - 1].predicted = rest;
    if (strcmp(key, "remark") == 0 && f->remark_count < FACTS_MOST_REMARKS) f->remarks[f->remark_count++] = rest;
    return NULL;
}

ls_status facts_open(facts *out, const char *path) {
    *out = (facts){.text = NULL};
    size_t nbytes;
    ls_status status = ls_file_read(path, MOST_BYTES, &out->text, &nbytes);
    if (status != LS_OK) return status;
    int number = 1;
    for (char *line = out->text, *next; line && *line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        const char *wrong = take_line(out, line);
        if (wrong) return ls_fail(LS_ERR_INVALID, "%s:%d: %s", path, number, wrong);
    }
    if (!out->number || !out->folder || !out->title)
        return ls_fail(LS_ERR_INVALID, "%s does not say which lab it is", path);
    return LS_OK;
}

void facts_close(facts *f) {
    free(f->text);
    *f = (facts){.text = NULL};
}

const char *facts_words_of_check(const facts *f, const char *name, const char *otherwise) {
    for (int i = 0; i < f->check_count; i++)
        if (strcmp(f->checks[i].name, name) == 0) return f->checks[i].words;
    return otherwise;
}
