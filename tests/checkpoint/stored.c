#include "tests/checkpoint/stored.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"

static ls_safetensors *open_run(const char *run) {
    char path[256];
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", run);
    ls_safetensors *file = NULL;
    return ls_safetensors_open(&file, path) == LS_OK ? file : NULL;
}

static const ls_safetensor *find(const ls_safetensors *file, const char *prefix, const struct ls_tensor *tensor) {
    char name[128];
    snprintf(name, sizeof name, "%s%s", prefix, tensor->name);
    const ls_safetensor *stored = ls_safetensors_find(file, name);
    return stored && stored->nbytes == tensor->count * sizeof(float) ? stored : NULL;
}

/* The whole tensor, even if the model has only a part of it. */
static const struct ls_tensor *tensor_at(const ls_model *model, size_t index) {
    return ls_parameters_whole(ls_model_tensors(model), index);
}

bool stored_load(const char *run, const char *prefix, ls_model *model) {
    ls_safetensors *file = open_run(run);
    bool good = file != NULL;
    for (size_t t = 0; good && t < ls_model_parameter_count(model) + ls_model_buffer_count(model); t++) {
        const ls_safetensor *stored = find(file, prefix, tensor_at(model, t));
        good = stored && ls_parameters_write(ls_model_tensors(model), t, stored->data) == LS_OK;
    }
    ls_safetensors_close(file);
    return good;
}

bool stored_write_weights(const char *run, const char *prefix, const char *path) {
    ls_safetensors *file = open_run(run);
    ls_safetensor tensors[64];
    size_t count = 0, length = strlen(prefix);
    for (size_t t = 0; file && t < ls_safetensors_count(file) && count < 64; t++) {
        const ls_safetensor *stored = ls_safetensors_at(file, t);
        if (strncmp(stored->name, prefix, length) != 0) continue;
        tensors[count] = *stored;
        tensors[count++].name = stored->name + length;
    }
    bool good = count > 0 && ls_safetensors_write(path, tensors, count, NULL, 0) == LS_OK;
    ls_safetensors_close(file);
    return good;
}

/* --- differences ------------------------------------------------------------------------------------------------- */

static double largest(const float *values, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs((double)values[i]));
    return most;
}

static double largest_difference(const float *left, const float *right, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)left[i] - (double)right[i]);
        if (!(difference <= most)) most = difference;
        if (isnan(difference)) return INFINITY;
    }
    return most;
}

/* Copies tensor `t`, or its gradient, to the host; NULL if that fails. */
static float *fetch(const ls_model *model, size_t t, bool gradient) {
    const struct ls_tensor *tensor = gradient ? ls_model_parameter(model, t) : tensor_at(model, t);
    float *host = malloc(tensor->count * sizeof *host);
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    ls_status status = !host      ? LS_ERR_NO_MEMORY
                       : gradient ? ls_copy_now(compute, host, tensor->gradient, tensor->count * sizeof *host)
                                  : ls_parameters_read(ls_model_tensors(model), t, host);
    if (status == LS_OK) return host;
    free(host);
    return NULL;
}

/* The error of one tensor. */
static double tensor_error(const ls_model *model, const ls_safetensor *stored, size_t t, bool gradient, double floor) {
    float *host = fetch(model, t, gradient);
    size_t count = stored->nbytes / sizeof(float);
    double error = INFINITY;
    if (host) error = largest_difference(host, stored->data, count) / fmax(largest(stored->data, count), floor);
    free(host);
    return error;
}

static double tensor_distance(const ls_model *model, const ls_safetensor *stored, size_t t) {
    float *host = fetch(model, t, false);
    const float *want = (const float *)stored->data;
    double differences = 0, squares = 0;
    for (size_t i = 0; host && i < stored->nbytes / sizeof(float); i++) {
        differences += ((double)host[i] - (double)want[i]) * ((double)host[i] - (double)want[i]);
        squares += (double)want[i] * (double)want[i];
    }
    double distance = host ? sqrt(differences / squares) : INFINITY;
    free(host);
    return isnan(distance) ? INFINITY : distance;
}

/* Batch norm cancels any constant, so the bias of a convolution before it has a zero gradient: only rounding errors,
 * whose size means nothing. */
static bool is_lost_in_batchnorm(const struct ls_tensor *tensor) {
    return strncmp(tensor->name, "conv", 4) == 0 && strstr(tensor->name, ".bias");
}

