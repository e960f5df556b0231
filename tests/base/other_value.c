#define _GNU_SOURCE
#include "tests/base/other_value.h"

#include <math.h>

void give_other_value(const ls_option *row) {
    switch (row->kind) {
    case LS_OPTION_FLAG:
    case LS_OPTION_SWITCH: *row->to.flag = !*row->to.flag; break;
    case LS_OPTION_INT:
    case LS_OPTION_CHOICE: *row->to.number = *row->to.number == 0; break;
    case LS_OPTION_INT64: *row->to.big_number += 1; break;
    case LS_OPTION_BYTES: *row->to.nbytes += 1; break;
    case LS_OPTION_DOUBLE: *row->to.real = nextafter(*row->to.real, INFINITY); break;
    case LS_OPTION_STRING: *row->to.text = "another"; break;
    case LS_OPTION_INT_LIST: row->to.list->values[row->to.list->count++] = 7; break;
    default: break;
    }
}
