/* options_data — opens the data that --data names: images, random samples, texts.
 *   idea  : files are opened before the model, which may take its input's shape, its classes or its vocabulary from
 *           them. Random samples follow from the model, and are opened after it */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/shipped.h"
#include "common/data/text.h"
#include "common/nn/network_text.h"
#include "common/seam/options.h"

enum { RANDOM_TRAIN_SAMPLES = 60000, RANDOM_TEST_SAMPLES = 10000, RANDOM_VOCABULARY = 65 };

/* The part of --data after a prefix; NULL if the prefix is a different one. */
static const char *text_after(const ls_train_options *o, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(o->data, prefix, length) == 0 ? o->data + length : NULL;
}

static const char *stream_folder(const ls_train_options *o) { return text_after(o, "stream:"); }
static const char *random_seed(const ls_train_options *o) { return text_after(o, "random:"); }
static const char *sums_seed(const ls_train_options *o) { return text_after(o, "sums:"); }

const char *ls_train_text_files(const ls_train_options *o) { return text_after(o, "text:"); }

static bool is_memory(const ls_train_options *o) { return text_after(o, "memory:") != NULL; }

bool ls_train_is_sums(const ls_train_options *o) { return sums_seed(o) != NULL; }

bool ls_train_is_stream(const ls_train_options *o) { return stream_folder(o) != NULL; }

static bool is_text(const ls_train_options *o) { return ls_train_is_sums(o) || ls_train_text_files(o); }

const char *ls_train_data_folder(const ls_train_options *o) {
    const char *stream = stream_folder(o);
    return random_seed(o) || is_text(o) || is_memory(o) ? NULL : ls_dataset_find(stream ? stream : o->data);
}

static ls_status parse_seed(const ls_train_options *o, const char *text, uint64_t *seed) {
    char *end = NULL;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9';
    if (errno == 0 && is_number && *end == '\0') return LS_OK;
    return ls_fail(LS_ERR_USAGE, "--data %s: expected a number as the seed", o->data);
}

/* --- texts, before the model -------------------------------------------------------------------------------------- */

static ls_status open_sets(const ls_train_options *o, int context, ls_dataset **train, ls_dataset **test) {
    uint64_t seed;
    if (ls_train_text_files(o)) return ls_dataset_open_text(train, test, ls_train_text_files(o), context);
    ls_status status = parse_seed(o, sums_seed(o), &seed);
    return status == LS_OK ? ls_dataset_open_sums(train, test, seed, context) : status;
}

static ls_status complete_model(ls_train_options *o, struct ls_gpt_sizes *sizes, int vocabulary) {
    if (sizes->vocabulary == 0) sizes->vocabulary = vocabulary;
    if (sizes->vocabulary < vocabulary) {
        return ls_fail(LS_ERR_USAGE,
                       "--model %s: its vocabulary of %d is too small for the %d different bytes of --data %s; leave "
                       "it out, or give %d or more",
                       o->model, sizes->vocabulary, vocabulary, o->data, vocabulary);
    }
    ls_gpt_describe(sizes, o->completed_model, sizeof o->completed_model);
    o->model = o->completed_model;
    return LS_OK;
}

static ls_status open_text(ls_train_options *o, ls_dataset **train, ls_dataset **test) {
    struct ls_gpt_sizes sizes;
    ls_status status = ls_gpt_parse(&sizes, o->model);
    if (status != LS_OK) return status;
    if (random_seed(o)) return complete_model(o, &sizes, sizes.vocabulary > 0 ? 1 : RANDOM_VOCABULARY);
    if (!is_text(o)) {
        return ls_fail(LS_ERR_USAGE,
                       "--data %s has images, but %s takes tokens: give --data text:FILE, sums:SEED or random:SEED",
                       o->data, o->model);
    }
    status = open_sets(o, sizes.context, train, test);
    return status == LS_OK ? complete_model(o, &sizes, ls_dataset_spec(*train)->classes) : status;
}

/* --- a network that takes sizes from the data ---------------------------------------------------------------------- */

