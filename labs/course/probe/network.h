/* Creates networks for probes. */
#ifndef LABS_COURSE_PROBE_NETWORK_H
#define LABS_COURSE_PROBE_NETWORK_H

#include "common/nn/network_internal.h"
#include "labs/course/probe/probe.h"

/* The network that `description` names (ls_network_create). Never NULL: the probe ends if there is no memory. */
ls_network *probe_network(probe *p, const char *description);

/* A network of `count` layers on images of `input`, whose loss is cross entropy. Never NULL, likewise. */
ls_network *probe_network_of(probe *p, struct ls_shape input, const ls_layer *layers, size_t count);

#endif
