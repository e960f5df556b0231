/* A hash table from pairs of numbers to ints: (stream, number of its work) to a record, (event, ticket) to the task
 * that completes the event. Private to common/trace. */
#ifndef LS_TRACE_PAIR_MAP_H
#define LS_TRACE_PAIR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_pair_entry {
    uint64_t first, second;
    int value, used;
};

/* Zero-filled: empty. */
struct ls_pair_map {
    struct ls_pair_entry *entries; /* capacity: a power of 2, at most 3/4 of it in use */
    size_t capacity, count;
};

/* The address of the pair's value, added with the value LS_NONE if new; NULL: no memory. Valid until the next call. */
int *ls_pair_map_at(struct ls_pair_map *map, uint64_t first, uint64_t second);

/* The pair's value, or LS_NONE. */
int ls_pair_map_find(const struct ls_pair_map *map, uint64_t first, uint64_t second);

void ls_pair_map_free(struct ls_pair_map *map);

#endif
