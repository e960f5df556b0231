/* Measures of a trained model: right answers, the hash of its weights; and the phases of a step's time. */
#include <string.h>

#include "common/base/hash.h"
#include "common/train/loop.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

enum { SAMPLES = 50, INPUTS = 12, CLASSES = 4, ROOM = 16 };

/* One sample at a time, from the outputs. */
static int64_t count_slowly(ls_model *model, const ls_dataset *dataset, int64_t begin, int64_t end) {
    int64_t right = 0;
    for (int64_t i = begin; i < end; i++) {
        float x[INPUTS];
        int64_t label;
        const float *y;
        ls_dataset_read(dataset, &i, 1, x, &label, NULL);
        y = ls_model_forward(model, x, 1, false);
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            if (y[c] > y[best]) best = c;
        right += best == label;
    }
    return right;
}

TEST(right_answers_are_counted_in_pieces_of_any_size) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:12,8,4", ROOM, 5);
    ls_dataset *dataset;
    ls_sample_spec spec = {.channels = INPUTS, .height = 1, .width = 1, .classes = CLASSES};
    assert_int_equal(ls_dataset_random(&dataset, 1, SAMPLES, &spec), LS_OK);
    int64_t all = count_slowly(model, dataset, 0, SAMPLES);
    struct ls_test_sums sums;
    assert_in_range(all, 1, SAMPLES - 1);
    static const size_t chunks[] = {1, 7, 10, ROOM};
    for (size_t c = 0; c < 4; c++) {
        assert_int_equal(ls_evaluate(model, dataset, 0, SAMPLES, chunks[c], c % 2 ? 40 : 0, &sums), LS_OK);
        assert_int_equal(sums.right, all);
        assert_int_equal(ls_evaluate(model, dataset, 13, 31, chunks[c], c % 2 ? 40 : 0, &sums), LS_OK);
        assert_int_equal(sums.right, count_slowly(model, dataset, 13, 31));
    }
    sums.right = 7;
    assert_int_equal(ls_evaluate(model, dataset, 20, 20, 8, 3, &sums), LS_OK);
    assert_int_equal(sums.right, 0);
    assert_true(sums.loss == 0);
    ls_dataset_close(dataset);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(the_hash_is_that_of_the_parameters_bits) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "convnet", 1, 5);
    uint64_t hash, again, expected = LS_HASH_SEED;
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        expected = ls_hash(expected, tensor->data, tensor->count * sizeof(float));
    }
    assert_int_equal(ls_model_hash(model, &hash), LS_OK);
    assert_true(hash == expected);
    ls_model_buffer(model, 0)->data[0] = 3; /* a buffer, not a parameter */
    assert_int_equal(ls_model_hash(model, &again), LS_OK);
    assert_true(again == hash);
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        uint32_t bits;
        memcpy(&bits, &tensor->data[tensor->count - 1], sizeof bits);
        bits ^= 1;
        memcpy(&tensor->data[tensor->count - 1], &bits, sizeof bits);
        assert_int_equal(ls_model_hash(model, &again), LS_OK);
        assert_true(again != hash);
        hash = again;
    }
    ls_model_destroy(model);
    close_empty_device(device);
}

/* --- the clock of phases ----------------------------------------------------------------------------------------- */

TEST(time_goes_to_the_phase_that_ends) {
    struct ls_phase_clock clock = {0};
    ls_phase_reset(&clock);
    assert_int_equal(ls_phase_enter(&clock, LS_PHASE_FORWARD), LS_PHASE_OTHER);
    double begin_us = clock.since_us;
    while (ls_now_us() < begin_us + 200) {
    }
    assert_int_equal(ls_phase_enter(&clock, LS_PHASE_LOSS), LS_PHASE_FORWARD);
    assert_true(clock.us[LS_PHASE_FORWARD] == clock.since_us - begin_us);
    assert_true(clock.us[LS_PHASE_FORWARD] >= 200);
    assert_true(clock.us[LS_PHASE_LOSS] == 0);
    clock.bytes[LS_PHASE_SCATTER] = 5;
    ls_phase_reset(&clock);
    assert_true(clock.us[LS_PHASE_FORWARD] == 0 && clock.bytes[LS_PHASE_SCATTER] == 0);
}

TEST(phases_have_names_and_know_what_is_communication) {
    static const ls_phase communication[] = {LS_PHASE_SCATTER, LS_PHASE_REPLICATE, LS_PHASE_BROADCAST,
                                             LS_PHASE_GATHER,  LS_PHASE_REDUCE,    LS_PHASE_ALL_REDUCE,
                                             LS_PHASE_STAGES,  LS_PHASE_TENSOR};
    int count = 0;
    for (int p = 0; p < LS_PHASE_COUNT; p++) count += ls_phase_is_communication((ls_phase)p);
    assert_int_equal(count, COUNT_OF(communication));
    for (size_t p = 0; p < COUNT_OF(communication); p++) assert_true(ls_phase_is_communication(communication[p]));
    assert_string_equal(ls_phase_name(LS_PHASE_OTHER), "other");
    assert_string_equal(ls_phase_name(LS_PHASE_ALL_REDUCE), "all-reduce");
    assert_string_equal(ls_phase_name(LS_PHASE_OPTIMIZER), "optimizer");
}
