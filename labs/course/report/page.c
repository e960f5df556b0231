/* page — head, summary, machine, labs, pictures, foot.
 *   runs nothing: there is no script in it, nor a link to anywhere; the policy in its head forbids both once more, should a
 *           way around html_put or svg_put ever be found
 *   anchors: the only links lead from the summary to the labs */
#define _GNU_SOURCE
#include "labs/course/report/page.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes_text.h"
#include "common/base/version.h"
#include "labs/course/report/figures.h"
#include "labs/course/report/html.h"
#include "labs/course/report/page_lab.h"
#include "labs/course/report/style.h"

static void put_head(FILE *file, const page *p) {
    fprintf(file,
            "<!DOCTYPE html>\n<html lang=\"%s\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
            "base-uri 'none'; form-action 'none'\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta name=\"referrer\" content=\"no-referrer\">\n<title>lockstep: %s",
            words_of(p->language, WORD_PAGE_LANGUAGE), words_of(p->language, WORD_REPORT));
    if (p->student) fputs(", ", file);
    if (p->student) html_put_text(file, p->student);
    fputs("</title>\n<style>\n", file);
    for (const char *const *text = style_texts; *text; text++) fputs(*text, file);
    fputs("</style>\n</head>\n<body>\n", file);
}

static void put_header(FILE *file, const page *p) {
    fprintf(file, "<header>\n<p class=\"product\">lockstep</p>\n<h1>%s</h1>\n", words_of(p->language, WORD_REPORT));
    fputs("<p class=\"by\">", file);
    if (p->student) {
        fputs("<bdi>", file);
        html_put_text(file, p->student);
        fputs("</bdi> · ", file);
    }
    fprintf(file, "<time>%.10s</time></p>\n</header>\n<main>\n", p->machine.date);
}

/* --- the summary ---------------------------------------------------------------------------------------------------- */

/* "3 of 4", or a dash where there is nothing to count. */
static void put_share(FILE *file, language l, word label, int share, int whole) {
    fprintf(file, "<td class=\"number\" data-label=\"%s\">", words_of(l, label));
    if (whole > 0)
        fprintf(file, words_of(l, WORD_POINTS_OF), share, whole);
    else
        fputs("&#8211;", file);
    fputs("</td>", file);
}

static void put_points(FILE *file, language l, const page_lab *lab) {
    if (lab->points.check_count > 0)
        put_share(file, l, WORD_POINTS, lab->points.points, lab->points.of);
    else
        fprintf(file, "<td class=\"number missing\" data-label=\"%s\">%s</td>", words_of(l, WORD_POINTS),
                words_of(l, lab->facts.graded_other ? WORD_CHANGED_SINCE : WORD_NOT_GRADED));
}

static void put_summary_row(FILE *file, language l, const page_lab *lab) {
    fputs("<tr><th scope=\"row\"><a href=\"#lab-", file);
    html_put_text(file, lab->facts.number);
    fputs("\">", file);
    html_put_text(file, lab->facts.number);
    fputs(" ", file);
    html_put_text(file, lab->facts.title);
    fputs("</a></th>", file);
    put_points(file, l, lab);
    put_share(file, l, WORD_CAME_TRUE, lab->facts.came_true, lab->facts.prediction_count);
    put_share(file, l, WORD_ANSWERED, lab->answered.answered, lab->answered.questions);
    fputs("</tr>\n", file);
}

static page_lab sum_of(const page_lab *labs, int count) {
    page_lab sum = {.answers = NULL};
    for (const page_lab *lab = labs; lab < labs + count; lab++) {
        sum.points.points += lab->points.points;
        sum.points.of += lab->points.of;
        sum.facts.came_true += lab->facts.came_true;
        sum.facts.prediction_count += lab->facts.prediction_count;
        sum.answered.answered += lab->answered.answered;
        sum.answered.questions += lab->answered.questions;
    }
    return sum;
}

