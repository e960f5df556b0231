#define _GNU_SOURCE
#include "tests/base/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct CMUnitTest added[100];
static size_t count;

void add_test(const char *name, CMUnitTestFunction test, CMFixtureFunction setup, CMFixtureFunction teardown) {
    if (count == COUNT_OF(added)) {
        fprintf(stderr, "more than %zu tests in a program: tests/base/test.c\n", count);
        exit(1);
    }
    added[count++] = (struct CMUnitTest){name, test, setup, teardown, NULL};
}

int run_added_tests(void) {
    /* A script's background jobs ignore them, and so would the programs that tests start. */
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    struct CMUnitTest tests[count]; /* cmocka takes its size */
    memcpy(tests, added, sizeof tests);
    return cmocka_run_group_tests_name(program_invocation_short_name, tests, NULL, NULL);
}

__attribute__((weak)) int main(void) { return run_added_tests(); }
