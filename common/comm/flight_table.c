/* flight_table — prints a record: first where the ranks diverged, then where each of them is.
 *
 *     rank 2 is at #118 broadcast of bn1 from rank 0, the others at #118 all_reduce of bucket 3
 *       ranks 0, 1, 3   in     #118 all_reduce of bucket 3 (203536 fp32, sum), 5.0 s
 *       rank 2          in     #118 broadcast of bn1 from rank 0 (64 fp32), 5.0 s */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/comm/comm.h"
#include "common/comm/flight.h"
#include "common/comm/reduce_kernels.h"

enum { ROWS = 16 }; /* of ranks in the same place; a screen */

/* Text, truncated at its capacity. */
struct text {
    char *at;
    size_t left;
};

static void put(struct text *text, const char *format, ...) LS_PRINTF(2, 3);
static void put(struct text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    size_t used = length < 0 ? 0 : (size_t)length < text->left ? (size_t)length : text->left - 1;
    text->at += used;
    text->left -= used;
}

/* --- an operation --------------------------------------------------------------------------------------------------- */

const char *ls_flight_label_text(char *text, size_t capacity, const char *before, const ls_flight_operation *o) {
    struct text t = {text, capacity};
    text[0] = '\0';
    if (o->label[0]) put(&t, "%s%s", before, o->label);
    if (o->label[0] && o->label_number >= 0) put(&t, " %d", o->label_number);
    return text;
}

const char *ls_flight_operation_text(char text[LS_FLIGHT_TEXT], const ls_flight_operation *o) {
    struct text t = {text, LS_FLIGHT_TEXT};
    char label[LS_FLIGHT_LABEL + 32];
    const char *preposition = ls_operation_preposition((int32_t)o->kind);
    uint64_t sequence = o->kind == LS_OPERATION_RECV ? o->received : o->sequence;
    if (o->kind <= LS_OPERATION_BARRIER) put(&t, "#%" PRIu64 " ", sequence);
    put(&t, "%s%s", ls_operation_name((int32_t)o->kind), ls_flight_label_text(label, sizeof label, " of ", o));
    if (preposition && o->root >= 0) put(&t, " %s rank %d", preposition, o->root);
    return text;
}

/* " (203536 fp32, sum)", " (4096 bytes)" */
static void put_shape(struct text *text, const ls_flight_operation *o) {
    bool reduces =
        o->kind == LS_OPERATION_ALL_REDUCE || o->kind == LS_OPERATION_REDUCE || o->kind == LS_OPERATION_REDUCE_SCATTER;
    if (o->kind == LS_OPERATION_ALLOC) put(text, " (%" PRIu64 " bytes)", o->count);
    if (o->kind >= LS_OPERATION_BARRIER) return;
    put(text, " (%" PRIu64 " %s%s%s)", o->count, ls_dtype_name((ls_dtype)o->dtype), reduces ? ", " : "",
        reduces ? ls_reduce_op_name((ls_reduce_op)o->op) : "");
}

static void put_group(struct text *text, const ls_flight_record *record, int group) {
    if (record->group_count > 1) put(text, " in %s", record->groups[group].name);
}

static void put_operation(struct text *text, const ls_flight_record *record, const ls_flight_operation *o) {
    char name[LS_FLIGHT_TEXT];
    put(text, "%s", ls_flight_operation_text(name, o));
    put_shape(text, o);
    put_group(text, record, o->group);
}

/* --- ranks ---------------------------------------------------------------------------------------------------------- */

/* Where a rank is. */
struct place {
    const char *where;                    /* "waits in" */
    const ls_flight_operation *operation; /* NULL: it has none */
    int64_t since_ms;
};

/* Whether a rank is in the operation in which it is awaited: then it has not made progress. */
static bool is_late_in(const ls_flight_record *record, int rank, const ls_flight_operation *in) {
    const ls_flight_operation *awaited = ls_flight_pending(record, record->taken_by);
    if (!record->ranks[rank].late || !awaited || awaited->group != in->group) return false;
    if (ls_operation_is_message((int)awaited->kind))
        return ls_operation_is_message((int)in->kind) && awaited->root == rank && in->root == record->taken_by;
    return awaited->kind == in->kind && awaited->sequence == in->sequence;
}

static struct place place_of(const ls_flight_record *record, int rank) {
    const ls_flight_rank *r = &record->ranks[rank];
    const ls_flight_operation *in = ls_flight_pending(record, rank), *o = in ? in : ls_flight_last(record, rank);
    struct place place = {.operation = o};
    if (o) place.since_ms = ls_flight_since_ms(record, rank, o);
    place.where = r->presence == LS_FLIGHT_ABSENT ? "never came"
                  : r->presence == LS_FLIGHT_DIED ? (in  ? "died in"
                                                     : o ? "died after"
                                                         : "died")
                  : r->presence == LS_FLIGHT_LEFT ? (o ? "left after" : "left")
                  : in && (is_late_in(record, rank, in) || ls_flight_is_stuck(record, rank)) ? "late in"
                  : in && in->state == LS_FLIGHT_ENQUEUED                                    ? "queued"
                  : in                                                                       ? "in"
                  : o                                                                        ? "after"
                                                                                             : "at the start";
    return place;
}

