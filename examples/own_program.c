/* A program of one's own: samples in arrays, a network of two layers, trained by DataParallel and by DDP.
 *     cc own_program.c $(pkg-config --cflags --libs lockstep) -lm -o own_program && ./own_program */
#include <lockstep.h>
#include <math.h>
#include <stdio.h>

enum { COUNT = 960, CLASSES = 3 };
static float inputs[COUNT][2];
static int64_t labels[COUNT];

/* Three arms of a spiral. */
static void fill(void) {
    for (int i = 0; i < COUNT; i++) {
        int arm = (int)(labels[i] = i % CLASSES);
        float radius = 0.1f + 0.9f * (float)i / COUNT, angle = 4 * radius + 2.0944f * (float)arm;
        inputs[i][0] = radius * cosf(angle);
        inputs[i][1] = radius * sinf(angle);
    }
}

static int train(const char *name, ls_mode_kind mode, const char *count_option) {
    const char *options[] = {"--model", "mlp:2,64,3",  "--epochs", "30",           "--batch-size", "64", "--lr", "0.5",
                             "--shard", "contiguous", "--allreduce", "naive", count_option, "2", NULL};
    if (mode == LS_MODE_DP) options[8] = "--momentum", options[9] = "0", options[10] = count_option, options[11] = "2", options[12] = NULL;
    const ls_samples samples = {.count = COUNT, .channels = 2, .height = 1, .width = 1, .inputs = inputs[0], .classes = CLASSES, .labels = labels};
    ls_run *run;
    ls_run_result result = {0};
    int status = ls_run_create(&run, mode, options);
    if (status == 0) status = ls_run_set_samples(run, &samples, &samples);
    if (status == 0) status = ls_run_train(run, &result);
    if (status == 0)
        printf("%s: loss %.4f, accuracy %.1f %%, weights %016llx\n", name, result.final_loss, 100 * result.test_accuracy,
               (unsigned long long)result.weights_hash);
    else
        fprintf(stderr, "%s: %s\n", name, ls_run_error(run));
    ls_run_destroy(run);
    return status;
}

int main(void) {
    fill();
    int status = train("DataParallel", LS_MODE_DP, "--devices");
    return status ? status : train("DDP", LS_MODE_DDP, "--spawn");
}
