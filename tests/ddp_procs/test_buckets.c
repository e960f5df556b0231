/* Bucket assignment: PyTorch's golden sizes, and the edges of the rule. */
#include "ddp_procs/buckets.h"
#include "tests/base/test.h"

enum { LARGE = 512 * 512 * 4, WEIGHT = 512 * 10 * 4, BIAS = 10 * 4, MIB = 1 << 20 };

/* Six linear layers 512-512 without bias, then 512-10 with one. */
static const size_t golden[8] = {LARGE, LARGE, LARGE, LARGE, LARGE, LARGE, WEIGHT, BIAS};
static const int64_t forward[8] = {0, 1, 2, 3, 4, 5, 6, 7}, backward[8] = {7, 6, 5, 4, 3, 2, 1, 0};

struct expected {
    size_t count, nbytes[8];
    size_t parameters[8];
};

static void expect_buckets(const size_t *nbytes, const int64_t *order, size_t count, const size_t *limits,
                           size_t limit_count, bool reverse, const struct expected *expected) {
    struct ddp_buckets b;
    assert_int_equal(ddp_assign_buckets(&b, nbytes, order, count, limits, limit_count, reverse), LS_OK);
    assert_int_equal(b.parameter_count, count);
    assert_int_equal(b.bucket_count, expected->count);
    size_t at = 0;
    for (size_t k = 0; k < b.bucket_count; k++) {
        size_t sum = 0;
        assert_true(b.sizes[k] > 0);
        for (size_t i = 0; i < b.sizes[k]; i++) sum += nbytes[b.parameters[at++]];
        assert_int_equal(sum, expected->nbytes[k]);
    }
    assert_int_equal(at, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(b.parameters[i], expected->parameters[i]);
    ddp_buckets_free(&b);
    assert_null(b.parameters);
    assert_null(b.sizes);
}

TEST(ready_order_with_the_default_limits) {
    const size_t limits[] = {DDP_FIRST_BUCKET_BYTES, (size_t)(DDP_DEFAULT_BUCKET_CAP_MB * MIB)};
    const struct expected expected = {2, {1069096, 5242880}, {7, 6, 5, 4, 3, 2, 1, 0}};
    expect_buckets(golden, backward, 8, limits, 2, false, &expected);
}

TEST(ready_order_with_a_limit_of_2_MiB) {
    const size_t limits[] = {DDP_FIRST_BUCKET_BYTES, 2 * MIB};
    const struct expected expected = {4, {1069096, 2097152, 2097152, 1048576}, {7, 6, 5, 4, 3, 2, 1, 0}};
    expect_buckets(golden, backward, 8, limits, 2, false, &expected);
}

/* Within a bucket the order is that of the definition; the order of the buckets is reversed. */
TEST(definition_order_is_reversed_by_buckets) {
    const size_t limits[] = {DDP_FIRST_BUCKET_BYTES, 2 * MIB};
    const struct expected expected = {4, {1069096, 2097152, 2097152, 1048576}, {5, 6, 7, 3, 4, 1, 2, 0}};
    expect_buckets(golden, forward, 8, limits, 2, true, &expected);
}

TEST(without_a_limit_there_is_one_bucket) {
    const size_t unlimited = SIZE_MAX;
    const struct expected expected = {1, {6311976}, {0, 1, 2, 3, 4, 5, 6, 7}};
    expect_buckets(golden, forward, 8, &unlimited, 1, true, &expected);
}

/* A bucket is closed when it reaches its limit, not earlier; a single tensor may be larger than the limit. */
TEST(a_bucket_closes_at_its_limit) {
    static const size_t nbytes[] = {40, 60, 99, 1, 1000, 10};
    const size_t limit = 100;
    const struct expected expected = {4, {100, 100, 1000, 10}, {0, 1, 2, 3, 4, 5}};
    expect_buckets(nbytes, forward, 6, &limit, 1, false, &expected);
    const size_t one = 1;
    const struct expected each = {6, {40, 60, 99, 1, 1000, 10}, {0, 1, 2, 3, 4, 5}};
    expect_buckets(nbytes, forward, 6, &one, 1, false, &each);
    const struct expected turned = {6, {10, 1000, 1, 99, 60, 40}, {5, 4, 3, 2, 1, 0}};
    expect_buckets(nbytes, forward, 6, &one, 1, true, &turned);
}

TEST(each_limit_is_for_one_bucket_and_the_last_for_the_rest) {
    static const size_t nbytes[] = {10, 10, 10, 10, 10, 10, 10};
    const size_t limits[] = {10, 20, 30};
    const struct expected expected = {4, {10, 20, 30, 10}, {0, 1, 2, 3, 4, 5, 6}};
    expect_buckets(nbytes, forward, 7, limits, 3, false, &expected);
}

TEST(nothing_gives_no_bucket) {
    const size_t limit = 100;
    const struct expected none = {0};
    expect_buckets(golden, forward, 0, &limit, 1, false, &none);
    expect_buckets(golden, forward, 0, &limit, 1, true, &none);
    const struct expected one = {1, {LARGE}, {0}};
    expect_buckets(golden, forward, 1, &limit, 1, true, &one);
}
