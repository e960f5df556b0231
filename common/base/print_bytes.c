#include "common/base/print_bytes.h"

#include <stdbool.h>

/* Length of the UTF-8 character at the beginning, if a terminal can print it; else 0. */
static size_t utf8_length(const uint8_t *bytes, size_t count) {
    static const uint32_t least[] = {0, 0, 0xa0, 0x800, 0x10000}; /* by length; U+0080 to U+009F are controls */
    size_t length = bytes[0] >= 0xf0 && bytes[0] < 0xf8 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
    if (bytes[0] < 0xc0 || bytes[0] >= 0xf8 || count < length) return 0;
    uint32_t code = bytes[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code >= least[length] && code <= 0x10ffff && !is_surrogate ? length : 0;
}

void ls_print_bytes(FILE *file, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = bytes[i];
        size_t length = byte >= 0x80 ? utf8_length(bytes + i, count - i) : 0;
        bool plain = (byte >= ' ' && byte < 0x7f) || byte == '\n' || byte == '\t';
        if (length > 0) {
            fwrite(bytes + i, 1, length, file);
            i += length - 1;
        } else if (byte == '\\') {
            fputs("\\\\", file);
        } else if (plain) {
            fputc(byte, file);
        } else {
            fprintf(file, "\\x%02x", byte);
        }
    }
}
