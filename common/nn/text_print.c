/* text_print — prints a network's text with all sizes filled in, and the same network as a PyTorch program.
 *   text   : the output can be read back; sizes of the data are filled in, and a comment after each line has the
 *            shape of its output and the number of its parameters
 *   PyTorch: a chain becomes an nn.Sequential, anything else a module with a forward method. Modules are created in the
 *            order of the lines, so that after torch.manual_seed(seed) their weights are lockstep's for --seed. A name
 *            with dots is a path of modules, so that the state dict has the text's names */
#include <string.h>

#include "common/base/log.h"
#include "common/nn/gpt.h"
#include "common/nn/text_internal.h"

/* --- as text ------------------------------------------------------------------------------------------------------------ */

static size_t parameters_of(const ls_layer *layer) {
    size_t count = 0;
    for (size_t p = 0; p < layer->parameter_count; p++) count += layer->parameters[p].count;
    return count;
}

static const char *name_of(const struct ls_text *t, int line) {
    return line == LS_TEXT_INPUT ? "input" : t->lines[line].name;
}

/* Writes the line's words, without its comment. */
static void write_words(const struct ls_text *t, int i, char *text, size_t capacity) {
    const struct ls_text_line *line = &t->lines[i];
    char options[96] = "", from[48] = "", name[48] = "";
    char stride[24] = "", padding[24] = "";
    if (line->stride > 1) snprintf(stride, sizeof stride, " stride %d", line->stride);
    if (line->padding > 0) snprintf(padding, sizeof padding, " padding %d", line->padding);
    if (line->word == LS_WORD_CONV)
        snprintf(options, sizeof options, " %d kernel %d%s%s", line->units, line->kernel, stride, padding);
    if (line->word == LS_WORD_LINEAR) snprintf(options, sizeof options, " %d", line->units);
    if (line->word == LS_WORD_MAXPOOL) snprintf(options, sizeof options, " %d", line->kernel);
    if (line->word == LS_WORD_AVGPOOL) snprintf(options, sizeof options, " global");
    if (line->word == LS_WORD_ADD) snprintf(options, sizeof options, " %s", name_of(t, line->adds));
    if (line->reads != i - 1) snprintf(from, sizeof from, " from %s", name_of(t, line->reads));
    if (line->name[0] < '0' || line->name[0] > '9') snprintf(name, sizeof name, " name %s", line->name);
    snprintf(text, capacity, "%s%s%s%s%s", ls_text_words[line->word], options, line->no_bias ? " bias none" : "", from,
             name);
}

static void print_text(FILE *out, const struct ls_text *t, const ls_network *network, const char *description) {
    char shape[LS_TEXT_SHAPE_NBYTES], words[256];
    size_t total = 0;
    for (size_t p = 0; p < network->parameter_count; p++) total += network->parameters[p].tensor.count;
    fprintf(out, "# %s: %zu parameters in %zu tensors, %d block%s\n", description, total, network->parameter_count,
            network->block_count, network->block_count == 1 ? "" : "s");
    fprintf(out, "input %s\nloss %s\n", ls_text_shape(t->input, shape),
            t->loss == LS_LOSS_CROSS_ENTROPY ? "cross_entropy" : "squared_error");
    for (int i = 0; i < t->count; i++) {
        const struct ls_text_line *line = &t->lines[i];
        size_t parameters = line->is_taken_along ? 0 : parameters_of(&network->layers[line->layer]);
        write_words(t, i, words, sizeof words);
        fprintf(out, "%-71s # %s", words, ls_text_shape(line->value, shape));
        if (parameters > 0) fprintf(out, ", %zu parameters", parameters);
        fprintf(out, "\n");
    }
}

/* --- as PyTorch --------------------------------------------------------------------------------------------------------- */

static void print_module(FILE *out, const struct ls_text *t, int i) {
    const struct ls_text_line *line = &t->lines[i];
    struct ls_text_value in = line->reads == LS_TEXT_INPUT ? t->input : t->lines[line->reads].value;
    switch (line->word) {
    case LS_WORD_CONV:
        fprintf(out, "nn.Conv2d(%d, %d, %d, stride=%d, padding=%d%s)", in.shape.channels, line->units, line->kernel,
                line->stride, line->padding, line->no_bias ? ", bias=False" : "");
        break;
    case LS_WORD_BATCHNORM: fprintf(out, "nn.BatchNorm%s(%d)", in.is_flat ? "1d" : "2d", in.shape.channels); break;
    case LS_WORD_RELU: fprintf(out, "nn.ReLU()"); break;
    case LS_WORD_MAXPOOL: fprintf(out, "nn.MaxPool2d(%d)", line->kernel); break;
    case LS_WORD_AVGPOOL: fprintf(out, "nn.AdaptiveAvgPool2d(1)"); break;
    case LS_WORD_FLATTEN: fprintf(out, "nn.Flatten()"); break;
    case LS_WORD_LINEAR:
        fprintf(out, "nn.Linear(%d, %d%s)", in.shape.channels, line->units, line->no_bias ? ", bias=False" : "");
        break;
    default: break;
    }
}

