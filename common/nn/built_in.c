/* built_in — the network of a description: the text of a built-in model or of a file, and the sizes that follow its
 * name.
 *   idea  : all built-in models except the GPT, which the text format cannot express, are texts in one format
 *           (network_text.h) with one parser. The text of a built-in perceptron is generated from its sizes; convnet
 *           takes its input and classes from the data, and by default has those of the digits */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/nn/gpt.h"
#include "common/nn/text_internal.h"

/* --- multi-layer perceptrons: "mlp:784,256,10" --------------------------------------------------------------------- */

enum { MOST_PERCEPTRON_LAYERS = 160, MOST_FILE_NBYTES = 256 << 10 };

/* Reads the next size of the list at *at, and moves *at past it; `number`: number of layers before. */
static ls_status write_layer(FILE *out, const char *model, const char **at, int number) {
    char *end = NULL;
    long size = strtol(*at, &end, 10);
    if (end == *at || size < 1 || size > 1 << 24 || (*end != ',' && *end != '\0')) {
        return ls_fail(LS_ERR_USAGE, "model \"%s\": expected sizes from 1 to 16777216, as in mlp:784,256,10", model);
    }
    if (number > MOST_PERCEPTRON_LAYERS)
        return ls_fail(LS_ERR_USAGE, "a network cannot have more than %d layers", MOST_PERCEPTRON_LAYERS);
    if (number == 0 && *end == '\0')
        return ls_fail(LS_ERR_USAGE, "model \"%s\" has one size; expected an input and an output", model);
    if (number == 0)
        fprintf(out, "input %ld\n", size);
    else
        fprintf(out, "linear %ld name fc%d\n%s", size, number, *end == ',' ? "relu\n" : "");
    *at = *end == ',' ? end + 1 : NULL;
    return LS_OK;
}

static ls_status write_perceptron(FILE *out, const char *model, const char *sizes, bool targets) {
    ls_status status = LS_OK;
    if (targets) fputs("loss squared_error\n", out);
    for (int number = 0; status == LS_OK && sizes; number++) status = write_layer(out, model, &sizes, number);
    return status;
}

/* --- the others ------------------------------------------------------------------------------------------------------ */

/* mlp with an unused head. */
static const char branched[] = "input 784\n"
                               "linear 256 name fc1\n"
                               "relu name hidden\n"
                               "linear 10 name aux\n"
                               "linear 10 from hidden name fc2\n";

static const char convnet[] = "conv 16 kernel 5 padding 2 name conv1\n"
                              "batchnorm name bn1\n"
                              "relu\n"
                              "maxpool 2 name pool1\n"
                              "conv 32 kernel 5 padding 2 name conv2\n"
                              "batchnorm name bn2\n"
                              "relu\n"
                              "maxpool 2 name pool2\n"
                              "flatten name flatten\n"
                              "linear classes name fc\n";

/* Multi-layer perceptrons; other sizes follow a name's colon, if its last field allows them. Others are whole texts; those that
 * are open have data's sizes, if they have them at all, behind the colon. */
static const struct built_in {
    const char *name, *sizes, *text;
    bool targets, takes_sizes;
} built_in[] = {
    {"mlp", "784,256,10", NULL, false, true},
    {"wide", "4096,8192,4096", NULL, true, true},
    {"deep", "784,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,10", NULL, false,
     false},
    {"branched", NULL, branched, false, false},
    {"convnet", "1x28x28,10", convnet, false, true},
};

static const struct built_in *find_built_in(const char *description) {
    size_t length = strcspn(description, ":");
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) {
        const struct built_in *b = &built_in[i];
        bool is_named = strlen(b->name) == length && memcmp(description, b->name, length) == 0;
        if (is_named && (description[length] == '\0' || b->takes_sizes)) return b;
    }
    return NULL;
}

/* --- reading a description ---------------------------------------------------------------------------------------- */

/* "3x32x32,10" after the colon. */
static bool parse_sizes(const char *sizes, struct ls_text_value *input, int *classes) {
    const char *comma = strchr(sizes, ',');
    struct ls_text_value count = {.is_flat = false};
    *classes = 0;
    if (!ls_text_parse_shape(sizes, comma, input)) return false;
    if (comma && (!ls_text_parse_shape(comma + 1, NULL, &count) || !count.is_flat)) return false;
    *classes = count.shape.channels;
    return true;
}

/* The sizes of a file's description, after its colon; NULL if it has none. */
static const char *sizes_of_file(const char *description) {
    const char *colon = strrchr(description, ':');
    return colon && colon - description >= 4 && strncmp(colon - 4, ".net", 4) == 0 ? colon + 1 : NULL;
}

bool ls_network_file(const char *description, char *path, size_t capacity) {
    const char *sizes = sizes_of_file(description);
    size_t length = sizes ? (size_t)(sizes - 1 - description) : strlen(description);
    if (length < 5 || strncmp(description + length - 4, ".net", 4) != 0) return false;
    snprintf(path, capacity, "%.*s", (int)length, description);
    return true;
}

static const char *in_memory; /* ls_network_set_memory */

void ls_network_set_memory(const char *text) { in_memory = text; }

