#include "tests/base/stderr_text.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/base/test.h"

static int real = -1;
static FILE *file; /* stays open: making one takes longer than most uses */

void stderr_begin(void) {
    fflush(stderr);
    if (!file) file = tmpfile();
    assert_non_null(file);
    rewind(file);
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    real = dup(STDERR_FILENO);
    assert_true(real >= 0);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
}

const char *stderr_end(void) {
    static char text[4096];
    fflush(stderr);
    assert_true(dup2(real, STDERR_FILENO) >= 0);
    close(real);
    rewind(file);
    size_t nbytes = fread(text, 1, sizeof text - 1, file);
    text[nbytes] = '\0';
    return text;
}
