/* ResNets with PyTorch's DDP on a DGX-1: rather large networks, with buckets and overlap.
 *
 *   hooks  : PyTorch's gradients do not lie in its buckets: for each tensor a hook runs, and the gradient is copied to the
 *            bucket and back, on one GPU, too, where nothing travels. What that costs is known for each network on one
 *            GPU, and so may be an input: (T1 with DDP - T1 without) / tensors. Communication that is free has it, too, so
 *            that the input is no merit of the prediction
 *   links  : the rings of N GPUs take the NVLinks that they have between them; two have one
 *   devices: GPUs of one kind are not equally fast, and a step takes as long as the slowest. How much they differ was
 *            measured on clusters of such GPUs, by others */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/tables/scenes.h"

enum { SAMPLES = 32 }; /* of a GPU */

#define WHISKERS 5.4 /* standard deviations between a box plot's ends: 4 x 1.349 of a normal distribution's */

struct resnet {
    const char *name;
    char what[48]; /* its figures */
    struct scene scene;
    double without_ms, with_ms; /* DDP, on one GPU */
    double tensor_us;           /* that DDP adds for each tensor */
    double one_ms;              /* with it, replayed */
};

/* What the GPUs differ by: the standard deviation of their times. */
static ls_status find_spread(double *spread, const published *p) {
    ls_status status = published_input(spread, p, "GPUs of one kind: variation of their times, share", "V100", 1);
    *spread /= WHISKERS;
    return status;
}

/* All NVLinks that GPU 0 has to the other N - 1: rings of NCCL use each in both directions. */
static double ring_GBps(const ls_node *node, int n) {
    double GBps = 0;
    for (int d = 1; d < n && d < ls_node_device_count(node); d++) {
        const struct ls_route *route = ls_node_route(node, 0, d);
        if (route->count == 1) GBps += ls_node_link(node, route->link[0])->GBps;
    }
    return GBps;
}

static ls_status replay(double *ms, const struct resnet *resnet, int n, double spread) {
    struct ls_plan options = ls_plan_defaults(LS_PLAN_DDP, n, resnet->scene.samples * n);
    options.tensor_us = resnet->tensor_us;
    options.spread = spread;
    if (n > 1) ls_node_change_collectives(resnet->scene.node)->bus_GBps = ring_GBps(resnet->scene.node, n);
    return scene_replay_ms(ms, &resnet->scene, &options);
}

static ls_status open_resnet(struct resnet *resnet, const char *name, const published *p) {
    *resnet = (struct resnet){.name = name, .one_ms = NAN};
    snprintf(resnet->what, sizeof resnet->what, "%s step, ms", name);
    ls_status status = published_input(&resnet->without_ms, p, resnet->what, "single", 1);
    if (status == LS_OK) status = published_input(&resnet->with_ms, p, resnet->what, "DDP", 1);
    if (status == LS_OK) status = scene_open(&resnet->scene, name, "dgx1-v100", SAMPLES, resnet->without_ms, false);
    if (status != LS_OK) return status;
    resnet->tensor_us = (resnet->with_ms - resnet->without_ms) * 1e3 / resnet->scene.workload->parameter_count;
    status = replay(&resnet->one_ms, resnet, 1, 0);
    if (status != LS_OK) scene_close(&resnet->scene);
    return status;
}

static void add_one_gpu(tables_book *book, const struct resnet *resnet) {
    char quantity[80];
    snprintf(quantity, sizeof quantity, "one GPU with DDP, %.47s", resnet->what);
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = "DDP",
                                          .n = 1,
                                          .reference = resnet->with_ms,
                                          .ours = resnet->one_ms,
                                          .how = "replayed: as below, on one GPU; not judged, since the time of a "
                                                 "tensor's hook is set so that it comes out"});
}

static ls_status add_rows(tables_book *book, struct comparison *c, const published *p, const struct resnet *resnet,
                          double spread) {
    static const char how[] = "replayed: 32 pictures a device, fp32, on node dgx1-v100, its rates calibrated by T1 "
                              "without DDP, its hooks by one GPU with DDP";
    for (int i = 0; i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        double ms;
        if (!figure->is_row || strcmp(figure->what, resnet->what) != 0) continue;
        ls_status status = replay(&ms, resnet, figure->n, spread);
        if (status != LS_OK) return status;
        scene_add_row(book, c, figure, ms, resnet->one_ms, how);
    }
    return LS_OK;
}

static void introduce(tables_book *book, double spread) {
    tables_text(book,
                "ResNets with DDP. Inputs: T1 without DDP, and one GPU with DDP: the difference is the cost of "
                "PyTorch's hooks and of its copies between gradients and buckets, with nothing to communicate. "
                "\"Communication is free\" is one GPU with these hooks. On two and four GPUs all networks take another "
                "3 to 4 %% longer, on eight 4 to 7 %%, however much they send: so it is no transfer. Nor do steps "
                "differ in length: ResNet50's on one GPU take 97 ms at the median and at the 95th percentile. What "
                "grows with computing and with N is the slowest of N GPUs. GPUs of one kind were found to vary by 8 %% "
                "on average; taken for the range of a box plot, which is a guess, that is a standard deviation of %.1f "
                "%%. Missing: how fast these 16 GPUs are, one by one, which was not published.",
                100 * spread);
}

ls_status scene_resnets(tables_book *book, const published *p) {
    static const char *const names[] = {"resnet50", "resnet101", "resnext50", "resnext101"};
    enum { COUNT = sizeof names / sizeof *names };
    struct comparison c = {.scene = "ResNets with DDP", .unit = "ms"};
    struct resnet resnets[COUNT];
    double spread;
    int opened = 0;
    ls_status status = find_spread(&spread, p);
    if (status != LS_OK) return status;
    introduce(book, spread);
    while (status == LS_OK && opened < COUNT) {
        status = open_resnet(&resnets[opened], names[opened], p);
        opened += status == LS_OK;
    }
    for (int i = 0; status == LS_OK && i < COUNT; i++) add_one_gpu(book, &resnets[i]);
    for (int i = 0; status == LS_OK && i < COUNT; i++) status = add_rows(book, &c, p, &resnets[i], spread);
    if (status == LS_OK) scene_summarize(book, &c);
    for (int i = 0; i < opened; i++) scene_close(&resnets[i].scene);
    return status;
}
