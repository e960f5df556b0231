/* Options that differ from their defaults, for tests that walk a table. */
#ifndef TESTS_BASE_OTHER_VALUE_H
#define TESTS_BASE_OTHER_VALUE_H

#include "common/base/option.h"

/* Sets the row's option to another value, which need not be valid. */
void give_other_value(const ls_option *row);

#endif
