#include "labs/course/report/points.h"

#include <string.h>

#include "labs/course/grade/verdict.h"
#include "labs/course/report/html.h"

ls_status points_open(points *out, const char *path) {
    *out = (points){.json = NULL};
    ls_status status = ls_json_open(&out->json, path);
    if (status != LS_OK) return status;
    const cJSON *root = ls_json_root(out->json), *each;
    out->points = (int)ls_json_whole(out->json, root, "points", 0, 100000);
    out->of = (int)ls_json_whole(out->json, root, "of", 0, 100000);
    out->seed = ls_json_number(out->json, root, "seed", 0, 1e15);
    cJSON_ArrayForEach(each, ls_json_array(out->json, root, "checks")) {
        if (out->check_count == POINTS_MOST_CHECKS) break;
        out->checks[out->check_count++] =
            (check_points){.name = ls_json_text(out->json, each, "check"),
                           .verdict = ls_json_text(out->json, each, "verdict"),
                           .invariant = ls_json_text(out->json, each, "invariant"),
                           .why = ls_json_text(out->json, each, "why"),
                           .points = (int)ls_json_whole(out->json, each, "points", 0, 1000),
                           .of = (int)ls_json_whole(out->json, each, "of", 0, 1000)};
    }
    return ls_json_failed(out->json) ? LS_ERR_INVALID : LS_OK;
}

void points_close(points *p) {
    ls_json_close(p->json);
    *p = (points){.json = NULL};
}

static bool held(const check_points *c) { return strcmp(c->verdict, "held") == 0; }

/* The grader's word in the page's language, and as it is where the grader has none such. */
static const char *verdict_in(language l, const char *name) {
    for (verdict v = VERDICT_HELD; v <= VERDICT_NOT_RUN; v++)
        if (strcmp(name, verdict_name(v, WORDS_ENGLISH)) == 0)
            return verdict_name(v, l == CHINESE ? WORDS_CHINESE : WORDS_ENGLISH);
    return name;
}

static void put_first_failure(FILE *page, language l, const points *p) {
    const check_points *first = p->checks, *end = p->checks + p->check_count;
    while (first < end && (held(first) || !first->why[0])) first++;
    if (first == end) return;
    fprintf(page, "<p class=\"failure\"><strong>%s</strong> <code>", words_of(l, WORD_FIRST_FAILURE));
    html_put_text(page, first->name);
    fputs("</code>: ", page);
    html_put_text(page, first->why);
    fputs("</p>\n", page);
}

static void put_check(FILE *page, language l, const check_points *c, const facts *f) {
    fprintf(page, "<tr class=\"%s\"><th scope=\"row\"><code>", held(c) ? "held" : "lost");
    html_put_text(page, c->name);
    fprintf(page, "</code></th><td data-label=\"%s\">", words_of(l, WORD_INVARIANT));
    html_put_text(page, facts_words_of_check(f, c->name, c->invariant));
    if (!held(c) && c->why[0]) {
        fputs("<div class=\"why\">", page);
        html_put_text(page, c->why);
        fputs("</div>", page);
    }
    fprintf(page, "</td><td class=\"verdict\" data-label=\"%s\">", words_of(l, WORD_VERDICT));
    html_put_text(page, verdict_in(l, c->verdict));
    fprintf(page, "</td><td class=\"number\" data-label=\"%s\">", words_of(l, WORD_POINTS));
    fprintf(page, words_of(l, WORD_POINTS_OF), c->points, c->of);
    fputs("</td></tr>\n", page);
}

void points_put(FILE *page, language l, const points *p, const facts *f) {
    fputs("<p class=\"score\">", page);
    fprintf(page, words_of(l, WORD_GRADE_LINE), p->points, p->of, p->seed);
    fputs("</p>\n", page);
    put_first_failure(page, l, p);
    fprintf(page, "<table class=\"checks\"><thead><tr><th scope=\"col\">%s</th><th scope=\"col\">%s</th>",
            words_of(l, WORD_CHECK), words_of(l, WORD_INVARIANT));
    fprintf(page, "<th scope=\"col\">%s</th><th scope=\"col\" class=\"number\">%s</th></tr></thead><tbody>\n",
            words_of(l, WORD_VERDICT), words_of(l, WORD_POINTS));
    for (int i = 0; i < p->check_count; i++) put_check(page, l, &p->checks[i], f);
    fputs("</tbody></table>\n", page);
}
