/* Bytes on a terminal: which are printed unchanged, and which are escaped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/print_bytes.h"
#include "tests/base/test.h"

static void expect_printed(const char *bytes, size_t count, const char *expected) {
    char *text = NULL;
    size_t nbytes = 0;
    FILE *file = open_memstream(&text, &nbytes);
    assert_non_null(file);
    ls_print_bytes(file, (const uint8_t *)bytes, count);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, expected);
    assert_int_equal(nbytes, strlen(expected));
    free(text);
}

#define EXPECT(bytes, expected) expect_printed(bytes, sizeof(bytes) - 1, expected)

TEST(text_is_printed_as_it_is) {
    EXPECT("12+7=19;\n\ta ~", "12+7=19;\n\ta ~");
    EXPECT("", "");
    EXPECT("\xc3\xa4 \xe4\xb8\xad \xf0\x9f\x98\x80 \xc2\xa0", "\xc3\xa4 \xe4\xb8\xad \xf0\x9f\x98\x80 \xc2\xa0");
}

TEST(nothing_is_a_command_to_a_terminal) {
    EXPECT("\x1b[2J\r\b\x7f", "\\x1b[2J\\x0d\\x08\\x7f");
    EXPECT("a\0b", "a\\x00b");
    EXPECT("\\x1b", "\\\\x1b");
    EXPECT("\xc2\x9b", "\\xc2\\x9b");                            /* U+009B starts a control sequence, too */
    EXPECT("\x9b\xff\xfe", "\\x9b\\xff\\xfe");                   /* not UTF-8 */
    EXPECT("\xe4\xb8", "\\xe4\\xb8");                            /* truncated */
    EXPECT("\xc1\x81\xe0\x80\x9b", "\\xc1\\x81\\xe0\\x80\\x9b"); /* overlong */
    EXPECT("\xed\xa0\x80", "\\xed\\xa0\\x80");                   /* half of a surrogate pair */
    EXPECT("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");          /* beyond Unicode */
}
