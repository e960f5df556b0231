#include "labs/25-missing/visits/counted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "common/data/idx_write.h"

static bool write_file(const char *folder, const char *prefix, int ndim, const size_t *dims, const void *bytes,
                       size_t nbytes) {
    ls_idx_writer *writer = NULL;
    return ls_idx_writer_open(&writer, folder, prefix, ndim, dims) == LS_OK &&
           ls_idx_writer_put(writer, bytes, nbytes) == LS_OK && ls_idx_writer_commit(writer) == LS_OK;
}

static bool write_samples(const char *folder, int samples) {
    size_t count = (size_t)samples;
    const size_t dims[] = {count, 28, 28};
    unsigned char *images = calloc(count, COUNTED_MOST), *labels = calloc(count, 1);
    for (size_t i = 0; images && labels && i < count; i++) {
        images[i * COUNTED_MOST + i] = 255;
        labels[i] = (unsigned char)(i % COUNTED_CLASSES);
    }
    bool written = images && labels && write_file(folder, "train-images", 3, dims, images, count * COUNTED_MOST) &&
                   write_file(folder, "train-labels", 1, dims, labels, count);
    free(images);
    free(labels);
    return written;
}

bool counted_write(const char *folder, int samples, const char *init) {
    static const float zeros[COUNTED_CLASSES * COUNTED_MOST];
    const ls_safetensor tensors[] = {{.name = "fc1.weight",
                                      .dtype = LS_SAFETENSOR_F32,
                                      .ndim = 2,
                                      .shape = {COUNTED_CLASSES, COUNTED_MOST},
                                      .data = zeros,
                                      .nbytes = sizeof zeros},
                                     {.name = "fc1.bias",
                                      .dtype = LS_SAFETENSOR_F32,
                                      .ndim = 1,
                                      .shape = {COUNTED_CLASSES},
                                      .data = zeros,
                                      .nbytes = COUNTED_CLASSES * sizeof *zeros}};
    return ls_safetensors_write(init, tensors, 2, NULL, 0) == LS_OK && write_samples(folder, samples);
}

bool counted_read(const char *weights, int samples, int *counts) {
    static const double each = 0.0001 * (1 - 1.0 / COUNTED_CLASSES) / COUNTED_BATCH; /* per visit, with equal outputs */
    ls_safetensors *file = NULL;
    if (ls_safetensors_open(&file, weights) != LS_OK) return false;
    const ls_safetensor *tensor = ls_safetensors_find(file, "fc1.weight");
    for (int i = 0; tensor && i < samples; i++) {
        float changed;
        size_t at = (size_t)(i % COUNTED_CLASSES) * COUNTED_MOST + (size_t)i;
        memcpy(&changed, (const char *)tensor->data + at * sizeof changed, sizeof changed);
        double visits = (double)changed / each;
        counts[i] = fabs(visits - round(visits)) < 0.15 ? (int)round(visits) : -1;
    }
    ls_safetensors_close(file);
    return tensor != NULL;
}
