/* Models that normalise together, in threads of one process, and models without samples. tests/parallel/test_sync_bn.c
 * checks whole runs. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "common/base/log.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

enum { INPUTS = 28 * 28, OUTPUTS = 10, MAX_BATCH = 6, MAX_RANKS = 4 };

/* One rank: a model and its samples. */
struct part {
    ls_device *device;
    ls_model *model;
    ls_comm *group;
    float *x, *dy;
    size_t batch;
    ls_status status;
    char message[256];
};

static struct part open_part(int rank, size_t batch) {
    struct part part = {.device = open_device(rank), .batch = batch};
    part.model = make_model(part.device, "convnet", MAX_BATCH, 3);
    part.x = make_values(part.device, MAX_BATCH * INPUTS, 4);
    part.dy = make_values(part.device, MAX_BATCH * OUTPUTS, 5);
    return part;
}

static void close_part(struct part *part) {
    ls_model_destroy(part->model);
    ls_comm_destroy(part->group);
    ls_device_free(part->device, part->x);
    ls_device_free(part->device, part->dy);
    close_empty_device(part->device);
}

static void *run_part(void *argument) {
    struct part *part = argument;
    ls_log_capture(part->message, sizeof part->message);
    (void)ls_device_bind_thread(part->device);
    (void)ls_model_forward(part->model, part->x, part->batch, true);
    ls_model_backward(part->model, part->dy, false);
    part->status = ls_device_status(part->device);
    ls_log_capture(NULL, 0);
    return NULL;
}

/* Rank r takes batches[r] samples, consecutive ones of those that `open_part` makes. All ranks run one forward and one
 * backward, each in its thread. */
static void run_together(struct part *parts, const size_t *batches, int ranks) {
    ls_comm *ends[MAX_RANKS];
    ls_comm_options options = {.world_size = ranks, .timeout_s = 20, .allreduce = "direct"};
    assert_int_equal(ls_comm_create_threads(ends, &options), LS_OK);
    size_t at = 0;
    for (int r = 0; r < ranks; r++) {
        parts[r] = open_part(r, batches[r]);
        parts[r].group = ends[r];
        memmove(parts[r].x, parts[r].x + at * INPUTS, batches[r] * INPUTS * sizeof(float));
        memmove(parts[r].dy, parts[r].dy + at * OUTPUTS, batches[r] * OUTPUTS * sizeof(float));
        assert_int_equal(ls_model_sync_batchnorm(parts[r].model, ends[r]), LS_OK);
        at += batches[r];
    }
    pthread_t threads[MAX_RANKS];
    for (int r = 0; r < ranks; r++) assert_int_equal(pthread_create(&threads[r], NULL, run_part, &parts[r]), 0);
    for (int r = 0; r < ranks; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
}

/* --- together ---------------------------------------------------------------------------------------------------- */

static void expect_close(const char *name, const float *got, const float *want, size_t count, float scale) {
    float largest = scale;
    for (size_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(want[i]));
    for (size_t i = 0; i < count; i++) {
        if (!(fabsf(got[i] - want[i]) <= 2e-5f * largest)) {
            fail_msg("%s[%zu] is %.9g, not %.9g", name, i, (double)got[i], (double)want[i]);
        }
    }
}

/* The ranks' gradients add up to those of the whole batch; each rank's running statistics are those of the whole
 * batch. */
static void expect_whole_batch(const size_t *batches, int ranks) {
    struct part parts[MAX_RANKS], whole = open_part(7, 0);
    run_together(parts, batches, ranks);
    for (int r = 0; r < ranks; r++) whole.batch += batches[r];
    run_part(&whole);
    assert_int_equal(whole.status, LS_OK);
    for (int r = 0; r < ranks; r++) {
        if (parts[r].status != LS_OK) fail_msg("rank %d: %s", r, parts[r].message);
        for (size_t b = 0; b < ls_model_buffer_count(whole.model); b++) {
            const struct ls_tensor *want = ls_model_buffer(whole.model, b), *got = ls_model_buffer(parts[r].model, b);
            const struct ls_tensor *first = ls_model_buffer(parts[0].model, b);
            expect_close(want->name, got->data, want->data, want->count, 0);
            assert_memory_equal(got->data, first->data, want->count * sizeof(float));
        }
        assert_int_equal(*ls_model_batches_tracked(parts[r].model, 1), 1);
    }
    for (size_t p = 0; p < ls_model_parameter_count(whole.model); p++) {
        const struct ls_tensor *want = ls_model_parameter(whole.model, p);
        float *sum = ls_model_parameter(parts[0].model, p)->gradient;
        for (int r = 1; r < ranks; r++) {
            const struct ls_tensor *part = ls_model_parameter(parts[r].model, p);
            for (size_t i = 0; i < want->count; i++) sum[i] += part->gradient[i];
        }
        expect_close(want->name, sum, want->gradient, want->count, 1);
    }
    close_part(&whole);
    for (int r = 0; r < ranks; r++) close_part(&parts[r]);
}

TEST(pieces_of_a_batch_are_the_batch) {
    static const size_t batches[][MAX_RANKS] = {{3, 3}, {4, 1}, {2, 0}, {0, 3, 2}, {1, 1, 1, 1}, {3, 0, 0, 1}};
    static const int ranks[] = {2, 2, 2, 3, 4, 4};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) expect_whole_batch(batches[i], ranks[i]);
}

