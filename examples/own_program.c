/* A program of one's own: samples in arrays, a network of two layers, trained by DataParallel and by DDP to the same bits. */
#include <lockstep.h>
#include <math.h>
#include <stdio.h>

enum { COUNT = 960, CLASSES = 3 };
static float inputs[COUNT][2];
static int64_t labels[COUNT];

static void fill_spiral(void) {
    for (int i = 0; i < COUNT; i++) {
        float radius = 0.1f + 0.9f * (float)i / COUNT, angle = 4 * radius + 2.0944f * (float)(i % CLASSES);
        labels[i] = i % CLASSES;
        inputs[i][0] = radius * cosf(angle);
        inputs[i][1] = radius * sinf(angle);
    }
}

static int train(ls_mode_kind mode, const char *const *options, ls_run_result *result) {
    const ls_samples samples = {.count = COUNT,
                                .channels = 2,
                                .height = 1,
                                .width = 1,
                                .inputs = inputs[0],
                                .classes = CLASSES,
                                .labels = labels};
    ls_run *run;
    int status = ls_run_create(&run, mode, options);
    if (status == 0) status = ls_run_set_samples(run, &samples, &samples);
    if (status == 0) status = ls_run_train(run, result);
    if (status != 0) fprintf(stderr, "training failed: %s\n", ls_run_error(run));
    ls_run_destroy(run);
    return status;
}

#define NETWORK "--model", "mlp:2,64,3", "--epochs", "30", "--lr", "0.01"

int main(void) {
    const char *const dp[] = {NETWORK, "--devices", "2", NULL};
    const char *const ddp[] = {NETWORK, "--spawn", "2", "--shard", "contiguous", "--allreduce", "naive", NULL};
    ls_run_result threads, processes;
    fill_spiral();
    int status = train(LS_MODE_DP, dp, &threads);
    if (status == 0) status = train(LS_MODE_DDP, ddp, &processes);
    if (status != 0) return status;
    printf("accuracy %.1f %%, weights of DataParallel %016llx, of DDP %016llx\n", 100 * processes.test_accuracy,
           (unsigned long long)threads.weights_hash, (unsigned long long)processes.weights_hash);
    return threads.weights_hash == processes.weights_hash ? 0 : 1;
}
