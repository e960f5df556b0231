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
 *     linear classes                     as many as the data has
 *
 * A description (model.h) names such a text: a built-in model, or a file whose name ends in .net. The data's sizes may
 * follow: "resnet18.net:3x32x32,10". */
#ifndef LS_NN_NETWORK_TEXT_H
#define LS_NN_NETWORK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/base/status.h"
#include "common/nn/tensor.h"

/* Copies the path of a description that names a file ("net.net", "net.net:784,10") to `path`, truncated if too long.
 * False: not a file. */
bool ls_network_file(const char *description, char *path, size_t capacity);

/* Sets *open if the description leaves sizes to the data. Reads the file and reports its faults. */
ls_status ls_network_is_open(const char *description, bool *open);

/* Appends the data's sizes to an open description; `classes`: labels, or values of a target. A built-in model that has
 * these sizes already is unchanged. LS_ERR_USAGE: it does not fit into the text. */
ls_status ls_network_complete(const char *description, struct ls_shape input, size_t classes, char *text,
                              size_t capacity);

/* Makes this text, which is borrowed, the content of the file LS_NETWORK_IN_MEMORY; NULL: an ordinary file again. For a
 * program that trains one network at a time. */
#define LS_NETWORK_IN_MEMORY "memory.net"
void ls_network_set_memory(const char *text);

typedef enum ls_network_form { LS_NETWORK_AS_TEXT, LS_NETWORK_AS_PYTORCH } ls_network_form;

/* Prints the network: as a text that can be read again, with shapes and numbers of parameters; or as a Python program
 * that makes the same network in PyTorch, with the same names and, for the same seed, the same initial weights.
 * LS_ERR_USAGE for a GPT, whose layers the text format cannot express. */
ls_status ls_network_print(FILE *out, const char *description, ls_network_form form);

#endif
