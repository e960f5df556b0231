#include "common/trace/pair_map.h"

#include <stdlib.h>

#include "common/trace/trace.h"

/* Addresses differ in their middle bits, numbers in their lowest: multiplication moves both to the top (Fibonacci
 * hashing). */
static struct ls_pair_entry *slot_of(struct ls_pair_entry *entries, size_t capacity, uint64_t first, uint64_t second) {
    uint64_t mixed = (first ^ second * UINT64_C(0xff51afd7ed558ccd)) * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = (size_t)(mixed >> 20) & (capacity - 1);
    while (entries[slot].used && (entries[slot].first != first || entries[slot].second != second))
        slot = (slot + 1) & (capacity - 1);
    return &entries[slot];
}

static bool widen(struct ls_pair_map *map) {
    if (map->count * 4 < map->capacity * 3) return true;
    size_t capacity = map->capacity > 0 ? map->capacity * 2 : 64;
    struct ls_pair_entry *entries = calloc(capacity, sizeof *entries);
    if (!entries) return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].used)
            *slot_of(entries, capacity, map->entries[i].first, map->entries[i].second) = map->entries[i];
    free(map->entries);
    map->entries = entries;
    map->capacity = capacity;
    return true;
}

int *ls_pair_map_at(struct ls_pair_map *map, uint64_t first, uint64_t second) {
    struct ls_pair_entry *entry = map->count > 0 ? slot_of(map->entries, map->capacity, first, second) : NULL;
    if (entry && entry->used) return &entry->value;
    if (!widen(map)) return NULL;
    entry = slot_of(map->entries, map->capacity, first, second);
    *entry = (struct ls_pair_entry){.first = first, .second = second, .value = LS_NONE, .used = 1};
    map->count++;
    return &entry->value;
}

int ls_pair_map_find(const struct ls_pair_map *map, uint64_t first, uint64_t second) {
    if (map->count == 0) return LS_NONE;
    const struct ls_pair_entry *entry = slot_of(map->entries, map->capacity, first, second);
    return entry->used ? entry->value : LS_NONE;
}

void ls_pair_map_free(struct ls_pair_map *map) {
    free(map->entries);
    *map = (struct ls_pair_map){0};
}
