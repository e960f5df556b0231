#include <inttypes.h>
#include <stdio.h>

#include "common/comm/comm_internal.h"
#include "common/comm/reduce_kernels.h"

static const struct {
    const char *text;
    bool elements;
    const char *preposition;
} kinds[LS_OPERATION_COUNT] = {
#define LS_ROW(name, text, elements, preposition) {text, elements, preposition},
    LS_OPERATION_MAP(LS_ROW)
#undef LS_ROW
};

const char *ls_operation_name(int32_t kind) { return kinds[kind].text; }
const char *ls_operation_preposition(int32_t kind) { return kinds[kind].preposition; }

static bool reduces(int32_t kind) {
    return kind == LS_OPERATION_ALL_REDUCE || kind == LS_OPERATION_REDUCE || kind == LS_OPERATION_REDUCE_SCATTER;
}

/* The announcement comes from shared memory, so all its fields are checked. */
const char *ls_announcement_text(const ls_comm *comm, char text[LS_TEXT_CAPACITY], const ls_announcement *what,
                                 bool numbered) {
    if (what->kind < 0 || what->kind >= LS_OPERATION_COUNT || what->dtype < 0 || what->dtype >= LS_DTYPE_COUNT ||
        what->op < 0 || what->op >= LS_REDUCE_OP_COUNT || what->root >= comm->world_size) {
        snprintf(text, LS_TEXT_CAPACITY, "an unknown operation (damaged memory?)");
        return text;
    }
    char op[16] = "", elements[64] = "", root[32] = "", number[64] = "";
    bool host_call = what->kind > LS_OPERATION_BARRIER;
    uint64_t nbytes = what->count * (host_call ? 1 : ls_dtype_nbytes((ls_dtype)what->dtype));
    if (reduces(what->kind)) snprintf(op, sizeof op, " (%s)", ls_reduce_op_name((ls_reduce_op)what->op));
    if (kinds[what->kind].elements) {
        snprintf(elements, sizeof elements, " of %" PRIu64 " %s", what->count,
                 host_call ? "bytes" : ls_dtype_name((ls_dtype)what->dtype));
    }
    if (kinds[what->kind].preposition)
        snprintf(root, sizeof root, " %s rank %d", kinds[what->kind].preposition, ls_job_rank(comm, what->root));
    if (numbered && !host_call)
        snprintf(number, sizeof number, " (operation %" PRIu64 ", %" PRIu64 " bytes)", what->sequence, nbytes);
    snprintf(text, LS_TEXT_CAPACITY, "%s%s%s%s%s%s", kinds[what->kind].text, op, elements,
             kinds[what->kind].elements && !host_call ? " elements" : "", root, number);
    return text;
}

const char *ls_comm_ranks_text(char text[LS_RANKS_TEXT_CAPACITY], const bool *chosen, const ls_comm *comm) {
    bool named[LS_COMM_MAX_RANKS] = {false};
    for (int r = 0; r < comm->world_size; r++) named[ls_job_rank(comm, r)] = chosen[r];
    return ls_ranks_text(text, named, LS_COMM_MAX_RANKS);
}

const char *ls_ranks_text(char text[LS_RANKS_TEXT_CAPACITY], const bool *chosen, int world_size) {
    int count = 0, used = 0;
    for (int r = 0; r < world_size; r++) count += chosen[r];
    used = snprintf(text, LS_RANKS_TEXT_CAPACITY, count == 1 ? "rank" : "ranks");
    const char *separator = " ";
    for (int r = 0; r < world_size; r++) {
        if (!chosen[r]) continue;
        int first = r;
        while (r + 1 < world_size && chosen[r + 1]) r++;
        const char *format = r > first + 1 ? "%s%d-%d" : r > first ? "%s%d, %d" : "%s%d";
        used += snprintf(text + used, (size_t)(LS_RANKS_TEXT_CAPACITY - used), format, separator, first, r);
        separator = ", ";
    }
    return text;
}
