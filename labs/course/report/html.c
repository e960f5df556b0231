/* html — escaping.
 *   idea  : the text is read as characters, not as bytes. So only valid characters reach the page
 *   why   : a stray byte of a broken sequence can hide the quote after it, a null byte ends the page, and U+202E shows
 *           code in a different order than a compiler reads */
#include "labs/course/report/html.h"

#include <locale.h>
#include <stdbool.h>
#include <string.h>
#include <wchar.h>

static bool is_shown(wchar_t c) {
    if (c < 0x20) return c == '\n' || c == '\t';
    if ((c >= 0x7F && c < 0xA0) || (c >= 0xFDD0 && c < 0xFDF0)) return false;
    bool turns =
        c == 0x200E || c == 0x200F || c == 0x061C || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    return !turns && (c & 0xFFFE) != 0xFFFE;
}

static void put_character(FILE *page, wchar_t character, const char *text, size_t length) {
    switch (character) {
    case '<': fputs("&lt;", page); break;
    case '>': fputs("&gt;", page); break;
    case '&': fputs("&amp;", page); break;
    case '"': fputs("&quot;", page); break;
    case '\'': fputs("&#39;", page); break;
    case '`': fputs("&#96;", page); break;
    default:
        if (is_shown(character))
            fwrite(text, 1, length, page);
        else
            fputs("\xEF\xBF\xBD", page);
    }
}

void html_put(FILE *page, const char *text, size_t nbytes) {
    static locale_t utf8;
    if (!utf8) utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = uselocale(utf8);
    for (const char *at = text, *end = text + nbytes; at < end;) {
        wchar_t character = 0;
        mbstate_t state = {0};
        size_t length = mbrtowc(&character, at, (size_t)(end - at), &state);
        bool broken = length > nbytes || character > 0x10FFFF; /* -1: not UTF-8, -2: cut */
        if (broken) character = 0;
        if (character == 0) length = 1;
        bool line_end = character == '\r' && (at + 1 == end || at[1] == '\n'); /* a line end of Windows */
        if (!line_end) put_character(page, character, at, length);
        at += length;
    }
    uselocale(before);
}

void html_put_text(FILE *page, const char *text) { html_put(page, text, strlen(text)); }
