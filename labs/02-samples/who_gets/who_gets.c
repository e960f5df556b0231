/* who_gets — which samples each device and each rank gets: by torch.chunk's rule, as DataParallel cuts a batch, and by
 * the distributed sampler, as DDP shards an epoch. The program of lab 02. */
#include <inttypes.h>
#include <stdio.h>

#include "common/base/chunk.h"
#include "common/base/launcher.h"
#include "common/base/log.h"
#include "common/base/results.h"
#include "common/data/sampler.h"
#include "labs/bench/shared/settings.h"

enum { MOST_RANKS = 64, MOST_SAMPLES = 1000 };

struct settings {
    int samples, ranks, epochs;
    int64_t seed;
    bool shuffle, set_epoch, drop_last, uneven;
};

static void print_chunks(const struct settings *s) {
    printf("chunk: %d samples on %d devices:", s->samples, s->ranks);
    for (int d = 0; d < s->ranks; d++) {
        size_t begin, count;
        ls_chunk((size_t)s->samples, s->ranks, d, &begin, &count);
        printf(" %zu", count);
    }
    printf("\n");
}

/* --- the sampler ----------------------------------------------------------------------------------------------------- */

/* Unfinished samplers return indices out of range: these are printed, but not counted. */
static void print_list(const struct settings *s, int rank, const int64_t *indices, int64_t count, int *seen) {
    printf("  rank %d:", rank);
    for (int64_t i = 0; i < count; i++) {
        printf(" %" PRId64, indices[i]);
        if (indices[i] >= 0 && indices[i] < s->samples) seen[indices[i]]++;
    }
    printf("\n");
}

static void print_summary(const struct settings *s, const int *seen) {
    int twice = 0, never = 0;
    for (int i = 0; i < s->samples; i++) {
        twice += seen[i] > 1;
        never += seen[i] == 0;
    }
    printf("  seen more than once: %d; never: %d\n", twice, never);
}

static ls_status open_samplers(ls_sampler **samplers, const struct settings *s) {
    ls_status status = LS_OK;
    for (int r = 0; status == LS_OK && r < s->ranks; r++) {
        const ls_sampler_options options = {.dataset_count = s->samples,
                                            .world_size = s->ranks,
                                            .rank = r,
                                            .shuffle = s->shuffle,
                                            .drop_last = s->drop_last,
                                            .uneven = s->uneven,
                                            .seed = (uint64_t)s->seed};
        status = ls_sampler_create(&samplers[r], &options);
    }
    return status;
}

static ls_status print_epochs(const struct settings *s) {
    ls_sampler *samplers[MOST_RANKS] = {NULL};
    ls_status status = open_samplers(samplers, s);
    for (int epoch = 0; status == LS_OK && epoch < s->epochs; epoch++) {
        int seen[MOST_SAMPLES] = {0};
        printf("sampler: epoch %d\n", epoch);
        for (int r = 0; r < s->ranks; r++) {
            int64_t count;
            if (s->set_epoch) ls_sampler_set_epoch(samplers[r], epoch);
            const int64_t *indices = ls_sampler_indices(samplers[r], &count);
            print_list(s, r, indices, count, seen);
        }
        print_summary(s, seen);
    }
    for (int r = 0; r < s->ranks; r++) ls_sampler_destroy(samplers[r]);
    return status;
}

/* --- the program ----------------------------------------------------------------------------------------------------- */

static ls_status parse(struct settings *s, int argc, char **argv, bool *help) {
    /* clang-format off */
    const ls_option options[] = {
        {.kind = LS_OPTION_INT, .name = "samples", .to.number = &s->samples, .argument = "N",
         .limits = LS_BETWEEN(0, MOST_SAMPLES),
         .help = "samples of the batch that is cut, and of the data set that is sharded"},
        {.kind = LS_OPTION_INT, .name = "ranks", .to.number = &s->ranks, .argument = "N",
         .limits = LS_BETWEEN(1, MOST_RANKS), .help = "devices of DataParallel, and ranks of DDP"},
        {.kind = LS_OPTION_INT, .name = "epochs", .to.number = &s->epochs, .argument = "N",
         .limits = LS_BETWEEN(0, 1000), .help = "passes over the data set"},
        {.kind = LS_OPTION_INT64, .name = "seed", .to.big_number = &s->seed, .argument = "N", .limits = LS_AT_LEAST(0),
         .help = "of the order of the samples"},
        {.kind = LS_OPTION_SWITCH, .name = "shuffle", .to.flag = &s->shuffle, .help = "a new order each epoch"},
        {.kind = LS_OPTION_SWITCH, .name = "set-epoch", .to.flag = &s->set_epoch,
         .help = "tell the samplers which epoch begins; without it every epoch has the first one's order"},
        {.kind = LS_OPTION_FLAG, .name = "drop-last", .to.flag = &s->drop_last,
         .help = "leave out what does not divide by the ranks, rather than repeat samples"},
        {.kind = LS_OPTION_FLAG, .name = "uneven", .to.flag = &s->uneven,
         .help = "repeat none and leave none out: the first ranks get one sample more"},
    };
    /* clang-format on */
    return BENCH_PARSE(options, "Shows which samples which device and which rank gets.", argc, argv, help);
}

int main(int argc, char **argv) {
    struct settings settings = {.samples = 23, .ranks = 4, .epochs = 1, .shuffle = true, .set_epoch = true};
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&settings, argc, argv, &help);
    if (status == LS_OK && !help)
        status = ls_launcher_refuse_copies("print the same", "start the program once, without the launcher");
    if (status == LS_OK && !help) {
        print_chunks(&settings);
        status = print_epochs(&settings);
    }
    return ls_status_exit_code(ls_results_written(status));
}
