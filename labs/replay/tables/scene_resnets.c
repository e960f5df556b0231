/* ResNets with PyTorch's DDP on a DGX-1: rather large networks, with buckets and overlap.
 *
 * PyTorch's gradients do not lie in its buckets: for each tensor a hook runs, and the gradient is copied to the bucket
 * and back, on one GPU, too, where nothing travels. What that costs is known for ResNet50 on one GPU, and so may be an
 * input: (T1 with DDP - T1 without) / tensors, taken for both networks. Communication that is free has it, too, so that
 * the input is no merit of the prediction. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/tables/scenes.h"

enum { SAMPLES = 32 }; /* of a GPU */

/* What PyTorch's DDP costs on one GPU. */
struct hooks {
    double without_ms, with_ms; /* ResNet50's step */
    int tensors;
    double tensor_us; /* of each of them */
};

static ls_status find_hooks(struct hooks *hooks, const published *p) {
    static const char what[] = "resnet50 step, ms";
    ls_workload *workload = NULL;
    ls_status status = published_input(&hooks->without_ms, p, what, "single", 1);
    if (status == LS_OK) status = published_input(&hooks->with_ms, p, what, "DDP", 1);
    if (status == LS_OK) status = ls_workload_open(&workload, "resnet50");
    if (status != LS_OK) return status;
    hooks->tensors = workload->parameter_count;
    hooks->tensor_us = (hooks->with_ms - hooks->without_ms) * 1e3 / hooks->tensors;
    ls_workload_close(workload);
    return LS_OK;
}

struct resnet {
    char what[48]; /* its figures */
    struct scene scene;
    double one_ms; /* with DDP, on one GPU */
};

static ls_status replay(double *ms, const struct scene *scene, int n, const struct hooks *hooks) {
    struct ls_build_options options = ls_build_defaults(LS_BUILD_DDP, n, scene->samples * n);
    options.tensor_us = hooks->tensor_us;
    return scene_replay_ms(ms, scene, &options);
}

static ls_status open_resnet(struct resnet *resnet, const char *name, const published *p, const struct hooks *hooks) {
    double t1_ms;
    *resnet = (struct resnet){.one_ms = NAN};
    snprintf(resnet->what, sizeof resnet->what, "%s step, ms", name);
    ls_status status = published_input(&t1_ms, p, resnet->what, "single", 1);
    if (status == LS_OK) status = scene_open(&resnet->scene, name, "dgx1-v100", SAMPLES, t1_ms, false);
    if (status != LS_OK) return status;
    status = replay(&resnet->one_ms, &resnet->scene, 1, hooks);
    if (status != LS_OK) scene_close(&resnet->scene);
    return status;
}

/* One GPU with DDP: an input for ResNet50, and for others (reference NAN) what the hooks make of T1. */
static void add_one_gpu(tables_book *book, const struct resnet *resnet, double reference_ms) {
    char quantity[80];
    snprintf(quantity, sizeof quantity, "one GPU with DDP, %.47s", resnet->what);
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = "DDP",
                                          .n = 1,
                                          .reference = reference_ms,
                                          .ours = resnet->one_ms,
                                          .how = "replayed: as below, on one GPU; not judged, since the time of a "
                                                 "tensor's hook is set so that ResNet50's comes out"});
}

static ls_status add_rows(tables_book *book, struct comparison *c, const published *p, const struct resnet *resnet,
                          const struct hooks *hooks) {
    static const char how[] = "replayed: 32 pictures a device, fp32, on node dgx1-v100, its rates calibrated by T1 "
                              "without DDP, its hooks by ResNet50 on one GPU";
    for (int i = 0; i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        double ms;
        if (!figure->is_row || strcmp(figure->what, resnet->what) != 0) continue;
        ls_status status = replay(&ms, &resnet->scene, figure->n, hooks);
        if (status != LS_OK) return status;
        scene_add_row(book, c, figure, ms, resnet->one_ms, how);
    }
    return LS_OK;
}

static void introduce(tables_book *book, const struct hooks *hooks) {
    tables_text(
        book,
        "ResNets with DDP. Inputs: T1 without DDP, and ResNet50 on one GPU with DDP, %g ms instead of %g. The "
        "difference "
        "is the cost of PyTorch's hooks and of its copies between gradients and buckets, with nothing to communicate: "
        "%.1f us for each of %d tensors. ResNet101 gets the same cost per tensor. \"Communication is free\" is one GPU "
        "with "
        "these hooks. Missing: ResNet50's published step takes another 3 ms from two GPUs on, and 4 ms with 16. "
        "Transfers "
        "do not explain that: the replay hides most of them behind backward, and they would grow more with N. Waiting "
        "for "
        "the slowest rank would grow about like that (table 6 has it), but one GPU's spread of step times was not "
        "published. What else DDP does with more than one rank has no published figure, and is not modelled.",
        hooks->with_ms, hooks->without_ms, hooks->tensor_us, hooks->tensors);
}

ls_status scene_resnets(tables_book *book, const published *p) {
    static const char *const names[] = {"resnet50", "resnet101"};
    enum { COUNT = sizeof names / sizeof *names };
    struct comparison c = {.scene = "ResNets with DDP", .unit = "ms"};
    struct resnet resnets[COUNT];
    struct hooks hooks;
    int opened = 0;
    ls_status status = find_hooks(&hooks, p);
    if (status != LS_OK) return status;
    introduce(book, &hooks);
    while (status == LS_OK && opened < COUNT) {
        status = open_resnet(&resnets[opened], names[opened], p, &hooks);
        opened += status == LS_OK;
    }
    for (int i = 0; status == LS_OK && i < COUNT; i++) add_one_gpu(book, &resnets[i], i == 0 ? hooks.with_ms : NAN);
    for (int i = 0; status == LS_OK && i < COUNT; i++) status = add_rows(book, &c, p, &resnets[i], &hooks);
    if (status == LS_OK) scene_summarize(book, &c);
    for (int i = 0; i < opened; i++) scene_close(&resnets[i].scene);
    return status;
}