static ls_status complete_sizes(ls_train_options *o) {
    const ls_sample_spec *s = &o->sample;
    bool open;
    ls_status status = ls_network_is_open(o->model, &open);
    if (status != LS_OK || !open || s->channels == 0) return status;
    struct ls_shape input = {s->channels, s->height, s->width, s->rows};
    status = ls_network_complete(o->model, input, s->classes > 0 ? (size_t)s->classes : s->target_count,
                                 o->completed_model, sizeof o->completed_model);
    if (status == LS_OK && strcmp(o->completed_model, o->model) != 0) o->model = o->completed_model;
    return status;
}

ls_status ls_train_show_model(ls_train_options *o) {
    ls_dataset *train = NULL, *test = NULL;
    bool open;
    ls_status status = ls_network_is_open(o->model, &open);
    if (status == LS_OK && open) status = ls_train_open_first(o, &train, &test);
    ls_dataset_close(train);
    ls_dataset_close(test);
    if (status != LS_OK) return status;
    return ls_network_print(stdout, o->model, o->show_pytorch ? LS_NETWORK_AS_PYTORCH : LS_NETWORK_AS_TEXT);
}

/* --- images, before the model ------------------------------------------------------------------------------------- */

static ls_status open_stream(const char *folder, bool evaluate, int *normalize, ls_dataset **train, ls_dataset **test) {
    if (*normalize < 0) *normalize = LS_NORMALIZE_MNIST;
    if (*normalize == LS_NORMALIZE_AUTO)
        return ls_fail(LS_ERR_USAGE,
                       "--normalize auto needs all samples, which a stream does not have: give mnist or none");
    ls_normalize rule = (ls_normalize)*normalize;
    ls_status status = ls_dataset_open_stream(train, folder, LS_SPLIT_TRAIN, 0, rule);
    return status == LS_OK && evaluate ? ls_dataset_open_idx(test, folder, LS_SPLIT_TEST, 0, rule) : status;
}

static ls_status open_images(const ls_train_options *o, int *normalize, ls_dataset **train, ls_dataset **test) {
    char shipped[LS_SHIPPED_PATH];
    const char *folder = ls_train_data_folder(o);
    if (access(folder, F_OK) != 0 && ls_shipped_find(shipped, folder))
        folder = shipped; /* data/digits, from anywhere */
    if (ls_train_is_stream(o)) return open_stream(folder, o->evaluate, normalize, train, test);
    return ls_dataset_open_folder(train, o->evaluate ? test : NULL, folder, normalize);
}

/* Sets the options that follow from the opened data. */
static void note_data(ls_train_options *o, const ls_dataset *train, const ls_dataset *test) {
    o->sample = *ls_dataset_spec(train);
    if (!ls_train_data_folder(o)) return;
    if (!ls_dataset_is_stream(train))
        ls_dataset_describe_normalization(train, o->normalization, sizeof o->normalization);
    if (!test) o->evaluate = false; /* a folder of arrays may lack test samples */
}

/* Opens the arrays of a program that uses the library. */
static ls_status open_memory(const ls_train_options *o, ls_dataset **train, ls_dataset **test) {
    const struct ls_embedding *embedding = o->embedding;
    if (!embedding || embedding->train.count == 0)
        return ls_fail(LS_ERR_USAGE, "--data %s needs samples in memory, which only programs that use the library have",
                       o->data);
    ls_status status = ls_dataset_from_memory(train, &embedding->train);
    return status == LS_OK && embedding->test.count > 0 ? ls_dataset_from_memory(test, &embedding->test) : status;
}

static ls_status close_unless(ls_status status, ls_dataset **train, ls_dataset **test) {
    if (status == LS_OK) return status;
    ls_dataset_close(*train);
    ls_dataset_close(*test);
    *train = *test = NULL;
    return status;
}

ls_status ls_train_open_first(ls_train_options *o, ls_dataset **train, ls_dataset **test) {
    ls_status status = LS_OK;
    *train = *test = NULL;
    if (ls_gpt_is_named(o->model))
        status = open_text(o, train, test);
    else if (is_memory(o))
        status = open_memory(o, train, test);
    else if (ls_train_data_folder(o))
        status = open_images(o, &o->normalize, train, test);
    if (status == LS_OK && *train) note_data(o, *train, *test);
    if (status == LS_OK && !ls_gpt_is_named(o->model)) status = complete_sizes(o);
    return close_unless(status, train, test);
}

