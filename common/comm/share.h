/* Cuts a message into equal parts at cache-line boundaries, so that no two ranks write to the same line of an aligned
 * buffer. Parts at the end may be short or empty. */
#ifndef LS_COMM_SHARE_H
#define LS_COMM_SHARE_H

#include <stddef.h>

/* A range of elements. */
typedef struct ls_range {
    size_t begin, end;
} ls_range;

static inline size_t ls_range_count(ls_range range) { return range.end - range.begin; }

/* Parts first .. end - 1 of `parts` in which `count` elements are cut (0 <= first <= end <= parts). */
ls_range ls_share(size_t count, size_t element_nbytes, int parts, int first, int end);

/* The number of parts that are not empty. */
size_t ls_shares_used(size_t count, size_t element_nbytes, int parts);

#endif
