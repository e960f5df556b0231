/* The tests of a test program. The program runs each once, in the order of its file.
 *
 *     TEST(sums_are_exact) { assert_int_equal(1 + 1, 2); }
 *     TEST_IN(scratch, a_file_is_read) { ... }            between scratch_setup and scratch_teardown
 *     TEST_WITH(open_step, close_step, it_trains) { ... } between open_step and close_step; either may be NULL
 *
 * main is defined here, too. A program that needs its own main calls run_added_tests from it; a program that runs its
 * tests more than once or under other names lists them for cmocka, and defines each with TEST_CASE. */
#ifndef TESTS_BASE_TEST_H
#define TESTS_BASE_TEST_H

/* cmocka's header needs the four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

#define TEST_CASE(name) static void name(__attribute__((unused)) void **state)
#define TEST_WITH(setup, teardown, name)                                                                               \
    TEST_CASE(name);                                                                                                   \
    __attribute__((constructor)) static void add_##name(void) { add_test(#name, name, setup, teardown); }              \
    TEST_CASE(name)
#define TEST_IN(fixture, name) TEST_WITH(fixture##_setup, fixture##_teardown, name)
#define TEST(name) TEST_WITH(NULL, NULL, name)

/* Adds a test for run_added_tests to run. Call before main. */
void add_test(const char *name, CMUnitTestFunction test, CMFixtureFunction setup, CMFixtureFunction teardown);

/* Runs the added tests. Returns how many failed: main's exit status. */
int run_added_tests(void);

#endif