/* --- two micro-batches ------------------------------------------------------------------------------------------- */

/* The first `batch` samples and then one more; `arguments` of each rank's thread. */
struct pair {
    struct part *part;
    bool in_flight; /* both forwards run before either backward */
};

static void pass_pair(struct part *part, bool in_flight) {
    static const struct ls_hooks none;
    ls_parameters *parameters = ls_model_tensors(part->model);
    const float *x = part->x;
    float *dy = part->dy;
    ls_frame *frames[2];
    for (int f = 0; f < 2; f++) {
        const ls_network *network = ls_model_network(part->model);
        part->status =
            ls_frame_create(&frames[f], part->device, network, LS_FP32, ls_network_blocks(network), MAX_BATCH);
        if (part->status == LS_OK) part->status = ls_frame_place(frames[f], NULL, NULL);
        if (part->status == LS_OK) part->status = ls_frame_sync_batchnorm(frames[f], part->group);
        if (part->status != LS_OK) return;
    }
    (void)ls_frame_forward(frames[0], parameters, &none, x, part->batch, LS_TRAINING);
    if (in_flight) (void)ls_frame_forward(frames[1], parameters, &none, x + part->batch * INPUTS, 1, LS_TRAINING);
    (void)ls_frame_backward(frames[0], parameters, &none, dy, false);
    if (!in_flight) (void)ls_frame_forward(frames[1], parameters, &none, x + part->batch * INPUTS, 1, LS_TRAINING);
    (void)ls_frame_backward(frames[1], parameters, &none, dy + part->batch * OUTPUTS, true);
    for (int f = 0; f < 2; f++) ls_frame_destroy(frames[f]);
    part->status = ls_device_status(part->device);
}

static void *run_pair(void *argument) {
    const struct pair *pair = argument;
    (void)ls_device_bind_thread(pair->part->device);
    pass_pair(pair->part, pair->in_flight);
    return NULL;
}

