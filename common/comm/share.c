#include "common/comm/share.h"

#include "common/comm/comm_internal.h"

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Elements of a full part. */
static size_t full_part(size_t count, size_t element_nbytes, int parts) {
    size_t line = LS_CACHE_LINE_BYTES / element_nbytes, part = (count + (size_t)parts - 1) / (size_t)parts;
    return (part + line - 1) / line * line;
}

ls_range ls_share(size_t count, size_t element_nbytes, int parts, int first, int end) {
    size_t part = full_part(count, element_nbytes, parts);
    return (ls_range){.begin = smaller(count, (size_t)first * part), .end = smaller(count, (size_t)end * part)};
}

size_t ls_shares_used(size_t count, size_t element_nbytes, int parts) {
    size_t part = full_part(count, element_nbytes, parts);
    return part > 0 ? (count + part - 1) / part : 0;
}