static ls_status read_file(struct ls_text *t, const char *path) {
    char *text;
    size_t nbytes;
    if (in_memory && strcmp(path, LS_NETWORK_IN_MEMORY) == 0)
        return ls_text_parse(t, path, LS_ERR_FORMAT, in_memory, strlen(in_memory));
    ls_status status = ls_file_read(path, MOST_FILE_NBYTES, &text, &nbytes);
    if (status == LS_OK) status = ls_text_parse(t, path, LS_ERR_FORMAT, text, nbytes);
    free(text);
    return status;
}

static ls_status read_built_in(struct ls_text *t, const struct built_in *b, const char *description) {
    char *text = NULL;
    size_t nbytes = 0;
    if (b->text) return ls_text_parse(t, b->name, LS_ERR_USAGE, b->text, strlen(b->text));
    FILE *out = open_memstream(&text, &nbytes);
    if (!out) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a network's text");
    const char *colon = strchr(description, ':');
    ls_status status = write_perceptron(out, description, colon ? colon + 1 : b->sizes, b->targets);
    fclose(out);
    if (status == LS_OK) status = ls_text_parse(t, b->name, LS_ERR_USAGE, text, nbytes);
    free(text);
    return status;
}

static ls_status fill_sizes(struct ls_text *t, const char *description, const char *sizes) {
    struct ls_text_value input;
    bool takes_classes = false;
    for (int i = 0; i < t->count; i++) takes_classes = takes_classes || t->lines[i].takes_classes;
    if (!sizes) return LS_OK;
    if (!t->takes_input && !takes_classes)
        return ls_fail(LS_ERR_USAGE, "model \"%s\" takes no sizes: its text defines all of them", description);
    if (!parse_sizes(sizes, &input, &t->classes))
        return ls_fail(LS_ERR_USAGE, "model \"%s\": expected sizes of the data, as in %.*s:3x32x32,10", description,
                       (int)(sizes - 1 - description), description);
    if (t->takes_input) t->input = input;
    return LS_OK;
}

ls_status ls_text_open(struct ls_text *t, const char *description) {
    char path[4096];
    *t = (struct ls_text){0};
    if (ls_network_file(description, path, sizeof path)) {
        ls_status status = read_file(t, path);
        return status == LS_OK ? fill_sizes(t, description, sizes_of_file(description)) : status;
    }
    const struct built_in *b = find_built_in(description);
    if (!b)
        return ls_fail(LS_ERR_USAGE,
                       "unknown model \"%s\"; expected mlp, mlp:SIZES, convnet, wide, wide:SIZES, deep, branched, gpt, "
                       "gpt:SIZES or a file that ends in .net",
                       description);
    const char *colon = strchr(description, ':');
    ls_status status = read_built_in(t, b, description);
    if (status != LS_OK || !b->text || !b->sizes) return status;
    return fill_sizes(t, colon ? description : b->name, colon ? colon + 1 : b->sizes);
}

/* --- sizes of the data ------------------------------------------------------------------------------------------------- */

ls_status ls_network_is_open(const char *description, bool *open) {
    struct ls_text t;
    const struct built_in *b = find_built_in(description);
    *open = b && b->text && b->sizes && !strchr(description, ':');
    char path[4096];
    if (!ls_network_file(description, path, sizeof path) || sizes_of_file(description)) return LS_OK;
    ls_status status = ls_text_open(&t, description);
    *open = t.takes_input;
    for (int i = 0; status == LS_OK && i < t.count; i++) *open = *open || t.lines[i].takes_classes;
    ls_text_free(&t);
    return status;
}

ls_status ls_network_complete(const char *description, struct ls_shape input, size_t classes, char *text,
                              size_t capacity) {
    const struct built_in *b = find_built_in(description);
    struct ls_text_value value = {.shape = input, .is_flat = input.height == 1 && input.width == 1};
    char shape[LS_TEXT_SHAPE_NBYTES], sizes[LS_TEXT_SHAPE_NBYTES + 16];
    snprintf(sizes, sizeof sizes, "%s,%zu", ls_text_shape(value, shape), classes);
    bool same = b && strcmp(b->sizes, sizes) == 0;
    int length = snprintf(text, capacity, "%s%s%s", description, same ? "" : ":", same ? "" : sizes);
    return length < (int)capacity ? LS_OK : ls_fail(LS_ERR_USAGE, "--model %s: the path is too long", description);
}

/* --- the network --------------------------------------------------------------------------------------------------------- */

static ls_status describe(ls_network *network, const char *description) {
    struct ls_text t;
    if (ls_gpt_is_named(description)) return ls_gpt_add_layers(network, description);
    ls_status status = ls_text_open(&t, description);
    if (status == LS_OK) status = ls_text_build(&t, network);
    ls_text_free(&t);
    return status;
}

ls_status ls_network_create(ls_network **out, const char *description) {
    *out = NULL;
    ls_network *network = ls_network_begin((struct ls_shape){0}, LS_LOSS_CROSS_ENTROPY);
    if (!network) return LS_ERR_NO_MEMORY;
    ls_status status = describe(network, description);
    if (status == LS_OK) status = ls_network_finish(network);
    if (status != LS_OK) {
        ls_network_destroy(network);
        return status;
    }
    *out = network;
    return LS_OK;
}