static void run_pairs(struct part *parts, int ranks, bool in_flight) {
    ls_comm *ends[MAX_RANKS];
    ls_comm_options options = {.world_size = ranks, .timeout_s = 20, .allreduce = "direct"};
    assert_int_equal(ls_comm_create_threads(ends, &options), LS_OK);
    pthread_t threads[MAX_RANKS];
    struct pair pairs[MAX_RANKS];
    for (int r = 0; r < ranks; r++) {
        parts[r] = open_part(r, (size_t)(r + 1)); /* uneven: rank r has r + 1 samples, then 1 */
        parts[r].group = ends[r];
        pairs[r] = (struct pair){&parts[r], in_flight};
    }
    for (int r = 0; r < ranks; r++) assert_int_equal(pthread_create(&threads[r], NULL, run_pair, &pairs[r]), 0);
    for (int r = 0; r < ranks; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
}

static void expect_same_bits(const struct part *a, const struct part *b) {
    float *one, *other;
    size_t count;
    assert_int_equal(a->status, LS_OK);
    assert_int_equal(b->status, LS_OK);
    ls_model_gradients(a->model, &one, &count);
    ls_model_gradients(b->model, &other, &count);
    assert_memory_equal(one, other, count * sizeof *one);
    ls_model_state(a->model, &one, &count);
    ls_model_state(b->model, &other, &count);
    assert_memory_equal(one, other, count * sizeof *one);
}

TEST(two_micro_batches_in_flight_are_as_one_after_the_other) {
    struct part in_turn[MAX_RANKS], in_flight[MAX_RANKS];
    run_pairs(in_turn, 3, false);
    run_pairs(in_flight, 3, true);
    for (int r = 0; r < 3; r++) {
        expect_same_bits(&in_turn[r], &in_flight[r]);
        close_part(&in_turn[r]);
        close_part(&in_flight[r]);
    }
}

/* A micro-batch may be empty on all ranks: nothing is normalised, and no statistics change. */
TEST(nobody_has_samples) {
    struct part parts[MAX_RANKS];
    run_together(parts, (size_t[]){0, 0, 0}, 3);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(parts[r].status, LS_OK);
        for (size_t b = 0; b < ls_model_buffer_count(parts[r].model); b++) {
            const struct ls_tensor *buffer = ls_model_buffer(parts[r].model, b);
            for (size_t i = 0; i < buffer->count; i++)
                assert_true(buffer->data[i] == (b % 2 == 1)); /* means, variances */
        }
        for (size_t p = 0; p < ls_model_parameter_count(parts[r].model); p++) {
            const struct ls_tensor *parameter = ls_model_parameter(parts[r].model, p);
            for (size_t i = 0; i < parameter->count; i++) assert_true(parameter->gradient[i] == 0);
        }
        close_part(&parts[r]);
    }
}

/* --- leaving the group ------------------------------------------------------------------------------------------- */

TEST(evaluation_meets_nobody) {
    struct part parts[MAX_RANKS];
    run_together(parts, (size_t[]){2, 2}, 2);
    (void)ls_model_forward(parts[1].model, parts[1].x, 2, false); /* rank 0 does not take part */
    assert_int_equal(*ls_model_batches_tracked(parts[1].model, 0), 1);
    for (int r = 0; r < 2; r++) close_part(&parts[r]);
}

/* Without a group, and in a group of one, a model has the bits of the plain path; and the group's memory is freed. */
TEST(a_group_of_one_is_no_group) {
    struct part plain = open_part(0, 3), one = open_part(1, 3);
    ls_memory_report before, after;
    ls_device_memory(one.device, &before);
    ls_comm *ends[2];
    ls_comm_options options = {.world_size = 2, .timeout_s = 20};
    assert_int_equal(ls_comm_create_threads(ends, &options), LS_OK);
    assert_int_equal(ls_model_sync_batchnorm(one.model, ends[0]), LS_OK);
    ls_device_memory(one.device, &after);
    /* two ranks' statistics, a count and the sums of 16 and of 32 channels */
    size_t more = (2 * (33 + 65) + 2) * sizeof(double) + 2 * (16 + 32) * sizeof(float);
    assert_int_equal(after.current_total_bytes - before.current_total_bytes, more);
    assert_int_equal(ls_model_sync_batchnorm(one.model, NULL), LS_OK);
    ls_device_memory(one.device, &after);
    assert_int_equal(after.current_total_bytes, before.current_total_bytes);
    for (int r = 0; r < 2; r++) ls_comm_destroy(ends[r]);
    options.world_size = 1;
    assert_int_equal(ls_comm_create_threads(&one.group, &options), LS_OK);
    assert_int_equal(ls_model_sync_batchnorm(one.model, one.group), LS_OK);
    run_part(&plain);
    run_part(&one);
    float *left, *right;
    size_t count;
    ls_model_gradients(plain.model, &left, &count);
    ls_model_gradients(one.model, &right, &count);
    assert_memory_equal(left, right, count * sizeof *left);
    ls_model_state(plain.model, &left, &count);
    ls_model_state(one.model, &right, &count);
    assert_memory_equal(left, right, count * sizeof *left);
    close_part(&plain);
    close_part(&one);
}

