/* Predicts the memory of a device while a network is trained, from sizes that are counted on one device and how many of
 * each it holds. */
#ifndef LABS_09_MEMORY_WHO_HOLDS_PREDICT_H
#define LABS_09_MEMORY_WHO_HOLDS_PREDICT_H

#include "common/device/device.h"

typedef enum holds_mode { HOLDS_SINGLE, HOLDS_DP, HOLDS_DDP } holds_mode;

/* Bytes of one of each. Tensors fill whole lines of 64 bytes, gaps included. */
struct holds_sizes {
    size_t parameters; /* all parameters; the gradients and each of the optimizer's moments have the same size */
    size_t buffers;    /* batch norm's running statistics: neither gradients nor moments */
    size_t update;     /* an optimizer's memory without its moments: the list of the tensors, the state of its update */
    size_t input, answer, output; /* of a sample: its picture, its label or target, its outputs (fp32) */
    size_t activations; /* of a sample: what the layers keep from forward to backward, and what backward needs */
    size_t statistics;  /* what layers keep independently of the number of samples */
    size_t scratch;     /* workspace of a model's convolutions */
    size_t losses;      /* workspace of the device that computes the loss: room for the losses of some steps */
};

struct holds_run {
    holds_mode mode;
    int devices;    /* 1 with HOLDS_SINGLE */
    size_t batch;   /* samples of a step over all devices; at least one for each */
    size_t moments; /* of the optimizer: SGD none, with momentum 1, Adam and AdamW 2 */
    struct holds_sizes sizes;
};

struct holds_bytes {
    size_t of[LS_MEMORY_COUNT]; /* by ls_memory_category */
};

/* Predicts the memory of device `device` (a rank of DDP has one) from the first step on. Inputs have one place, as on
 * devices whose host does not run ahead (ls_device_runs_behind). DataParallel's output device is device 0. */
struct holds_bytes holds_predict(const struct holds_run *run, int device);

#endif