double stored_gradient_error(const char *run, const char *prefix, const ls_model *model) {
    ls_safetensors *file = open_run(run);
    double worst = file ? 0 : INFINITY, of_all = 0;
    for (size_t p = 0; file && p < ls_model_parameter_count(model); p++) {
        const ls_safetensor *stored = find(file, prefix, ls_model_parameter(model, p));
        if (stored) of_all = fmax(of_all, largest(stored->data, stored->nbytes / sizeof(float)));
    }
    for (size_t p = 0; file && p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        const ls_safetensor *stored = find(file, prefix, tensor);
        double floor = is_lost_in_batchnorm(tensor) ? 0.05 * of_all : 0;
        worst = fmax(worst, stored ? tensor_error(model, stored, p, true, floor) : INFINITY);
    }
    ls_safetensors_close(file);
    return worst;
}

double stored_state_error(const char *run, const char *prefix, const ls_model *model, bool buffers) {
    ls_safetensors *file = open_run(run);
    size_t parameters = ls_model_parameter_count(model);
    size_t begin = buffers ? parameters : 0, end = buffers ? begin + ls_model_buffer_count(model) : parameters;
    double worst = file ? 0 : INFINITY;
    for (size_t t = begin; file && t < end; t++) {
        const ls_safetensor *stored = find(file, prefix, tensor_at(model, t));
        worst = fmax(worst, stored ? tensor_error(model, stored, t, false, 0) : INFINITY);
    }
    ls_safetensors_close(file);
    return worst;
}

double stored_weights_difference(const char *run, const ls_model *model) {
    ls_safetensors *file = open_run(run);
    double worst = file ? 0 : INFINITY;
    for (size_t p = 0; file && p < ls_model_parameter_count(model); p++) {
        const ls_safetensor *stored = find(file, "", tensor_at(model, p));
        float *host = stored ? fetch(model, p, false) : NULL;
        worst = fmax(worst, host ? largest_difference(host, stored->data, stored->nbytes / sizeof(float)) : INFINITY);
        free(host);
    }
    ls_safetensors_close(file);
    return worst;
}

double stored_state_distance(const char *run, const char *prefix, const ls_model *model) {
    ls_safetensors *file = open_run(run);
    double worst = file ? 0 : INFINITY;
    for (size_t t = 0; file && t < ls_model_parameter_count(model); t++) {
        const ls_safetensor *stored = find(file, prefix, tensor_at(model, t));
        worst = fmax(worst, stored ? tensor_distance(model, stored, t) : INFINITY);
    }
    ls_safetensors_close(file);
    return worst;
}

/* --- losses ------------------------------------------------------------------------------------------------------ */

int stored_losses(const char *run, double *losses, int capacity) {
    char path[256], text[16384];
    snprintf(path, sizeof path, "tests/golden/%s.json", run);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    size_t nbytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[nbytes] = '\0';
    cJSON *json = cJSON_Parse(text);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "loss_per_step"), *value;
    int count = cJSON_IsArray(list) ? 0 : -1;
    cJSON_ArrayForEach(value, list) {
        if (count < capacity) losses[count] = value->valuedouble;
        count++;
    }
    cJSON_Delete(json);
    return count;
}

bool stored_losses_follow(const char *run, const double *losses, int count) {
    double expected[STORED_MAX_STEPS];
    int there = stored_losses(run, expected, STORED_MAX_STEPS);
    if (there < 5 || there > STORED_MAX_STEPS || there != count) {
        fprintf(stderr, "%s: %d losses are stored, %d were seen\n", run, there, count);
        return false;
    }
    for (int i = 0; i < count; i++) {
        double error = fabs(losses[i] - expected[i]) / expected[i], limit = i < 5 ? 1e-4 : 2e-2;
        if (error <= limit) continue;
        fprintf(stderr, "%s: the loss of step %d is %.9g, not %.9g\n", run, i + 1, losses[i], expected[i]);
        return false;
    }
    return true;
}

bool stored_weights_follow(const char *run, const ls_model *model) {
    double distance = stored_state_distance(run, "after.", model);
    double largest = stored_state_error(run, "after.", model, false);
    if (distance <= 5e-3 && largest <= 0.1) return true;
    fprintf(stderr, "%s: the weights are off by %g together, one of them by %g of the largest\n", run, distance,
            largest);
    return false;
}
