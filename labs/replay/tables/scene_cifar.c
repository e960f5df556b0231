/* A small network with DataParallel and DDP: ResNet50 on the pictures of CIFAR-10, seconds an epoch. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/tables/scenes.h"

enum { CIFAR_IMAGES = 50000, CIFAR_BATCH = 256 };
#define CIFAR_SAMPLES (CIFAR_BATCH * (32.0 * 32) / (224 * 224)) /* in pictures of the workload's size */

static double steps_of(int devices) { return ceil((double)CIFAR_IMAGES / (CIFAR_BATCH * devices)); }

static ls_status cifar_epoch_s(double *epoch_s, const struct scene *scene, const char *mode, int n, bool locked) {
    double ms;
    ls_plan_mode plan = strcmp(mode, "DP") == 0 ? LS_PLAN_DP : LS_PLAN_DDP;
    struct ls_plan options = ls_plan_defaults(plan, n, scene->samples * n);
    options.gil = locked;
    options.replicate_by_collectives = true;
    ls_status status = scene_replay_ms(&ms, scene, &options);
    if (status == LS_OK) *epoch_s = ms * steps_of(n) * 1e-3;
    return status;
}

static ls_status add_cifar_rows(tables_book *book, const published *p, const struct scene *scene, double t1_s) {
    static const char how[] = "replayed: ResNet50 on pictures of 32 x 32, 256 a device, on node pcie3-4gpu, its rates "
                              "calibrated by T1; DP's threads share one lock";
    struct comparison c = {.scene = "a small network", .unit = "s"};
    ls_status status = LS_OK;
    double epoch_s, unlocked_s[2] = {NAN, NAN};
    for (int i = 0; status == LS_OK && i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        if (!figure->is_row || strcmp(figure->what, "cifar epoch, s") != 0) continue;
        status = cifar_epoch_s(&epoch_s, scene, figure->mode, figure->n, strcmp(figure->mode, "DP") == 0);
        /* free communication divides the epoch by N */
        if (status == LS_OK) scene_add_row(book, &c, figure, epoch_s, t1_s / figure->n, how);
    }
    for (int i = 0; status == LS_OK && i < 2; i++) status = cifar_epoch_s(&unlocked_s[i], scene, "DP", 2 << i, false);
    for (int i = 0; status == LS_OK && i < 2; i++)
        tables_add(book, &(struct tables_row){.quantity = "cifar epoch, s",
                                              .mode = "DP without the lock",
                                              .n = 2 << i,
                                              .reference = NAN,
                                              .ours = unlocked_s[i],
                                              .how = "replayed: the same, but each thread launches as it likes"});
    if (status == LS_OK) scene_summarize(book, &c);
    return status;
}

ls_status scene_cifar(tables_book *book, const published *p) {
    struct scene scene;
    double t1_s;
    ls_status status = published_input(&t1_s, p, "cifar epoch, s", "single", 1);
    if (status == LS_OK)
        status = scene_open(&scene, "resnet50", "pcie3-4gpu", CIFAR_SAMPLES, t1_s / steps_of(1) * 1e3, false);
    if (status != LS_OK) return status;
    tables_text(
        book,
        "A small network. Input: an epoch on one device. Missing: each of these epochs is the first of a program, with "
        "the start of loaders, contexts and NCCL in it, which no replayed step has. T1 also contains the loader's "
        "pace, which the calibration takes for the GPU's. The lock is not what is missing: below DP's rows are those "
        "without it.");
    status = add_cifar_rows(book, p, &scene, t1_s);
    scene_close(&scene);
    return status;
}
