/* Resolving rejects records that no threads can have written, and distinguishes the pairs of numbers by which it
 * matches them. */
#include <math.h>

#include "common/trace/pair_map.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/trace/records.h"

TEST_IN(scratch, test_records_that_cannot_be_are_refused) {
    struct records host = {0};
    records_add(&host, LS_PROBE_LAUNCH, "gemm", 10, 1, 5, 4);
    records_refused(&host, 1, "lasts from 5.000 us to 4.000 us");
    host.records[0].end_us = NAN;
    records_refused(&host, 1, "record 0");
    host = (struct records){0};
    records_inline(&host, "gemm", 10, 2, 0, 1, 2, 3);
    records_inline(&host, "relu", 10, 2, 4, 5, 6, 7);
    records_refused(&host, 1, "(\"relu\") twice");
    host = (struct records){0};
    records_inline(&host, "gemm", 10, 2, 0, 1, 2, 3);
    records_inline(&host, "relu", 10, 1, 4, 5, 6, 7);
    records_refused(&host, 1, "was launched behind 2");
    host = (struct records){0};
    records_add(&host, LS_PROBE_MEETING, "all_reduce", 0xabc, 1, 1, 1);
    records_refused(&host, 1, "outside any work");
    records_add(&host, LS_PROBE_LAUNCH, "later", 10, 1, 2, 3);
    records_refused(&host, 1, "outside any work");
    host = (struct records){0};
    records_add(&host, LS_PROBE_RAISE, "flag", 900, 1, 8, 8);
    records_add(&host, LS_PROBE_RAISE, "flag", 900, 2, 7, 7);
    records_refused(&host, 1, "ended before");
    host = (struct records){0};
    records_add(&host, LS_PROBE_LAUNCH, "gemm", 13, 1, 0, 1);
    records_refused(&host, 1, "a stream of unknown kind 3");
}

TEST_IN(scratch, test_pairs_are_told_apart) {
    struct ls_pair_map map = {0};
    assert_int_equal(ls_pair_map_find(&map, 1, 1), LS_NONE);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5000; i++) {
            int *value = ls_pair_map_at(&map, (uint64_t)i % 50 << 6, (uint64_t)i / 50);
            assert_non_null(value);
            assert_int_equal(*value, round == 0 ? LS_NONE : i);
            *value = i;
        }
    }
    for (int i = 0; i < 5000; i++) assert_int_equal(ls_pair_map_find(&map, (uint64_t)i % 50 << 6, (uint64_t)i / 50), i);
    assert_int_equal(ls_pair_map_find(&map, 50 << 6, 0), LS_NONE);
    assert_int_equal(map.count, 5000);
    ls_pair_map_free(&map);
}
