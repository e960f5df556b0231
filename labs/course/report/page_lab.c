#define _GNU_SOURCE
#include "labs/course/report/page_lab.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "labs/course/report/diff.h"
#include "labs/course/report/figures.h"
#include "labs/course/report/html.h"

enum { MOST_ANSWERS = 1 << 20, MOST_DIFF = 4 << 20 };

/* --- what there is -------------------------------------------------------------------------------------------------- */

/* A file that need not be there. */
static ls_status read_if_there(const char *path, size_t most, char **text, size_t *nbytes) {
    return access(path, F_OK) == 0 ? ls_file_read(path, most, text, nbytes) : LS_OK;
}

/* Whether the path is a regular file in the folder, with no link that leads out: a page shows nothing else. */
static bool is_inside(const char *folder, const char *path) {
    char *root = realpath(folder, NULL), *file = realpath(path, NULL);
    struct stat about;
    size_t length = root ? strlen(root) : 0;
    bool inside = root && file && strncmp(file, root, length) == 0 &&
                  (file[length] == '/' || root[length - 1] == '/') && stat(file, &about) == 0 && S_ISREG(about.st_mode);
    free(root);
    free(file);
    return inside;
}

ls_status page_lab_open(page_lab *out, const char *built, const char *number, const char *code) {
    *out = (page_lab){.answers = NULL};
    char path[PAGE_PATH + 32];
    snprintf(out->figures, sizeof out->figures, "%s/%s", built, number);
    snprintf(path, sizeof path, "%s/report.facts", out->figures);
    ls_status status = facts_open(&out->facts, path);
    if (status != LS_OK) return status;
    snprintf(path, sizeof path, "%s/report.diff", out->figures);
    status = read_if_there(path, MOST_DIFF, &out->diff, &out->diff_nbytes);
    snprintf(path, sizeof path, "%s/grade.json", out->figures);
    if (status == LS_OK && out->facts.graded && !out->facts.graded_other) status = points_open(&out->points, path);
    const char *below = strcmp(code, ".") == 0 ? "" : code; /* as a student names it */
    snprintf(out->answers_file, sizeof out->answers_file, "%s%s%s/answers.md", below, *below ? "/" : "",
             out->facts.folder);
    struct stat about;
    if (status == LS_OK && lstat(out->answers_file, &about) == 0 && !is_inside(code, out->answers_file))
        return ls_fail(LS_ERR_INVALID, "%s is no regular file inside of %s; remove it", out->answers_file, code);
    if (status == LS_OK) status = read_if_there(out->answers_file, MOST_ANSWERS, &out->answers, &out->answers_nbytes);
    if (out->answers) out->answered = markdown_put(NULL, out->answers, out->answers_nbytes, NULL);
    return status;
}

void page_lab_close(page_lab *lab) {
    facts_close(&lab->facts);
    points_close(&lab->points);
    free(lab->answers);
    free(lab->diff);
    *lab = (page_lab){.answers = NULL};
}

/* --- predictions ---------------------------------------------------------------------------------------------------- */

/* Whether the result was counted (the same on any machine), measured, replayed or computed; any other word as it is. */
static const char *kind_in(language l, const char *kind) {
    static const struct {
        const char *name;
        word shown;
    } kinds[] = {{"counted", WORD_KIND_COUNTED},
                 {"measured", WORD_KIND_MEASURED},
                 {"replayed", WORD_KIND_REPLAYED},
                 {"computed", WORD_KIND_COMPUTED},
                 {"virtual", WORD_KIND_VIRTUAL}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i].name) == 0) return words_of(l, kinds[i].shown);
    return kind;
}

static void put_missing(FILE *file, language l, word w) {
    fprintf(file, "<span class=\"missing\">%s</span>", words_of(l, w));
}

static void put_prediction(FILE *file, language l, const prediction *p) {
    fputs("<tr><th scope=\"row\">", file);
    markdown_put_line(file, p->question, strlen(p->question));
    fprintf(file, "</th><td data-label=\"%s\">", words_of(l, WORD_PREDICTED));
    if (p->predicted)
        html_put_text(file, p->predicted);
    else
        put_missing(file, l, WORD_NOT_PREDICTED);
    fprintf(file, "</td><td data-label=\"%s\">", words_of(l, WORD_RESULT));
    if (p->result) {
        fputs("<strong>", file);
        html_put_text(file, p->result);
        fputs("</strong> <span class=\"kind\">", file);
        html_put_text(file, kind_in(l, p->kind));
        fputs("</span>", file);
        if (p->predicted)
            fprintf(file, " <span class=\"%s\">%s</span>", p->came_true ? "true" : "false",
                    words_of(l, p->came_true ? WORD_TRUE_MARK : WORD_FALSE_MARK));
    } else {
        put_missing(file, l, WORD_NOT_RUN);
    }
    fputs("</td></tr>\n", file);
}

