#include "labs/replay/engine/agenda.h"

#include <stdlib.h>

#include "common/base/log.h"

struct entry {
    double at_us;
    bool asks;
    int lane;
};

struct ls_agenda {
    int count;
    struct entry *heap; /* a heap: no entry comes before its parent, at half its index */
    int *place;         /* the index of each lane in the heap; -1 if it has no event */
};

static bool comes_before(const struct entry *a, const struct entry *b) {
    if (a->at_us != b->at_us) return a->at_us < b->at_us;
    if (a->asks != b->asks) return b->asks;
    return a->lane < b->lane;
}

static void put(ls_agenda *agenda, int place, struct entry entry) {
    agenda->heap[place] = entry;
    agenda->place[entry.lane] = place;
}

/* Moves `entry` from the free index `place` towards the root or the leaves until the heap is in order. */
static void settle(ls_agenda *agenda, int place, struct entry entry) {
    struct entry *heap = agenda->heap;
    while (place > 0 && comes_before(&entry, &heap[(place - 1) / 2])) {
        put(agenda, place, heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (int child; (child = 2 * place + 1) < agenda->count; place = child) {
        if (child + 1 < agenda->count && comes_before(&heap[child + 1], &heap[child])) child++;
        if (!comes_before(&heap[child], &entry)) break;
        put(agenda, place, heap[child]);
    }
    put(agenda, place, entry);
}

ls_status ls_agenda_create(ls_agenda **out, int lane_count) {
    ls_agenda *agenda = *out = calloc(1, sizeof *agenda);
    if (agenda) {
        agenda->heap = calloc((size_t)lane_count + 1, sizeof *agenda->heap);
        agenda->place = calloc((size_t)lane_count + 1, sizeof *agenda->place);
    }
    if (!agenda || !agenda->heap || !agenda->place) {
        ls_agenda_destroy(agenda);
        *out = NULL;
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to replay %d lanes", lane_count);
    }
    for (int lane = 0; lane < lane_count; lane++) agenda->place[lane] = -1;
    return LS_OK;
}

void ls_agenda_destroy(ls_agenda *agenda) {
    if (!agenda) return;
    free(agenda->heap);
    free(agenda->place);
    free(agenda);
}

void ls_agenda_set(ls_agenda *agenda, int lane, double at_us, bool asks) {
    int place = agenda->place[lane];
    settle(agenda, place < 0 ? agenda->count++ : place, (struct entry){.at_us = at_us, .asks = asks, .lane = lane});
}

int ls_agenda_first(const ls_agenda *agenda, double *at_us) {
    if (agenda->count == 0) return -1;
    *at_us = agenda->heap[0].at_us;
    return agenda->heap[0].lane;
}

void ls_agenda_pop(ls_agenda *agenda) {
    agenda->place[agenda->heap[0].lane] = -1;
    struct entry last = agenda->heap[--agenda->count];
    if (agenda->count > 0) settle(agenda, 0, last);
}
