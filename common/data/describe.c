/* describe — describes a data set in a line.
 *   idea  : hashes of a few samples, spread over the whole set, distinguish data sets of the same shape. The hash is of
 *           the inputs that training would get, so it depends on the normalization too, and for a text on the
 *           vocabulary
 *   cost  : SAMPLES_MOST samples if they are small, fewer if they are large */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/data/dataset_internal.h"

enum { SAMPLES_LEAST = 4, SAMPLES_MOST = 32, FLOATS_WANTED = 1 << 16 };

/* Buffers for `room` samples, of which `count` have been read. */
struct samples {
    size_t room, count, input_count, label_count, target_count;
    float *inputs, *targets; /* inputs: floats, or tokens, which have the same size */
    int64_t *labels;
};

static ls_status make_room(struct samples *s, const ls_dataset *dataset) {
    s->input_count = ls_sample_input_count(&dataset->spec);
    s->label_count = dataset->spec.rows > 1 ? (size_t)dataset->spec.rows : 1;
    s->target_count = dataset->spec.target_count;
    s->room = FLOATS_WANTED / (s->input_count + s->target_count + 1);
    if (s->room < SAMPLES_LEAST) s->room = SAMPLES_LEAST;
    if (s->room > SAMPLES_MOST) s->room = SAMPLES_MOST;
    s->inputs = calloc(s->room * s->input_count + 1, sizeof *s->inputs);
    s->targets = calloc(s->room * s->target_count + 1, sizeof *s->targets);
    s->labels = calloc(s->room * s->label_count + 1, sizeof *s->labels);
    if (s->inputs && s->targets && s->labels) return LS_OK;
    return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to look at %zu samples", s->room);
}

static ls_status read_stream(struct samples *s, const ls_dataset *dataset) {
    ls_cursor *cursor;
    ls_status status = ls_cursor_create(&cursor, dataset, 0, 1);
    if (status != LS_OK) return status;
    status = ls_cursor_read(cursor, SAMPLES_LEAST, s->inputs, s->labels, s->targets, &s->count);
    ls_cursor_destroy(cursor);
    return status;
}

/* The first, the last, and as many between them as fit. */
static ls_status read_spread(struct samples *s, const ls_dataset *dataset) {
    int64_t indices[SAMPLES_MOST];
    s->count = dataset->count < s->room ? dataset->count : s->room;
    for (size_t i = 0; i < s->count; i++) {
        indices[i] = s->count > 1 ? (int64_t)(i * (dataset->count - 1) / (s->count - 1)) : 0;
    }
    return ls_dataset_read(dataset, indices, s->count, s->inputs, s->labels, s->targets);
}

static uint64_t hash_samples(const struct samples *s) {
    uint64_t hash = ls_hash(LS_HASH_SEED, s->inputs, s->count * s->input_count * sizeof *s->inputs);
    hash = ls_hash(hash, s->targets, s->count * s->target_count * sizeof *s->targets);
    return ls_hash(hash, s->labels, s->count * s->label_count * sizeof *s->labels);
}

/* "1 x 28 x 28", "64 tokens" */
static void describe_input(const ls_sample_spec *spec, char *text, size_t capacity) {
    if (spec->tokens)
        snprintf(text, capacity, "%zu tokens", ls_sample_input_count(spec));
    else
        snprintf(text, capacity, "%d x %d x %d", spec->channels, spec->height, spec->width);
}

ls_status ls_dataset_describe(const ls_dataset *dataset, char *text, size_t capacity) {
    snprintf(text, capacity, "none");
    if (!dataset) return LS_OK;
    bool stream = ls_dataset_is_stream(dataset);
    struct samples samples = {0};
    ls_status status = make_room(&samples, dataset);
    if (status == LS_OK) status = stream ? read_stream(&samples, dataset) : read_spread(&samples, dataset);
    if (status == LS_OK) {
        const ls_sample_spec *spec = &dataset->spec;
        char answer[48], input[64];
        snprintf(answer, sizeof answer, spec->classes > 0 ? "in %zu classes" : "with %zu targets",
                 spec->classes > 0 ? (size_t)spec->classes : spec->target_count);
        uint64_t hash = hash_samples(&samples);
        if (spec->tokens) hash = ls_hash(hash, dataset->vocabulary, sizeof dataset->vocabulary);
        describe_input(spec, input, sizeof input);
        snprintf(text, capacity, "%s%zu samples of %s %s (sampled hash %016" PRIx64 ")", stream ? "a stream of " : "",
                 stream ? dataset->promised : dataset->count, input, answer, hash);
    }
    free(samples.inputs);
    free(samples.targets);
    free(samples.labels);
    return status;
}
