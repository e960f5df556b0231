/* stages_cut — which blocks of a network form a stage.
 *   idea  : the most expensive stage determines the time of a step. So the cut into consecutive ranges is taken whose
 *           most expensive stage costs least. It is found block by block: best(s, e) = min over b of max(best(s - 1,
 *           b), cost of the blocks b .. e - 1)
 *   cost  : stages x blocks^2 comparisons, once */
#include <float.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/nn/network_internal.h"
#include "ddp_procs/stages.h"

/* sums[b]: the cost of the blocks before b. best and from have (blocks + 1) entries for each number of stages. Among
 * equal cuts, takes the one with more blocks in its earlier stages. */
static void find_cut(struct ddp_cut *cut, const double *sums, int blocks, double *best, int *from) {
    int width = blocks + 1;
    for (int e = 1; e <= blocks; e++) best[e] = sums[e], from[e] = 0;
    for (int s = 1; s < cut->stages; s++) {
        for (int e = s + 1; e <= blocks; e++) {
            double *here = &best[s * width + e];
            *here = DBL_MAX;
            for (int b = s; b < e; b++) {
                double before = best[(s - 1) * width + b], last = sums[e] - sums[b];
                double dearest = before > last ? before : last;
                if (dearest > *here) continue;
                *here = dearest;
                from[s * width + e] = b;
            }
        }
    }
    cut->begins[cut->stages] = blocks;
    for (int s = cut->stages - 1; s >= 0; s--) cut->begins[s] = from[s * width + cut->begins[s + 1]];
}

int ddp_stage_of(const struct ddp_cut *cut, int block) {
    int stage = 0;
    while (block >= cut->begins[stage + 1]) stage++;
    return stage;
}

/* Finds the parameter that a layer of another stage reads, if any. False: there are several, or several reading
 * stages. */
static bool find_tie(struct ddp_tie *tie, const struct ddp_cut *cut, const ls_network *network) {
    *tie = (struct ddp_tie){0};
    for (size_t l = 0; l < network->layer_count; l++) {
        const ls_layer *layer = &network->layers[l];
        int reader = ddp_stage_of(cut, layer->block);
        for (size_t p = 0; p < layer->parameter_count; p++) {
            size_t parameter = layer->parameter_numbers[p];
            int owner = ddp_stage_of(cut, network->parameters[parameter].block);
            if (owner == reader) continue;
            if (tie->is_there && (tie->parameter != parameter || tie->reader != reader)) return false;
            *tie = (struct ddp_tie){true, parameter, owner, reader};
        }
    }
    return true;
}

ls_status ddp_cut_network(struct ddp_cut *cut, const ls_network *network, int stages) {
    int blocks = ls_network_blocks(network).end;
    struct ddp_tie tie;
    if (stages > blocks)
        return ls_fail(LS_ERR_USAGE, "--pipeline %d: the model has only %d block%s; each stage needs at least one",
                       stages, blocks, blocks == 1 ? "" : "s");
    size_t entries = (size_t)stages * (size_t)(blocks + 1);
    double *sums = calloc((size_t)blocks + 1, sizeof *sums), *best = calloc(entries, sizeof *best);
    int *from = calloc(entries, sizeof *from);
    bool fits = sums && best && from;
    cut->stages = stages;
    for (int b = 0; fits && b < blocks; b++) sums[b + 1] = sums[b] + ls_network_block_cost(network, b);
    if (fits) find_cut(cut, sums, blocks, best, from);
    free(sums);
    free(best);
    free(from);
    if (!fits) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to cut a network into stages");
    if (find_tie(&tie, cut, network)) return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED, "--pipeline %d: the stages would share more than one parameter of one stage",
                   stages);
}

struct ddp_tie ddp_tie_of(const struct ddp_cut *cut, const ls_network *network) {
    struct ddp_tie tie;
    (void)find_tie(&tie, cut, network); /* the cut has been checked */
    return tie;
}
