/* nearest: edit distance, initials, and shared words. */
#include "common/base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LENGTH_MAX = 48 }; /* longer names than these get no suggestion */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Insertions, deletions, replacements and swaps of neighbours; three rows of the usual table. */
static size_t count_edits(const char *a, const char *b) {
    size_t rows[3][LENGTH_MAX + 1], length = strlen(b);
    for (size_t j = 0; j <= length; j++) rows[0][j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        const size_t *two_above = rows[(i + 1) % 3], *above = rows[(i - 1) % 3];
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[strlen(a) % 3][length];
}

static bool has_initials(const char *words, const char *initials) {
    if (!strchr(words, '-')) return false;
    for (const char *word = words; word; word = strchr(word, '-')) {
        if (*word == '-') word++;
        if (*initials == '\0' || *word != *initials++) return false;
    }
    return *initials == '\0';
}

static bool contains_words(const char *text, const char *words) {
    size_t length = strlen(words);
    for (const char *at = text; length > 0 && (at = strstr(at, words)); at++) {
        if ((at == text || at[-1] == '-') && (at[length] == '\0' || at[length] == '-')) return true;
    }
    return false;
}

/* In lower case, with '-' between the words. */
static void normalise(const char *text, size_t length, char normal[LENGTH_MAX + 1]) {
    for (size_t i = 0; i < length; i++) normal[i] = text[i] == '_' ? '-' : (char)tolower((unsigned char)text[i]);
    normal[length] = '\0';
}

void ls_nearest_offer(struct ls_nearest *nearest, const char *name) {
    size_t length = strlen(name);
    if (nearest->length == 0 || nearest->length > LENGTH_MAX || length > LENGTH_MAX) return;
    char wrong[LENGTH_MAX + 1], known[LENGTH_MAX + 1];
    normalise(nearest->wrong, nearest->length, wrong);
    normalise(name, length, known);
    size_t edits = count_edits(wrong, known);
    bool is_near = 3 * edits <= length || has_initials(wrong, known) || has_initials(known, wrong) ||
                   contains_words(wrong, known) || contains_words(known, wrong);
    if (!is_near || (nearest->name && edits >= nearest->distance)) return;
    nearest->name = name;
    nearest->distance = edits;
}
