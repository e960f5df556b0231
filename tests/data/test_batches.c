#include "common/base/chunk.h"
#include "common/base/random.h"
#include "common/data/batches.h"
#include "common/data/sampler.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

#define MAX_COUNT 64

static ls_batches *create(const ls_batches_options *options, int rank) {
    ls_batches_options own = *options;
    own.rank = rank;
    ls_batches *batches;
    assert_int_equal(ls_batches_create(&batches, &own), LS_OK);
    return batches;
}

/* Strided: the batches, concatenated, are the rank's DistributedSampler list. */
static void expect_strided(const ls_batches_options *options, int64_t epoch) {
    int64_t local = options->global_batch / options->world_size;
    for (int rank = 0; rank < options->world_size; rank++) {
        ls_sampler_options of_sampler = {.dataset_count = options->dataset_count,
                                         .world_size = options->world_size,
                                         .rank = rank,
                                         .shuffle = options->shuffle,
                                         .drop_last = options->drop_last,
                                         .seed = options->seed};
        ls_sampler *sampler;
        assert_int_equal(ls_sampler_create(&sampler, &of_sampler), LS_OK);
        ls_sampler_set_epoch(sampler, epoch);
        int64_t count;
        const int64_t *list = ls_sampler_indices(sampler, &count);
        ls_batches *batches = create(options, rank);
        ls_batches_set_epoch(batches, epoch);
        int64_t steps = options->drop_last ? count / local : (count + local - 1) / local;
        assert_int_equal(ls_batches_per_epoch(batches), steps);
        assert_int_equal(ls_batches_per_epoch_of(batches, options->world_size - 1), steps);
        for (int64_t k = 0; k < steps; k++) {
            struct ls_batch_indices batch;
            ls_batches_get(batches, k, &batch);
            int64_t expected = count - k * local < local ? count - k * local : local;
            assert_int_equal(batch.local_count, expected);
            assert_int_equal(batch.global_count, expected * options->world_size);
            assert_true(batch.local_count <= ls_batches_max_local_count(batches));
            assert_memory_equal(batch.indices, list + k * local, (size_t)expected * sizeof *list);
        }
        ls_batches_destroy(batches);
        ls_sampler_destroy(sampler);
    }
}

/* Contiguous: the ranks' pieces, concatenated, are the batches of the one global order, cut as torch.chunk does. */
static void expect_contiguous(const ls_batches_options *options, int64_t epoch) {
    int64_t order[MAX_COUNT];
    for (int64_t i = 0; i < options->dataset_count; i++) order[i] = i;
    ls_generator generator;
    ls_generator_seed(&generator, options->seed + (uint64_t)epoch);
    if (options->shuffle) ls_randperm(&generator, options->dataset_count, order);
    int64_t n = options->dataset_count, whole = options->global_batch;
    int64_t steps = options->drop_last ? n / whole : (n + whole - 1) / whole;
    for (int rank = 0; rank < options->world_size; rank++) {
        ls_batches *batches = create(options, rank);
        ls_batches_set_epoch(batches, epoch);
        assert_int_equal(ls_batches_per_epoch(batches), steps);
        assert_int_equal(ls_batches_per_epoch_of(batches, options->world_size - 1), steps);
        for (int64_t k = 0; k < steps; k++) {
            struct ls_batch_indices batch;
            ls_batches_get(batches, k, &batch);
            size_t length = (size_t)(n - k * whole < whole ? n - k * whole : whole), begin, count;
            ls_chunk(length, options->world_size, rank, &begin, &count);
            assert_int_equal(batch.global_count, length);
            assert_int_equal(batch.local_count, count);
            assert_true(batch.local_count <= ls_batches_max_local_count(batches));
            if (count > 0) assert_memory_equal(batch.indices, order + k * whole + begin, count * sizeof *order);
        }
        ls_batches_destroy(batches);
    }
}

