/* Many small operations under one lock: DataParallel's threads are those of one Python interpreter, which launches one
 * operation at a time. A network whose operations take less time than their launches gets slower with every thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/tables/scenes.h"

#define CONDENSENET_PARAMETERS 4.8e6 /* [K] CondenseNet-74: Huang et al. 2018, table 5 */
#define TINY_SAMPLES (32 * (32.0 * 32) / (224 * 224))

/* CondenseNet's number of parameters, over as many tensors as the stand-in has. */
static void shrink_parameters(ls_workload *workload) {
    double part = CONDENSENET_PARAMETERS / (double)ls_workload_parameters(workload);
    for (int i = 0; i < workload->parameter_count; i++)
        workload->parameter_counts[i] = (uint64_t)fmax(1, (double)workload->parameter_counts[i] * part);
}

/* A batch with n times the samples on n devices, by the one device's time. */
static ls_status growth(double *by_one, const struct scene *scene, int n, bool locked) {
    double one_ms, all_ms;
    struct ls_plan options = ls_plan_defaults(LS_PLAN_SINGLE, 1, scene->samples);
    ls_status status = scene_replay_ms(&one_ms, scene, &options);
    options = ls_plan_defaults(LS_PLAN_DP, n, scene->samples * n);
    options.gil = locked;
    options.replicate_by_collectives = true;
    if (status == LS_OK) status = scene_replay_ms(&all_ms, scene, &options);
    if (status == LS_OK) *by_one = all_ms / one_ms;
    return status;
}

/* CondenseNet is none of our workloads, so a network of as many small operations stands in: how much longer its step
 * gets is multiplied by CondenseNet's T1. What must be found is that the same work per device takes longer on four
 * than on one. */
ls_status scene_lock(tables_book *book, const published *p) {
    static const char what[] = "condensenet batch, ms";
    static const char how[] = "replayed: ResNet101 with 4.8 million parameters on 32 pictures of 32 x 32 a device "
                              "stands in for CondenseNet, on node "
                              "pcie3-4gpu as its file has it; how much longer it gets, times T1; reference: "
                              "measured by others, https://github.com/pytorch/pytorch/issues/3917";
    struct scene scene = {.samples = TINY_SAMPLES};
    double one_ms, reference_ms = NAN, by_one = NAN;
    ls_status status = published_input(&one_ms, p, what, "single", 1);
    if (status == LS_OK) status = ls_workload_open(&scene.workload, "resnet101");
    if (status == LS_OK) status = ls_node_open(&scene.node, "pcie3-4gpu");
    if (status == LS_OK) shrink_parameters(scene.workload);
    tables_text(
        book,
        "The lock. DataParallel's threads share one interpreter, whose lock lets launches through one by one: many "
        "small operations take longer on four devices than the same share of the batch on one. "
        "Input: one device's time.");
    for (int i = 0; i < p->count; i++) {
        if (p->figures[i].is_row && strcmp(p->figures[i].what, what) == 0) reference_ms = p->figures[i].value;
    }
    for (int locked = 1; status == LS_OK && locked >= 0; locked--) {
        status = growth(&by_one, &scene, 4, locked);
        if (status != LS_OK) break;
        tables_add(book, &(struct tables_row){.quantity = what,
                                              .mode = locked ? "DP" : "DP without the lock",
                                              .n = 4,
                                              .reference = locked ? reference_ms : NAN,
                                              .ours = one_ms * by_one,
                                              .how = how});
        if (locked)
            tables_add(book, &(struct tables_row){.quantity = "condensenet batch, ms; reference: one device's",
                                                  .mode = "DP",
                                                  .n = 4,
                                                  .reference = one_ms,
                                                  .ours = one_ms * by_one,
                                                  .bound = TABLES_ABOVE,
                                                  .how = how});
    }
    scene_close(&scene);
    return status;
}
