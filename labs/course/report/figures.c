#define _GNU_SOURCE
#include "labs/course/report/figures.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "labs/course/report/html.h"
#include "labs/course/report/svg.h"

static int is_picture(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && length > 4 && strcmp(entry->d_name + length - 4, ".svg") == 0;
}

static void free_names(struct dirent **names, int count) {
    for (int i = 0; i < count; i++) free(names[i]);
    if (count >= 0) free(names);
}

int figures_count(const char *folder) {
    struct dirent **names;
    int count = scandir(folder, &names, is_picture, NULL);
    free_names(names, count);
    return count < 0 ? 0 : count;
}

/* What the programs' pictures say in their second line ("measured on ...", "replayed on ..."), all that is there. */
static void put_kinds(FILE *page, language l, const char *words) {
    static const struct {
        const char *said;
        word shown;
    } kinds[] = {{"measured", WORD_KIND_MEASURED},
                 {"virtual", WORD_KIND_VIRTUAL},
                 {"replayed", WORD_KIND_REPLAYED},
                 {"computed", WORD_KIND_COMPUTED}};
    bool any = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!strcasestr(words, kinds[i].said)) continue;
        fprintf(page, "<span class=\"kind\">%s</span> ", words_of(l, kinds[i].shown));
        any = true;
    }
    if (!any) fprintf(page, "<span class=\"kind unsaid\">%s</span> ", words_of(l, WORD_KIND_NOT_SAID));
}

static void put_caption(FILE *page, language l, const char *name, const svg_said *said) {
    fputs("<figcaption>", page);
    if (!said->why[0]) put_kinds(page, l, said->words);
    fputs("<code>", page);
    html_put_text(page, name);
    fputs("</code>", page);
    if (strstr(said->words, "GNUPLOT")) fputs(words_of(l, WORD_DRAWN_BY), page);
    if (said->why[0]) {
        char text[SVG_WHY_CAPACITY + 64];
        snprintf(text, sizeof text, words_of(l, WORD_NOT_SHOWN), said->why);
        html_put_text(page, text);
    } else if (said->left_out) {
        fprintf(page, words_of(l, WORD_LEFT_OUT), said->left_out);
    }
    fputs("</figcaption>", page);
}

static void put_figure(FILE *page, language l, const char *folder, const char *name, const char *prefix) {
    char path[PATH_MAX], *text = NULL, *drawn = NULL;
    size_t nbytes = 0, drawn_nbytes;
    svg_said said = {.left_out = 0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ls_log_sink before = ls_log_capture(said.why, sizeof said.why);
    ls_status status = ls_file_read(path, SVG_MOST_BYTES, &text, &nbytes);
    ls_log_restore(before);
    FILE *picture = status == LS_OK ? open_memstream(&drawn, &drawn_nbytes) : NULL;
    if (picture) {
        svg_put(picture, &said, text, nbytes, prefix, name);
        fclose(picture);
    }
    fputs("<figure>", page);
    if (drawn && !said.why[0]) fputs(drawn, page);
    put_caption(page, l, name, &said);
    fputs("</figure>\n", page);
    free(text);
    free(drawn);
}

void figures_put(FILE *page, language l, const char *folder, const char *prefix) {
    struct dirent **names;
    int count = scandir(folder, &names, is_picture, alphasort);
    for (int i = 0; i < count && i < FIGURES_MOST; i++) {
        char own[64];
        snprintf(own, sizeof own, "%s-%d-", prefix, i);
        put_figure(page, l, folder, names[i]->d_name, own);
    }
    if (count > FIGURES_MOST) {
        fputs("<p class=\"missing\">", page);
        fprintf(page, words_of(l, WORD_MORE_FIGURES), count - FIGURES_MOST);
        fputs("</p>\n", page);
    }
    free_names(names, count);
}