static bool is_same_place(const struct place *a, const struct place *b) {
    if (strcmp(a->where, b->where) != 0 || !a->operation != !b->operation) return false;
    return !a->operation ||
           (a->operation->group == b->operation->group && a->operation->sequence == b->operation->sequence &&
            ls_flight_is_same(a->operation, b->operation));
}

/* A line for all ranks that are where `rank` is; they are marked as shown. */
static void put_row(struct text *text, const ls_flight_record *record, const struct place *places, int rank,
                    bool *shown) {
    const struct place *place = &places[rank];
    bool together[LS_FLIGHT_RANKS] = {false};
    int64_t since_ms = place->since_ms;
    for (int r = rank; r < record->world_size; r++) {
        together[r] = !shown[r] && is_same_place(place, &places[r]);
        shown[r] = shown[r] || together[r];
        if (together[r] && places[r].since_ms > 0 && places[r].since_ms < since_ms) since_ms = places[r].since_ms;
    }
    char ranks[LS_RANKS_TEXT_CAPACITY];
    put(text, "  %-14s  %-10s", ls_ranks_text(ranks, together, record->world_size), place->where);
    if (place->operation) {
        put(text, " ");
        put_operation(text, record, place->operation);
        if (since_ms > 0) put(text, ", %.1f s", (double)(record->taken_ms - since_ms) * 1e-3);
    }
    put(text, "\n");
}

/* --- the table ------------------------------------------------------------------------------------------------------ */

static void put_others(struct text *text, const ls_flight_record *record, const ls_flight_difference *d) {
    const ls_flight_group *group = &record->groups[d->group];
    int odd = 0;
    if (ls_operation_is_message((int)d->found->kind)) {
        put(text, "rank %d", d->found->root);
        return;
    }
    for (int r = 0; r < record->world_size; r++) odd += d->odd[r];
    if (group->size > odd + 1) {
        put(text, "the others");
        return;
    }
    for (int r = 0; r < group->size; r++) {
        int rank = group->first + r * group->stride;
        if (rank < record->world_size && !d->odd[rank]) put(text, "rank %d", rank);
    }
}

static void put_difference(struct text *text, const ls_flight_record *record, const ls_flight_difference *d) {
    char expected[LS_FLIGHT_TEXT], found[LS_FLIGHT_TEXT], ranks[LS_RANKS_TEXT_CAPACITY];
    int odd = 0;
    for (int r = 0; r < record->world_size; r++) odd += d->odd[r];
    put(text, "%s %s", ls_ranks_text(ranks, d->odd, record->world_size), odd == 1 ? "is" : "are");
    if (d->kind == LS_FLIGHT_DIFFERS) {
        ls_flight_operation_text(expected, d->expected);
        ls_flight_operation_text(found, d->found);
        bool shapes = strcmp(expected, found) == 0 || ls_operation_is_message((int)d->found->kind);
        put(text, " at %s", found);
        if (shapes) put_shape(text, d->found);
        put(text, ", ");
        put_others(text, record, d);
        put(text, " at %s", expected);
        if (shapes) put_shape(text, d->expected);
        put_group(text, record, d->group);
    } else if (!d->expected) {
        put(text, " behind all that the records of other ranks still hold: where they diverged is not known");
        put_group(text, record, d->group);
    } else {
        put(text, d->kind == LS_FLIGHT_MISSING   ? " missing at "
                  : d->kind == LS_FLIGHT_UNKNOWN ? " no longer known to match "
                                                 : " without a match for ");
        put_operation(text, record, d->expected);
    }
    put(text, "\n");
}

const char *ls_flight_table(char text[LS_FLIGHT_TABLE], const ls_flight_record *record) {
    struct text t = {text, LS_FLIGHT_TABLE};
    bool shown[LS_FLIGHT_RANKS] = {false};
    text[0] = '\0';
    ls_flight_difference cause = ls_flight_find_cause(record);
    if (cause.kind != LS_FLIGHT_SAME) put_difference(&t, record, &cause);
    struct place places[LS_FLIGHT_RANKS];
    int rows = 0;
    for (int r = 0; r < record->world_size; r++) places[r] = place_of(record, r);
    for (int r = 0; r < record->world_size; r++) {
        if (shown[r]) continue;
        if (++rows > ROWS) {
            put(&t, "  and other ranks elsewhere; build/flight --last 1 shows each\n");
            break;
        }
        put_row(&t, record, places, r, shown);
    }
    return text;
}

const char *ls_flight_history(char text[LS_FLIGHT_HISTORY], const ls_flight_record *record, int rank, int count) {
    static const char *const states[] = {
#define ROW(name, text) text,
        LS_FLIGHT_STATE_MAP(ROW)
#undef ROW
    };
    struct text t = {text, LS_FLIGHT_HISTORY};
    const ls_flight_rank *r = &record->ranks[rank];
    text[0] = '\0';
    for (int i = r->count > count ? r->count - count : 0; i < r->count; i++) {
        const ls_flight_operation *o = &r->operations[i];
        char time[32] = "-";
        if (o->enqueued_ms > 0)
            snprintf(time, sizeof time, "%.3f s", (double)(o->enqueued_ms - record->taken_ms) * 1e-3);
        put(&t, "  %10s  %-8s  ", time, states[o->state]);
        put_operation(&t, record, o);
        put(&t, "\n");
    }
    return text;
}
