#include "common/comm/allreduce.h"

#include <stdio.h>
#include <string.h>

#include "common/comm/comm_internal.h"

const ls_allreduce_algorithm ls_allreduce_algorithms[] = {
#define LS_ROW(function, text, one_round, about)                                                                       \
    {.name = text,                                                                                                     \
     .description = about,                                                                                             \
     .run = ls_allreduce_##function,                                                                                   \
     .one_round_bytes = one_round,                                                                                     \
     .cost = ls_allreduce_##function##_cost},
    LS_ALLREDUCE_MAP(LS_ROW)
#undef LS_ROW
        {.name = NULL},
};

const ls_allreduce_algorithm *ls_allreduce_find(const char *name) {
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++)
        if (strcmp(row->name, name) == 0) return row;
    return NULL;
}

void ls_allreduce_names(char *text, size_t capacity) {
    size_t length = 0;
    text[0] = '\0';
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name && length < capacity; row++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%s", length > 0 ? ", " : "", row->name);
}
