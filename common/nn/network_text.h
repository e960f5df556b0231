/* Networks as text: one layer a line, in the order of the forward pass. docs/networks.md has the words, and examples.
 *
 *     input 3x32x32                      or `input data`, the default; features: `input 784`
 *     loss cross_entropy                 the default; or squared_error
 *     conv 16 kernel 3 padding 1         stride 1, padding 0 unless given
 *     batchnorm
 *     relu name stem                     the name of the layer, of its parameters and of its output
 *     conv 16 kernel 3 padding 1 bias none
 *     add stem
 *     conv 32 kernel 1 stride 2 from stem
 *     avgpool global
 *     flatten
 *     linear classes                     as many as the data have
 *
 * A description (model.h) names such a text: a built-in model, or a file whose name ends in .net. Behind it may stand the
 * data's sizes: "resnet18.net:3x32x32,10". */
#ifndef LS_NN_NETWORK_TEXT_H
#define LS_NN_NETWORK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/base/status.h"
#include "common/nn/tensor.h"

/* The path in a description of a file ("net.net", "net.net:784,10"), in the caller's `path`, cut off if it is longer. false: it
 * names no file. */
bool ls_network_file(const char *description, char *path, size_t capacity);

/* Whether the description leaves sizes to the data: *open. Reads the file, and reports what is wrong with it. */
ls_status ls_network_is_open(const char *description, bool *open);

/* The description with these sizes behind it, which ls_network_is_open has found open; `classes`: labels, or values of a
 * target. A built-in model whose sizes they are anyway stays as it is. LS_ERR_USAGE: the text has no room for it. */
ls_status ls_network_complete(const char *description, struct ls_shape input, size_t classes, char *text,
                              size_t capacity);

/* From now on the file LS_NETWORK_IN_MEMORY is this text, which is borrowed; NULL: it is a file like others. For a program that
 * trains one network at a time. */
#define LS_NETWORK_IN_MEMORY "memory.net"
void ls_network_set_memory(const char *text);

typedef enum ls_network_form { LS_NETWORK_AS_TEXT, LS_NETWORK_AS_PYTORCH } ls_network_form;

/* Prints the network: as a text, which can be read again, with shapes and numbers of parameters; or as a Python program that
 * makes the same network in PyTorch, with the same names and, for the same seed, the same initial weights. LS_ERR_USAGE: a
 * GPT, whose layers no text has words for. */
ls_status ls_network_print(FILE *out, const char *description, ls_network_form form);

#endif
