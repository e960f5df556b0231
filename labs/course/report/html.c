/* html — escaping.
 *   idea  : the text is read as characters, not as bytes, and written anew from their numbers. So no byte of it reaches
 *           the page that was not understood
 *   why   : a stray byte of a broken sequence can swallow the quote behind it, a zero byte ends the page, and U+202E
 *           shows code in another order than a compiler reads it */
#include "labs/course/report/html.h"

#include <stdbool.h>
#include <string.h>

enum { NOT_A_CHARACTER = 0xFFFD };

/* Bytes of the sequence that this byte begins, 0: it begins none; its own bits in *bits. */
static int length_of_sequence(unsigned char first, uint32_t *bits) {
    *bits = first;
    if (first < 0x80) return 1;
    *bits = first & 0x1F;
    if (first >= 0xC2 && first < 0xE0) return 2;
    *bits = first & 0x0F;
    if (first >= 0xE0 && first < 0xF0) return 3;
    *bits = first & 0x07;
    return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

uint32_t html_next_character(const char **at, const char *end) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t character;
    const char *begin = *at;
    int length = length_of_sequence((unsigned char)*begin, &character);
    *at = begin + 1;
    if (length == 0 || end - begin < length) return NOT_A_CHARACTER;
    for (int i = 1; i < length; i++) {
        unsigned char next = (unsigned char)begin[i];
        if ((next & 0xC0) != 0x80) return NOT_A_CHARACTER;
        character = character << 6 | (next & 0x3F);
    }
    bool surrogate = character >= 0xD800 && character < 0xE000;
    if (character < least[length] || character > 0x10FFFF || surrogate) return NOT_A_CHARACTER;
    *at = begin + length;
    return character;
}

static bool is_shown(uint32_t c) {
    if (c < 0x20) return c == '\n' || c == '\t';
    if (c >= 0x7F && c < 0xA0) return false;
    if (c >= 0xFDD0 && c < 0xFDF0) return false;
    bool turns =
        c == 0x200E || c == 0x200F || c == 0x061C || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    return !turns && (c & 0xFFFE) != 0xFFFE;
}

static void put_utf8(FILE *page, uint32_t c) {
    if (c < 0x80) {
        fputc((int)c, page);
    } else if (c < 0x800) {
        fprintf(page, "%c%c", (int)(0xC0 | c >> 6), (int)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        fprintf(page, "%c%c%c", (int)(0xE0 | c >> 12), (int)(0x80 | (c >> 6 & 0x3F)), (int)(0x80 | (c & 0x3F)));
    } else {
        fprintf(page, "%c%c%c%c", (int)(0xF0 | c >> 18), (int)(0x80 | (c >> 12 & 0x3F)), (int)(0x80 | (c >> 6 & 0x3F)),
                (int)(0x80 | (c & 0x3F)));
    }
}

void html_put_character(FILE *page, uint32_t character) {
    switch (character) {
    case '<': fputs("&lt;", page); break;
    case '>': fputs("&gt;", page); break;
    case '&': fputs("&amp;", page); break;
    case '"': fputs("&quot;", page); break;
    case '\'': fputs("&#39;", page); break;
    case '`': fputs("&#96;", page); break;
    default: put_utf8(page, is_shown(character) ? character : NOT_A_CHARACTER);
    }
}

void html_put(FILE *page, const char *text, size_t nbytes) {
    for (const char *at = text, *end = text + nbytes; at < end;) {
        uint32_t character = html_next_character(&at, end);
        if (character == '\r' && (at == end || *at == '\n')) continue; /* lines as Windows ends them */
        html_put_character(page, character);
    }
}

void html_put_text(FILE *page, const char *text) { html_put(page, text, strlen(text)); }