static void put_summary(FILE *file, const page *p) {
    static const word columns[] = {WORD_POINTS, WORD_CAME_TRUE, WORD_ANSWERED};
    language l = p->language;
    page_lab sum = sum_of(p->labs, p->lab_count);
    fprintf(file, "<section>\n<h2>%s</h2>\n<table class=\"summary\"><thead><tr><th scope=\"col\">%s</th>",
            words_of(l, WORD_SUMMARY), words_of(l, WORD_LAB));
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        fprintf(file, "<th scope=\"col\" class=\"number\">%s</th>", words_of(l, columns[i]));
    fputs("</tr></thead><tbody>\n", file);
    for (int i = 0; i < p->lab_count; i++) put_summary_row(file, l, &p->labs[i]);
    fprintf(file, "</tbody><tfoot><tr><th scope=\"row\">%s</th>", words_of(l, WORD_ALL_LABS));
    put_share(file, l, WORD_POINTS, sum.points.points, sum.points.of);
    put_share(file, l, WORD_CAME_TRUE, sum.facts.came_true, sum.facts.prediction_count);
    put_share(file, l, WORD_ANSWERED, sum.answered.answered, sum.answered.questions);
    fputs("</tr></tfoot></table>\n</section>\n", file);
}

/* --- the machine ---------------------------------------------------------------------------------------------------- */

static void put_fact(FILE *file, language l, word name, const char *value) {
    fprintf(file, "<div><dt>%s</dt><dd>", words_of(l, name));
    html_put_text(file, strcmp(value, "unknown") == 0 ? words_of(l, WORD_UNKNOWN) : value);
    fputs("</dd></div>\n", file);
}

static void put_machine(FILE *file, const page *p) {
    const bench_machine *m = &p->machine;
    language l = p->language;
    char cores[16], memory[LS_BYTES_TEXT_CAPACITY], load[160] = "unknown",
                                                    version[BENCH_MACHINE_TEXT + 64] = LS_VERSION, date[32];
    snprintf(cores, sizeof cores, "%d", m->cores);
    if (m->load >= 0) snprintf(load, sizeof load, words_of(l, WORD_LOAD_NOTE), m->load);
    if (strcmp(m->commit, "unknown") != 0)
        snprintf(version, sizeof version, words_of(l, WORD_LOCKSTEP_COMMIT), LS_VERSION, m->commit);
    snprintf(date, sizeof date, "%.10s %.5s UTC", m->date, strlen(m->date) > 16 ? m->date + 11 : "");
    fprintf(file, "<section>\n<h2>%s</h2>\n<p class=\"note\">%s</p>\n<dl class=\"machine\">\n",
            words_of(l, WORD_MACHINE), words_of(l, WORD_MACHINE_NOTE));
    put_fact(file, l, WORD_PROCESSOR, m->cpu);
    put_fact(file, l, WORD_CORES, cores);
    put_fact(file, l, WORD_MEMORY,
             ls_bytes_text(memory, (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)));
    put_fact(file, l, WORD_LOAD, load);
    put_fact(file, l, WORD_SYSTEM, m->system);
    put_fact(file, l, WORD_COMPILER, m->compiler);
    put_fact(file, l, WORD_LOCKSTEP, version);
    put_fact(file, l, WORD_DATE, date);
    fputs("</dl>\n</section>\n", file);
}

/* --- all of it ------------------------------------------------------------------------------------------------------ */

static void put_program_figures(FILE *file, const page *p) {
    char note[PAGE_PATH + 256];
    if (figures_count(p->results) == 0) return;
    snprintf(note, sizeof note, words_of(p->language, WORD_PROGRAM_FIGURES_NOTE), p->results);
    fprintf(file, "<section class=\"lab\" id=\"programs\">\n<h2>%s</h2>\n<p class=\"note\">",
            words_of(p->language, WORD_PROGRAM_FIGURES));
    html_put_text(file, note);
    fputs("</p>\n", file);
    figures_put(file, p->language, p->results, "programs");
    fputs("</section>\n", file);
}

char *page_text(const page *p) {
    char *text = NULL;
    size_t nbytes;
    FILE *file = open_memstream(&text, &nbytes);
    if (!file) return NULL;
    put_head(file, p);
    put_header(file, p);
    put_summary(file, p);
    put_machine(file, p);
    for (int i = 0; i < p->lab_count; i++) page_lab_put(file, p->language, &p->labs[i]);
    put_program_figures(file, p);
    fprintf(file, "</main>\n<footer>%s</footer>\n</body>\n</html>\n", words_of(p->language, WORD_CONTENTS_NOTE));
    bool whole = !ferror(file);
    if (fclose(file) == 0 && whole) return text;
    free(text);
    return NULL;
}
