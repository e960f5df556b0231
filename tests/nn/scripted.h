/* Networks of texts with known outputs: a function of the tokens up to each position. */
#ifndef TESTS_NN_SCRIPTED_H
#define TESTS_NN_SCRIPTED_H

#include <stdint.h>

#include "common/nn/network.h"

/* Writes the outputs of the position whose tokens so far, including its own, are `seen`. */
typedef void (*scripted_outputs)(const int32_t *tokens, size_t seen, float *outputs, size_t vocabulary);

/* A network without parameters, for CPU devices; asserts. One function at a time. */
ls_network *scripted_network(int context, int vocabulary, scripted_outputs outputs);

#endif
