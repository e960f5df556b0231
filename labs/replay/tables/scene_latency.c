/* The latency of a ring: a message without contents. */
#include <string.h>

#include "labs/replay/tables/scenes.h"

/* Two numbers of ranks say what a hop costs and what comes on top; the others are rows. */
ls_status scene_latency(tables_book *book, const published *p) {
    static const char how[] =
        "replayed: nothing but the ring's formula, base + 2 (N - 1) hop, from N = 2 and 3, on node "
        "dgx-a100";
    static const char what[] = "ring latency, us";
    double two_us, three_us;
    ls_node *node = NULL;
    ls_status status = published_input(&two_us, p, what, "ring", 2);
    if (status == LS_OK) status = published_input(&three_us, p, what, "ring", 3);
    if (status == LS_OK) status = ls_node_open(&node, "dgx-a100");
    if (status != LS_OK) return status;
    tables_text(book, "The latency of a ring. Inputs: the latencies of two and three ranks, which give the cost of a "
                      "hop and a constant.");
    struct ls_node_collectives *collectives = ls_node_change_collectives(node);
    collectives->hop_us = (three_us - two_us) / 2;
    collectives->base_us = two_us - 2 * collectives->hop_us;
    struct comparison c = {.scene = "latency of a ring", .unit = "us"};
    for (int i = 0; i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        if (!figure->is_row || strcmp(figure->what, what) != 0) continue;
        double us = ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, figure->n, 8);
        scene_add_row(book, &c, figure, us, two_us, how); /* instead of free: as fast as between two */
    }
    ls_node_close(node);
    scene_summarize_without_t1(book, &c);
    return LS_OK;
}