TEST(each_way_of_sharing_in_every_case) {
    for (int bits = 0; bits < 8; bits++) {
        for (int64_t n = 1; n <= 20; n++) {
            for (int world_size = 1; world_size <= 5; world_size++) {
                for (int64_t batch = 1; batch <= 11; batch++) {
                    ls_batches_options options = {.dataset_count = n,
                                                  .global_batch = batch,
                                                  .world_size = world_size,
                                                  .shard = LS_SHARD_CONTIGUOUS,
                                                  .shuffle = bits & 1,
                                                  .drop_last = bits & 2,
                                                  .seed = 3};
                    int64_t epoch = bits & 4 ? 2 : 0;
                    expect_contiguous(&options, epoch);
                    options.shard = LS_SHARD_STRIDED;
                    if (batch % world_size == 0) expect_strided(&options, epoch);
                }
            }
        }
    }
}

/* Samples r, r + W, ... of the order, none twice, cut into batches; the step's count is the total of all ranks. */
static void expect_uneven(const ls_batches_options *options, const int64_t *order) {
    int64_t n = options->dataset_count, world_size = options->world_size, local = options->global_batch / world_size;
    int64_t seen = 0;
    for (int rank = 0; rank < world_size; rank++) {
        ls_batches *batches = create(options, rank);
        ls_batches_set_epoch(batches, 1);
        for (int other = 0; other < world_size; other++) {
            int64_t own = (n - other + world_size - 1) / world_size;
            assert_int_equal(ls_batches_per_epoch_of(batches, other), other < n ? (own + local - 1) / local : 0);
        }
        assert_int_equal(ls_batches_per_epoch(batches), ls_batches_per_epoch_of(batches, rank));
        for (int64_t k = 0; k < ls_batches_per_epoch(batches); k++) {
            struct ls_batch_indices batch;
            ls_batches_get(batches, k, &batch);
            size_t local_count = 0, global_count = 0;
            for (int64_t i = k * local * world_size; i < (k + 1) * local * world_size && i < n; i++) {
                global_count++;
                if (i % world_size == rank) assert_int_equal(batch.indices[local_count++], order[i]);
            }
            assert_int_equal(batch.local_count, local_count);
            assert_int_equal(batch.global_count, global_count);
            assert_true(batch.local_count <= ls_batches_max_local_count(batches));
            seen += (int64_t)local_count;
        }
        ls_batches_destroy(batches);
    }
    assert_int_equal(seen, n);
}

TEST(uneven_shards_repeat_nothing) {
    int64_t order[MAX_COUNT];
    for (int64_t n = 1; n <= 20; n++) {
        ls_generator generator;
        ls_generator_seed(&generator, 3 + 1);
        ls_randperm(&generator, n, order);
        for (int world_size = 1; world_size <= 5; world_size++) {
            for (int64_t local = 1; local <= 4; local++) {
                ls_batches_options options = {.dataset_count = n,
                                              .global_batch = local * world_size,
                                              .world_size = world_size,
                                              .shuffle = true,
                                              .uneven = true,
                                              .seed = 3};
                expect_uneven(&options, order);
                options.drop_last = true; /* gives equal lengths anyway */
                expect_strided(&options, 1);
                options.shard = LS_SHARD_CONTIGUOUS;
                expect_contiguous(&options, 1);
            }
        }
    }
}

TEST(one_rank_gets_the_same_either_way) {
    for (int drop_last = 0; drop_last < 2; drop_last++) {
        ls_batches_options options = {.dataset_count = 23,
                                      .global_batch = 5,
                                      .world_size = 1,
                                      .shuffle = true,
                                      .drop_last = drop_last,
                                      .seed = 1};
        options.shard = LS_SHARD_STRIDED;
        ls_batches *strided = create(&options, 0);
        options.shard = LS_SHARD_CONTIGUOUS;
        ls_batches *contiguous = create(&options, 0);
        assert_int_equal(ls_batches_per_epoch(strided), drop_last ? 4 : 5);
        assert_int_equal(ls_batches_per_epoch(contiguous), drop_last ? 4 : 5);
        for (int64_t k = 0; k < ls_batches_per_epoch(strided); k++) {
            struct ls_batch_indices a, b;
            ls_batches_get(strided, k, &a);
            ls_batches_get(contiguous, k, &b);
            assert_int_equal(a.local_count, k == 4 ? 3 : 5);
            assert_int_equal(a.global_count, a.local_count);
            assert_int_equal(b.local_count, a.local_count);
            assert_int_equal(b.global_count, a.global_count);
            assert_memory_equal(a.indices, b.indices, a.local_count * sizeof *a.indices);
        }
        ls_batches_destroy(strided);
        ls_batches_destroy(contiguous);
    }
}

