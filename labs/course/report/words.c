/* words — the table in two languages. */
#include "labs/course/report/words.h"

#define WORDS_TEXT(name, english, chinese) {english, chinese},
static const char *const texts[WORD_COUNT][2] = {WORDS_MAP(WORDS_TEXT)};

const char *words_of(language l, word w) { return texts[w][l]; }
