#include "common/data/sampler.h"
#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

static ls_sampler *create(int64_t count, int world_size, int rank, bool shuffle, bool drop_last, uint64_t seed) {
    ls_sampler_options options = {.dataset_count = count,
                                  .world_size = world_size,
                                  .rank = rank,
                                  .shuffle = shuffle,
                                  .drop_last = drop_last,
                                  .seed = seed};
    ls_sampler *sampler;
    assert_int_equal(ls_sampler_create(&sampler, &options), LS_OK);
    return sampler;
}

static bool is_true(const cJSON *row, const char *field) {
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(row, field));
}

TEST(lists_are_those_of_distributed_sampler) {
    cJSON *file = golden_json("distributed_sampler.json");
    assert_int_equal(cJSON_GetArraySize(file), 48);
    const cJSON *row;
    cJSON_ArrayForEach(row, file) {
        int world_size = (int)golden_integer(row, "num_replicas");
        const cJSON *lists = cJSON_GetObjectItemCaseSensitive(row, "indices_per_rank");
        assert_int_equal(cJSON_GetArraySize(lists), world_size);
        for (int rank = 0; rank < world_size; rank++) {
            ls_sampler *sampler =
                create(golden_integer(row, "dataset_length"), world_size, rank, is_true(row, "shuffle"),
                       is_true(row, "drop_last"), (uint64_t)golden_integer(row, "seed"));
            ls_sampler_set_epoch(sampler, golden_integer(row, "epoch"));
            int64_t count;
            const int64_t *indices = ls_sampler_indices(sampler, &count);
            golden_expect_integers(cJSON_GetArrayItem(lists, rank), indices, count);
            ls_sampler_destroy(sampler);
        }
    }
    cJSON_Delete(file);
}

/* The table of 23 samples on 4 ranks; create starts at epoch 0. */
TEST(epoch_0_of_23_samples) {
    static const int64_t shuffled[4][6] = {
        {19, 15, 4, 9, 5, 18}, {8, 20, 7, 10, 17, 0}, {16, 22, 6, 1, 11, 21}, {3, 14, 13, 12, 2, 19}};
    for (int rank = 0; rank < 4; rank++) {
        for (int drop_last = 0; drop_last < 2; drop_last++) {
            ls_sampler *sampler = create(23, 4, rank, true, drop_last, 0);
            int64_t count;
            const int64_t *indices = ls_sampler_indices(sampler, &count);
            assert_int_equal(count, drop_last ? 5 : 6);
            assert_memory_equal(indices, shuffled[rank], (size_t)count * sizeof *indices);
            ls_sampler_destroy(sampler);
        }
    }
}

/* The first 23 mod 4 ranks get the remaining samples; rank 3's repeated 19 is not in its list. */
TEST(uneven_lists_of_23_samples) {
    static const int64_t shuffled[4][6] = {
        {19, 15, 4, 9, 5, 18}, {8, 20, 7, 10, 17, 0}, {16, 22, 6, 1, 11, 21}, {3, 14, 13, 12, 2}};
    for (int rank = 0; rank < 4; rank++) {
        for (int drop_last = 0; drop_last < 2; drop_last++) {
            ls_sampler_options options = {.dataset_count = 23,
                                          .world_size = 4,
                                          .rank = rank,
                                          .shuffle = true,
                                          .drop_last = drop_last,
                                          .uneven = true};
            ls_sampler *sampler;
            assert_int_equal(ls_sampler_create(&sampler, &options), LS_OK);
            int64_t count;
            const int64_t *indices = ls_sampler_indices(sampler, &count);
            assert_int_equal(count, drop_last || rank == 3 ? 5 : 6);
            assert_memory_equal(indices, shuffled[rank], (size_t)count * sizeof *indices);
            for (int other = 0; other < 4; other++) {
                assert_int_equal(ls_sampler_count(sampler, other), drop_last || other == 3 ? 5 : 6);
            }
            ls_sampler_destroy(sampler);
        }
    }
}

TEST(fewer_samples_than_ranks) {
    int64_t count;
    for (int rank = 0; rank < 4; rank++) {
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            for (int drop_last = 0; drop_last < 2; drop_last++) {
                ls_sampler *none = create(0, 4, rank, shuffle, drop_last, 0);
                ls_sampler_indices(none, &count);
                assert_int_equal(count, 0);
                ls_sampler_destroy(none);
                ls_sampler *one = create(1, 4, rank, shuffle, drop_last, 0);
                const int64_t *indices = ls_sampler_indices(one, &count);
                assert_int_equal(count, drop_last ? 0 : 1);
                if (count) assert_int_equal(indices[0], 0);
                ls_sampler_destroy(one);
            }
        }
    }
    for (int rank = 0; rank < 7; rank++) {
        ls_sampler *two = create(2, 7, rank, false, false, 0);
        const int64_t *indices = ls_sampler_indices(two, &count);
        assert_int_equal(count, 1);
        assert_int_equal(indices[0], rank % 2);
        ls_sampler_destroy(two);
    }
}

TEST(the_seed_and_the_epoch_are_added) {
    ls_sampler *a = create(100, 3, 1, true, false, 0), *b = create(100, 3, 1, true, false, 7);
    ls_sampler_set_epoch(a, 9);
    ls_sampler_set_epoch(b, 2);
    int64_t count;
    const int64_t *of_a = ls_sampler_indices(a, &count), *of_b = ls_sampler_indices(b, &count);
    assert_memory_equal(of_a, of_b, (size_t)count * sizeof *of_a);
    ls_sampler_set_epoch(b, 3);
    of_b = ls_sampler_indices(b, &count);
    assert_memory_not_equal(of_a, of_b, (size_t)count * sizeof *of_a);
    ls_sampler_destroy(a);
    ls_sampler_destroy(b);
    ls_sampler_destroy(NULL);
}

TEST_IN(scratch, options_out_of_range) {
    static const struct {
        ls_sampler_options options;
        const char *text;
    } rows[] = {
        {{.dataset_count = 10, .world_size = 4, .rank = 4}, "rank 4 is out of range; expected 0 to 3"},
        {{.dataset_count = 10, .world_size = 4, .rank = -1}, "rank -1 is out of range; expected 0 to 3"},
        {{.dataset_count = 10, .world_size = 0, .rank = 0}, "world size 0"},
        {{.dataset_count = -1, .world_size = 1, .rank = 0}, "dataset length -1"},
        {{.dataset_count = INT64_MAX, .world_size = 1, .rank = 0}, "dataset length 9223372036854775807"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_sampler *sampler = (ls_sampler *)&sampler;
        assert_int_equal(ls_sampler_create(&sampler, &rows[i].options), LS_ERR_INVALID);
        assert_null(sampler);
        scratch_expect_error(rows[i].text, NULL);
    }
}