/* 17 samples in batches of 9 on 4 ranks: 9 = 3 3 3 0, then 8 = 2 2 2 2. The last rank's first piece is not its
 * longest. */
TEST(a_later_piece_may_be_longer) {
    ls_batches_options options = {
        .dataset_count = 17, .global_batch = 9, .world_size = 4, .shard = LS_SHARD_CONTIGUOUS};
    ls_batches *batches = create(&options, 3);
    struct ls_batch_indices batch;
    ls_batches_get(batches, 0, &batch);
    assert_int_equal(batch.local_count, 0);
    assert_int_equal(batch.global_count, 9);
    ls_batches_get(batches, 1, &batch);
    assert_int_equal(batch.local_count, 2);
    assert_int_equal(batch.indices[0], 15);
    assert_int_equal(ls_batches_max_local_count(batches), 3);
    ls_batches_destroy(batches);
}

TEST(memory_follows_the_samples_not_the_batch_size) {
    for (int shard = 0; shard < 2; shard++) {
        ls_batches_options options = {.dataset_count = 10,
                                      .global_batch = INT64_MAX - 1,
                                      .world_size = 2,
                                      .shard = shard ? LS_SHARD_CONTIGUOUS : LS_SHARD_STRIDED};
        ls_batches *batches = create(&options, 1);
        assert_int_equal(ls_batches_per_epoch(batches), 1);
        assert_int_equal(ls_batches_max_local_count(batches), 5);
        ls_batches_destroy(batches);
        options.drop_last = true;
        batches = create(&options, 1);
        assert_int_equal(ls_batches_per_epoch(batches), 0);
        assert_int_equal(ls_batches_max_local_count(batches), 0);
        ls_batches_destroy(batches);
    }
    ls_batches_destroy(NULL);
}

TEST_IN(scratch, options_out_of_range) {
    static const struct {
        ls_batches_options options;
        const char *text, *another;
    } rows[] = {
        {{.dataset_count = 10, .global_batch = 10, .world_size = 4}, "multiple of 4", "contiguous"},
        {{.dataset_count = 10, .global_batch = 0, .world_size = 1}, "at least 1, got 0", NULL},
        {{.dataset_count = 10, .global_batch = -8, .world_size = 1}, "at least 1, got -8", NULL},
        {{.dataset_count = 10, .global_batch = 8, .world_size = 2, .rank = 2}, "rank 2 is not among 2 ranks", NULL},
        {{.dataset_count = 10, .global_batch = 8, .world_size = 2, .rank = -1}, "rank -1 is not among 2 ranks", NULL},
        {{.dataset_count = 10, .global_batch = 8, .world_size = 0}, "rank 0 is not among 0 ranks", NULL},
        {{.dataset_count = -1, .global_batch = 8, .world_size = 1}, "dataset length -1", NULL},
        {{.dataset_count = 10, .global_batch = 8, .world_size = 2, .rank = 2, .shard = LS_SHARD_CONTIGUOUS},
         "rank 2 is not among 2 ranks",
         NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_batches *batches = (ls_batches *)&batches;
        assert_int_equal(ls_batches_create(&batches, &rows[i].options), LS_ERR_INVALID);
        assert_null(batches);
        scratch_expect_error(rows[i].text, rows[i].another);
    }
}
