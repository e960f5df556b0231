/* PyTorch's numbers in tests/golden, for tests that run in the repository's root. */
#ifndef TESTS_BASE_GOLDEN_H
#define TESTS_BASE_GOLDEN_H

#include <cjson/cJSON.h>
#include <stdint.h>

/* Parses tests/golden/NAME; fails the test if it cannot. cJSON_Delete() it. */
cJSON *golden_json(const char *name);

/* The number in an object's field, which must exist. */
int64_t golden_integer(const cJSON *object, const char *field);

/* Asserts that an array of the file contains exactly these numbers. */
void golden_expect_integers(const cJSON *array, const int64_t *values, int64_t count);

#endif