static bool is_chain(const struct ls_text *t) {
    bool chain = true;
    for (int i = 0; i < t->count; i++)
        chain = chain && t->lines[i].reads == i - 1 && t->lines[i].adds == LS_TEXT_NOTHING &&
                !strchr(t->lines[i].name, '.');
    return chain;
}

static void print_chain(FILE *out, const struct ls_text *t) {
    fprintf(out, "from collections import OrderedDict\n\nfrom torch import nn\n\n\ndef make():\n"
                 "    return nn.Sequential(OrderedDict([\n");
    for (int i = 0; i < t->count; i++) {
        fprintf(out, "        (\"%s\", ", t->lines[i].name);
        print_module(out, t, i);
        fprintf(out, "),\n");
    }
    fprintf(out, "    ]))\n");
}

static const char *variable(int line, char text[16]) {
    snprintf(text, 16, line == LS_TEXT_INPUT ? "x" : "v%d", line);
    return text;
}

static void print_graph(FILE *out, const struct ls_text *t) {
    char a[16], b[16], c[16];
    fprintf(out, "from torch import nn\n\n\nclass Network(nn.Module):\n    def __init__(self):\n"
                 "        super().__init__()\n");
    for (int i = 0; i < t->count; i++) {
        if (t->lines[i].word == LS_WORD_ADD) continue;
        fprintf(out, "        self.put(\"%s\", ", t->lines[i].name);
        print_module(out, t, i);
        fprintf(out, ")\n");
    }
    fprintf(out, "\n    def put(self, path, module):\n        *folders, name = path.split(\".\")\n        at = self\n"
                 "        for folder in folders:\n            if not hasattr(at, folder):\n"
                 "                at.add_module(folder, nn.Module())\n            at = getattr(at, folder)\n"
                 "        at.add_module(name, module)\n\n    def forward(self, x):\n"
                 "        m = self.get_submodule\n");
    for (int i = 0; i < t->count; i++) {
        const struct ls_text_line *line = &t->lines[i];
        if (line->word == LS_WORD_ADD)
            fprintf(out, "        %s = %s + %s\n", variable(i, a), variable(line->reads, b), variable(line->adds, c));
        else
            fprintf(out, "        %s = m(\"%s\")(%s)\n", variable(i, a), line->name, variable(line->reads, b));
    }
    fprintf(out, "        return %s\n\n\ndef make():\n    return Network()\n", variable(t->count - 1, a));
}

/* --- both ---------------------------------------------------------------------------------------------------------------- */

static void print(FILE *out, const struct ls_text *t, const ls_network *network, const char *description,
                  ls_network_form form) {
    char shape[LS_TEXT_SHAPE_NBYTES];
    if (form == LS_NETWORK_AS_TEXT) {
        print_text(out, t, network, description);
        return;
    }
    fprintf(out, "# %s: takes %s; the loss is %s of make()'s output\n", description, ls_text_shape(t->input, shape),
            t->loss == LS_LOSS_CROSS_ENTROPY ? "nn.CrossEntropyLoss" : "nn.MSELoss");
    if (is_chain(t))
        print_chain(out, t);
    else
        print_graph(out, t);
}

ls_status ls_network_print(FILE *out, const char *description, ls_network_form form) {
    struct ls_text t;
    if (ls_gpt_is_named(description))
        return ls_fail(LS_ERR_USAGE, "%s cannot be printed as a text: embeddings and attention have no words",
                       description);
    ls_network *network = ls_network_begin((struct ls_shape){0}, LS_LOSS_CROSS_ENTROPY);
    if (!network) return LS_ERR_NO_MEMORY;
    ls_status status = ls_text_open(&t, description);
    if (status == LS_OK) status = ls_text_build(&t, network);
    if (status == LS_OK) print(out, &t, network, description, form);
    ls_text_free(&t);
    ls_network_destroy(network);
    return status;
}