static void put_remarks(FILE *file, language l, const facts *f) {
    if (f->remark_count == 0) return;
    fprintf(file, "<h4>%s</h4>\n<p class=\"remarks\">", words_of(l, WORD_REMARKS));
    for (int i = 0; i < f->remark_count; i++) {
        html_put_text(file, f->remarks[i]);
        fputs(i + 1 < f->remark_count ? "\n" : "</p>\n", file);
    }
}

/* A sentence that names the lab's number or a file. */
static void put_hint(FILE *file, language l, word w, const char *name) {
    char text[PAGE_PATH + 256];
    snprintf(text, sizeof text, words_of(l, w), name);
    fputs("<p class=\"missing\">", file);
    html_put_text(file, text);
    fputs("</p>\n", file);
}

static void put_predictions(FILE *file, language l, const facts *f) {
    bool run = false;
    for (int i = 0; i < f->prediction_count; i++) run = run || f->predictions[i].result;
    fprintf(file, "<h3>%s</h3>\n", words_of(l, WORD_PREDICTIONS));
    if (!run) put_hint(file, l, WORD_LAB_NOT_RUN, f->number);
    fprintf(file, "<table class=\"predictions\"><thead><tr><th scope=\"col\">%s</th><th scope=\"col\">%s</th>",
            words_of(l, WORD_QUESTION), words_of(l, WORD_PREDICTED));
    fprintf(file, "<th scope=\"col\">%s</th></tr></thead><tbody>\n", words_of(l, WORD_RESULT));
    for (int i = 0; i < f->prediction_count; i++) put_prediction(file, l, &f->predictions[i]);
    fputs("</tbody></table>\n", file);
    put_remarks(file, l, f);
}

/* --- the rest ------------------------------------------------------------------------------------------------------- */

static void put_grade(FILE *file, language l, const page_lab *lab) {
    fprintf(file, "<h3>%s</h3>\n", words_of(l, WORD_GRADE));
    if (lab->points.check_count > 0)
        points_put(file, l, &lab->points, &lab->facts);
    else
        put_hint(file, l, lab->facts.graded_other ? WORD_GRADED_OTHER : WORD_LAB_NOT_GRADED, lab->facts.number);
}

static void put_figures(FILE *file, language l, const page_lab *lab) {
    char prefix[32];
    if (figures_count(lab->figures) == 0) return;
    snprintf(prefix, sizeof prefix, "lab%.8s", lab->facts.number);
    fprintf(file, "<h3>%s</h3>\n", words_of(l, WORD_FIGURES));
    figures_put(file, l, lab->figures, prefix);
}

static void put_code(FILE *file, language l, const page_lab *lab) {
    bool any = lab->diff && lab->diff_nbytes > 0;
    fprintf(file, "<h3>%s</h3>\n<p class=\"%s\">%s</p>\n", words_of(l, WORD_CODE), any ? "note" : "missing",
            words_of(l, any ? WORD_CODE_NOTE : WORD_NO_CODE));
    if (any) diff_put(file, l, lab->diff, lab->diff_nbytes);
}

static void put_answers(FILE *file, language l, const page_lab *lab) {
    fprintf(file, "<h3>%s</h3>\n", words_of(l, WORD_ANSWERS));
    if (!lab->answers || lab->answered.questions + lab->answered.other_blocks == 0) {
        put_hint(file, l, WORD_NO_ANSWERS, lab->answers_file);
        return;
    }
    fputs("<div class=\"answers\">\n", file);
    markdown_put(file, lab->answers, lab->answers_nbytes, words_of(l, WORD_NO_ANSWER));
    fputs("</div>\n", file);
}

void page_lab_put(FILE *file, language l, const page_lab *lab) {
    char title[512];
    snprintf(title, sizeof title, words_of(l, WORD_LAB_TITLE), lab->facts.number, lab->facts.title);
    fputs("<section class=\"lab\" id=\"lab-", file);
    html_put_text(file, lab->facts.number);
    fputs("\">\n<h2>", file);
    html_put_text(file, title);
    fputs("</h2>\n", file);
    put_predictions(file, l, &lab->facts);
    put_grade(file, l, lab);
    put_figures(file, l, lab);
    put_code(file, l, lab);
    put_answers(file, l, lab);
    fputs("</section>\n", file);
}
