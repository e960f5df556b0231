#include "common/base/bytes_text.h"

#include <stdio.h>

const char *ls_bytes_text(char text[LS_BYTES_TEXT_CAPACITY], double nbytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    /* 1023.96 KiB would be shown as 1024.0 */
    for (; nbytes >= (unit == 0 ? 1024 : 1023.95) && unit < 5; unit++) nbytes /= 1024;
    snprintf(text, LS_BYTES_TEXT_CAPACITY, "%.*f %s", unit == 0 ? 0 : 1, nbytes, units[unit]);
    return text;
}
