#include "tests/base/text.h"

#include <string.h>

int count_text(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text++) count++;
    return count;
}
