#include "labs/course/probe/network.h"

ls_network *probe_network(probe *p, const char *description) {
    ls_network *network;
    probe_must(p, "a network", ls_network_create(&network, description));
    return network;
}

ls_network *probe_network_of(probe *p, struct ls_shape input, const ls_layer *layers, size_t count) {
    ls_network *network = ls_network_begin(input, LS_LOSS_CROSS_ENTROPY);
    ls_status status = network ? LS_OK : LS_ERR_NO_MEMORY;
    for (size_t l = 0; status == LS_OK && l < count; l++) status = ls_network_add(network, layers[l]);
    if (status == LS_OK) status = ls_network_finish(network);
    probe_must(p, "a network", status);
    return network;
}
