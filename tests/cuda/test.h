/* cmocka, behind the headers that it needs. */
#ifndef TESTS_CUDA_TEST_H
#define TESTS_CUDA_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The argument of a test, a setup or a teardown that has no state. */
#define NO_STATE void **state __attribute__((unused))

/* A row of cmocka's table of tests: calls run, whose state is `argument`. */
#define TEST_ROW(name, run, argument)                                                                                  \
    { name, run, NULL, NULL, argument }

#endif
