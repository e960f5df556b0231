#include "kernels/cpu/attention_layout.h"

#include "kernels/cpu/cpu.h"

static size_t round_up(size_t count, size_t multiple) { return (count + multiple - 1) / multiple * multiple; }

struct ls_attention_layout ls_attention_make_layout(const struct ls_attention_shape *s) {
    struct ls_attention_layout l = {.context = (size_t)s->context, .head = ls_attention_head(s)};
    l.columns = round_up(l.head, 16);
    l.positions = round_up(l.context, LS_ATTENTION_TILE);
    l.rows_count = l.positions * l.columns;
    l.block_count = LS_ATTENTION_TILE * l.columns;
    l.scores_count = LS_ATTENTION_TILE * (s->tiled ? LS_ATTENTION_TILE : l.positions);
    return l;
}

size_t ls_cpu_attention_workspace_nbytes(const struct ls_attention_shape *s) {
    struct ls_attention_layout l = ls_attention_make_layout(s);
    return (6 * l.rows_count + 2 * l.block_count + l.positions + 2 * l.scores_count) * sizeof(float);
}
