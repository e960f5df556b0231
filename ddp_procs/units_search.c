/* units_search — finds the first NaN or infinity if no rank has all parameters.
 *   idea  : a rank whose loss is not finite searches for the cause alone: the others' losses may be finite, and their
 *           backward waits for this rank's slices. So it runs the same backward, and checks each unit when it is
 *           gathered: its gathers and reductions match the others'. The first parameter that is not finite is the
 *           cause; if there is none, the activations are searched
 *   cost  : a backward, and a copy of each unit to the host
 *   fails : if another rank reports its reason first and breaks the group, this rank ends with that report */
#include <stdio.h>
#include <string.h>

#include "ddp_procs/ddp.h"
#include "ddp_procs/units.h"

struct search {
    ls_model *model;
    struct ls_hooks before; /* the units' own */
    char *place;            /* the last one found: blocks are visited in descending order */
    size_t capacity;
    bool found;
    ls_status status;
};

static void enter(void *context, int block, bool backward) {
    struct search *s = context;
    char place[128] = "";
    s->before.enter(s->before.block_context, block, backward);
    if (s->status == LS_OK) s->status = ls_model_search_block(s->model, block, place, sizeof place);
    if (s->status != LS_OK || place[0] == '\0') return;
    snprintf(s->place, s->capacity, "%s", place);
    s->found = true;
}

static void leave(void *context, int block, bool backward) {
    struct search *s = context;
    s->before.leave(s->before.block_context, block, backward);
}

ls_status ddp_units_find_nonfinite(ls_parallel *p, char *place, size_t capacity) {
    struct ddp *ddp = ddp_of(p);
    struct search s = {.model = p->model, .before = *ls_model_hooks(p->model), .place = place, .capacity = capacity};
    ls_status status = ls_model_find_nonfinite(p->model, place, capacity);
    if (status != LS_OK) return status;
    bool is_input = strcmp(place, "the input batch") == 0;
    if (!is_input) {
        ls_model_on_blocks(p->model, enter, leave, &s);
        ls_model_backward(p->model, ddp->dy, p->accumulates);
        ls_model_on_blocks(p->model, s.before.enter, s.before.leave, s.before.block_context);
    }
    size_t length = strlen(place);
    if (length > 0 && !s.found) snprintf(place + length, capacity - length, " on rank %d", p->rank);
    return s.status != LS_OK ? s.status : ls_parallel_status(p, LS_OK);
}
