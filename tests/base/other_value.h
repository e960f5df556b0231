/* Options that differ from their defaults, for tests that walk a table. */
#ifndef TESTS_BASE_OTHER_VALUE_H
#define TESTS_BASE_OTHER_VALUE_H

#include "common/base/option.h"

/* Gives the row's option another value, which need not be a valid one. */
void give_other_value(const ls_option *row);

#endif
