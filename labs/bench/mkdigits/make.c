/* Chooses the digit that each sample is made from, and makes the samples. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "labs/bench/mkdigits/mkdigits.h"

enum { SAMPLES_PER_PROGRESS = 256 };

mkdigits_options mkdigits_defaults(void) {
    return (mkdigits_options){
        .source = "data/digits",
        .counts = {[LS_SPLIT_TRAIN] = 60000, [LS_SPLIT_TEST] = 10000},
        .limits = {.shift_pixels = 2, .rotation_degrees = 12, .scale = 0.12, .shear = 0.15, .noise = 8},
        .warp_test = true};
}

/* The splits draw from different generators, so that the size of one does not affect the other. */
static void seed_generator(ls_generator *generator, int64_t seed, ls_split split, const char *purpose) {
    char text[64];
    int length = snprintf(text, sizeof text, "%" PRId64 " %d %s", seed, (int)split, purpose);
    ls_generator_seed(generator, ls_hash(LS_HASH_SEED, text, (size_t)length));
}

void mkdigits_choose_sources(int64_t *source_of, int64_t count, int64_t source_count, int64_t seed, ls_split split) {
    ls_generator generator;
    seed_generator(&generator, seed, split, "order");
    ls_randperm(&generator, count, source_of);
    for (int64_t i = 0; i < count; i++) source_of[i] %= source_count;
}

/* --- the sources --------------------------------------------------------------------------------------------------------- */

struct sources {
    ls_sample_spec spec;
    size_t count, pixel_count; /* digits; pixels of one */
    uint8_t *pixels, *labels;
};

static void free_sources(struct sources *sources) {
    free(sources->pixels);
    free(sources->labels);
    *sources = (struct sources){0};
}

/* A pixel p is read as (float)p / 255, which is closer to p / 255 than to any other pixel's value. */
static ls_status copy_digits(struct sources *sources, const ls_dataset *dataset) {
    float *input = malloc(sources->pixel_count * sizeof *input);
    if (!input) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read the source digits");
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < sources->count; i++) {
        int64_t index = (int64_t)i, label = 0;
        status = ls_dataset_read(dataset, &index, 1, input, &label, NULL);
        uint8_t *pixels = sources->pixels + i * sources->pixel_count;
        for (size_t p = 0; status == LS_OK && p < sources->pixel_count; p++)
            pixels[p] = (uint8_t)lroundf(input[p] * 255);
        sources->labels[i] = (uint8_t)label;
    }
    free(input);
    return status;
}

static ls_status read_sources(struct sources *sources, const char *folder, ls_split split) {
    ls_dataset *dataset = NULL;
    ls_status status = ls_dataset_open_idx(&dataset, folder, split, DIGIT_CLASSES, LS_NORMALIZE_NONE);
    if (status != LS_OK) return status;
    sources->spec = *ls_dataset_spec(dataset);
    sources->count = ls_dataset_count(dataset);
    sources->pixel_count = ls_sample_input_count(&sources->spec);
    sources->pixels = malloc(sources->count * sources->pixel_count);
    sources->labels = malloc(sources->count);
    if (sources->pixels && sources->labels)
        status = copy_digits(sources, dataset);
    else
        status =
            ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the %zu source digits of %s", sources->count, folder);
    ls_dataset_close(dataset);
    if (status != LS_OK) free_sources(sources);
    return status;
}

/* --- the samples --------------------------------------------------------------------------------------------------------- */

struct making {
    const mkdigits_options *options;
    struct sources sources[DIGIT_SPLITS];
    digits_folder *folder;
    mkdigits_result *result;
    ls_progress progress;
};

static ls_status put_samples(struct making *m, ls_split split, const int64_t *source_of, uint8_t *pixels) {
    const struct sources *sources = &m->sources[split];
    bool warped = split == LS_SPLIT_TRAIN || m->options->warp_test;
    const ls_warp_limits limits = warped ? m->options->limits : (ls_warp_limits){0};
    const char *what = split == LS_SPLIT_TRAIN ? "training digits" : "test digits";
    ls_generator generator;
    seed_generator(&generator, m->options->seed, split, "warps");
    ls_status status = LS_OK;
    for (int64_t i = 0; status == LS_OK && i < m->options->counts[split]; i++) {
        const uint8_t *source = sources->pixels + (size_t)source_of[i] * sources->pixel_count;
        uint8_t label = sources->labels[source_of[i]];
        ls_warp warp;
        ls_warp_draw(&warp, &limits, &generator);
        ls_warp_image(&warp, source, sources->spec.height, sources->spec.width, pixels, &generator);
        status = digits_folder_put(m->folder, split, i, pixels, label, source_of[i]);
        m->result->hash = ls_hash(m->result->hash, pixels, sources->pixel_count);
        m->result->hash = ls_hash(m->result->hash, &label, 1);
        m->result->splits[split].per_class[label]++;
        if (i % SAMPLES_PER_PROGRESS == 0) ls_progress_show(&m->progress, what, i, m->options->counts[split]);
    }
    return status;
}

static ls_status make_split(struct making *m, ls_split split) {
    int64_t count = m->options->counts[split];
    int64_t *source_of = malloc((size_t)count * sizeof *source_of);
    uint8_t *pixels = malloc(m->sources[split].pixel_count);
    ls_status status = LS_OK;
    if (source_of && pixels) {
        mkdigits_choose_sources(source_of, count, (int64_t)m->sources[split].count, m->options->seed, split);
        status = put_samples(m, split, source_of, pixels);
    } else {
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the order of %" PRId64 " samples", count);
    }
    m->result->splits[split].source_count = m->sources[split].count;
    free(source_of);
    free(pixels);
    return status;
}

static ls_status read_both(struct making *m) {
    const char *folder = m->options->source;
    ls_status status = read_sources(&m->sources[LS_SPLIT_TRAIN], folder, LS_SPLIT_TRAIN);
    if (status == LS_OK) status = read_sources(&m->sources[LS_SPLIT_TEST], folder, LS_SPLIT_TEST);
    if (status != LS_OK) return status;
    const ls_sample_spec *train = &m->sources[LS_SPLIT_TRAIN].spec, *test = &m->sources[LS_SPLIT_TEST].spec;
    if (train->height == test->height && train->width == test->width) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "%s has training images of %d x %d pixels, but test images of %d x %d", folder,
                   train->height, train->width, test->height, test->width);
}

ls_status mkdigits_make(const mkdigits_options *options, mkdigits_result *result) {
    struct making m = {.options = options, .result = result, .progress = ls_progress_begin(options->quiet)};
    *result = (mkdigits_result){.hash = LS_HASH_SEED};
    ls_status status = read_both(&m);
    const ls_sample_spec *spec = &m.sources[LS_SPLIT_TRAIN].spec;
    if (status == LS_OK) status = digits_folder_open(&m.folder, options, (size_t)spec->height, (size_t)spec->width);
    if (status == LS_OK) status = make_split(&m, LS_SPLIT_TRAIN);
    if (status == LS_OK) status = make_split(&m, LS_SPLIT_TEST);
    ls_progress_end(&m.progress);
    if (status == LS_OK)
        status = digits_folder_commit(m.folder);
    else
        digits_folder_abort(m.folder);
    for (int s = 0; s < DIGIT_SPLITS; s++) free_sources(&m.sources[s]);
    return status;
}