/* --- after the model ---------------------------------------------------------------------------------------------- */

ls_sample_spec ls_train_sample_spec(const ls_model *model) {
    struct ls_shape input = ls_model_input(model);
    ls_sample_spec spec = {.channels = input.channels,
                           .height = input.height,
                           .width = input.width,
                           .rows = input.rows,
                           .tokens = ls_network_takes_integers(ls_model_network(model))};
    if (ls_model_loss(model) == LS_LOSS_CROSS_ENTROPY) {
        spec.classes = (int)ls_shape_row_count(ls_model_output(model));
    } else {
        spec.target_count = ls_model_outputs(model);
    }
    return spec;
}

size_t ls_train_sample_tokens(const ls_model *model) {
    ls_sample_spec spec = ls_train_sample_spec(model);
    return spec.tokens ? ls_sample_input_count(&spec) : 0;
}

static ls_status open_random(const ls_train_options *o, const ls_model *model, ls_dataset **train, ls_dataset **test) {
    uint64_t seed;
    ls_status status = parse_seed(o, random_seed(o), &seed);
    if (o->unread) return status;
    ls_sample_spec spec = ls_train_sample_spec(model);
    if (status == LS_OK) status = ls_dataset_random(train, seed, RANDOM_TRAIN_SAMPLES, &spec);
    if (status == LS_OK && o->evaluate) status = ls_dataset_random(test, seed + 1, RANDOM_TEST_SAMPLES, &spec);
    return status;
}

static ls_status check_fit(const ls_dataset *dataset, const ls_model *model, const char *path) {
    const ls_sample_spec *spec = ls_dataset_spec(dataset), wanted = ls_train_sample_spec(model);
    size_t taken = ls_sample_input_count(&wanted), there = ls_sample_input_count(spec), sample;
    if (taken != there) {
        bool labels = spec->classes > 0;
        return ls_fail(
            LS_ERR_INVALID,
            "the samples of %s have %d x %d x %d = %zu values, but the model takes %zu: give --model %s:%zu,256,%zu",
            path, spec->channels, spec->height, spec->width, there, taken, labels ? "mlp" : "wide", there,
            labels ? (size_t)spec->classes : spec->target_count);
    }
    if (wanted.classes == 0 && spec->classes > 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%s has labels, but the model is trained on target vectors; use --data random:SEED", path);
    }
    if (wanted.classes > 0 && spec->classes == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%s has target vectors, but the model is trained on labels: save int64 labels, or "
                       "use --model wide:%zu,256,%zu",
                       path, there, spec->target_count);
    }
    if (wanted.target_count != spec->target_count) {
        return ls_fail(LS_ERR_INVALID, "%s has target vectors of %zu values, but the model gives %zu", path,
                       spec->target_count, wanted.target_count);
    }
    if (wanted.classes == 0) return LS_OK;
    int64_t label = ls_dataset_largest_label(dataset, &sample);
    if (label < wanted.classes) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "%s: label %lld of sample %zu is out of range 0 to %d: the model has %d outputs",
                   path, (long long)label, sample, wanted.classes - 1, wanted.classes);
}

ls_status ls_train_open_data(const ls_train_options *o, const ls_model *model, ls_dataset **train, ls_dataset **test) {
    const char *folder = is_memory(o) ? "the program" : ls_train_data_folder(o);
    ls_status status = LS_OK;
    int normalize = o->normalize;
    if (*train && !folder) return LS_OK; /* a text, which has completed the model */
    if (random_seed(o))
        status = open_random(o, model, train, test);
    else if (!folder)
        status = ls_fail(LS_ERR_USAGE, "--data %s is a text, but %s takes images: give --model gpt", o->data, o->model);
    else if (!*train)
        status = is_memory(o) ? open_memory(o, train, test) : open_images(o, &normalize, train, test);
    if (status == LS_OK && folder) status = check_fit(*train, model, folder);
    if (status == LS_OK && folder && *test) status = check_fit(*test, model, folder);
    return close_unless(status, train, test);
}