TEST_IN(scratch, without_memory_all_layers_stay_on_their_own) {
    struct part part = open_part(0, 3);
    ls_memory_report memory;
    ls_device_memory(part.device, &memory);
    size_t needed = memory.current_total_bytes;
    close_part(&part);
    ls_device_options small = {.kind = LS_DEVICE_CPU, .devices_on_node = 1, .memory_capacity_bytes = needed + 1000};
    ls_device *device;
    assert_int_equal(ls_device_open(&device, &small), LS_OK);
    ls_model *model = make_model(device, "convnet", MAX_BATCH, 3);
    float *x = make_values(device, MAX_BATCH * INPUTS, 4), *dy = make_values(device, MAX_BATCH * OUTPUTS, 5);
    ls_device_memory(device, &memory);
    ls_comm *ends[2];
    ls_comm_options options = {.world_size = 2, .timeout_s = 20};
    assert_int_equal(ls_comm_create_threads(ends, &options), LS_OK);
    assert_int_equal(ls_model_sync_batchnorm(model, ends[0]), LS_ERR_NO_MEMORY); /* the memory was enough for bn1 */
    scratch_expect_error("out of memory", "statistics of all ranks");
    ls_memory_report after;
    ls_device_memory(device, &after);
    assert_int_equal(after.current_total_bytes, memory.current_total_bytes);
    (void)ls_model_forward(model, x, 3, true); /* waits for no other rank */
    for (int r = 0; r < 2; r++) ls_comm_destroy(ends[r]);
    ls_model_destroy(model);
    ls_device_free(device, x);
    ls_device_free(device, dy);
    close_empty_device(device);
}

/* --- without samples --------------------------------------------------------------------------------------------- */

struct calls {
    size_t count, last;
};

static ls_status note_call(void *context, size_t parameter) {
    struct calls *calls = context;
    if (calls->count++ > 0) assert_int_equal(parameter, calls->last - 1);
    calls->last = parameter;
    return LS_OK;
}

/* Without samples, gradients are zero, or unchanged if they accumulate; the hook is called as usual. */
TEST(no_samples_give_gradients_of_zero) {
    struct part part = open_part(0, 0);
    float *gradients;
    size_t count;
    ls_model_gradients(part.model, &gradients, &count);
    for (size_t p = 0; p < ls_model_parameter_count(part.model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(part.model, p);
        for (size_t i = 0; i < tensor->count; i++) tensor->gradient[i] = 3;
    }
    for (int accumulate = 1; accumulate >= 0; accumulate--) {
        struct calls calls = {0};
        ls_model_on_grad_ready(part.model, note_call, &calls);
        (void)ls_model_forward(part.model, part.x, 0, true);
        ls_model_backward(part.model, part.dy, accumulate);
        assert_int_equal(calls.count, ls_model_parameter_count(part.model));
        for (size_t p = 0; p < ls_model_parameter_count(part.model); p++) {
            const struct ls_tensor *tensor = ls_model_parameter(part.model, p);
            for (size_t i = 0; i < tensor->count; i++) assert_true(tensor->gradient[i] == (accumulate ? 3 : 0));
        }
    }
    for (size_t b = 0; b < ls_model_buffer_count(part.model); b++) {
        const struct ls_tensor *buffer = ls_model_buffer(part.model, b);
        for (size_t i = 0; i < buffer->count; i++) assert_true(buffer->data[i] == (float)(b % 2));
    }
    assert_int_equal(*ls_model_batches_tracked(part.model, 0), 0);
    close_part(&part);
}
