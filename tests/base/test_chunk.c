#include "common/base/chunk.h"
#include "tests/base/test.h"

TEST(pieces_are_those_of_torch_chunk) {
    static const struct {
        size_t length;
        int pieces;
        size_t piece_count, counts[8];
    } rows[] = {
        {23, 4, 4, {6, 6, 6, 5}},       {10, 4, 4, {3, 3, 3, 1}}, {9, 4, 3, {3, 3, 3}}, {6, 4, 3, {2, 2, 2}},
        {5, 4, 3, {2, 2, 1}},           {3, 4, 3, {1, 1, 1}},     {1, 4, 1, {1}},       {12, 8, 6, {2, 2, 2, 2, 2, 2}},
        {17, 8, 6, {3, 3, 3, 3, 3, 2}}, {0, 4, 4, {0}},           {7, 1, 1, {7}},       {8, 4, 4, {2, 2, 2, 2}},
    };
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        assert_int_equal(ls_chunk_count(rows[row].length, rows[row].pieces), rows[row].piece_count);
        size_t expected_begin = 0;
        for (int i = 0; i < rows[row].pieces; i++) {
            size_t begin, count;
            ls_chunk(rows[row].length, rows[row].pieces, i, &begin, &count);
            assert_int_equal(begin, expected_begin);
            assert_int_equal(count, rows[row].counts[i]);
            expected_begin += count;
        }
        assert_int_equal(expected_begin, rows[row].length);
    }
}

TEST(the_largest_length_does_not_overflow) {
    size_t begin, count;
    assert_int_equal(ls_chunk_count(SIZE_MAX, 2), 2);
    ls_chunk(SIZE_MAX, 2, 1, &begin, &count);
    assert_true(begin == SIZE_MAX / 2 + 1 && count == SIZE_MAX / 2);
}
