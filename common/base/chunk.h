/* torch.chunk's rule: how DataParallel cuts a batch into one piece per device.
 *
 * The pieces have c = ceil(length / pieces) elements, the last one what is left; so there may be fewer pieces than
 * asked for: 9 samples on 4 devices are 3 3 3, and the fourth device has nothing to do. */
#ifndef LS_BASE_CHUNK_H
#define LS_BASE_CHUNK_H

#include <stddef.h>

/* Pieces that `length` elements give when `pieces` >= 1 are asked for: 1 .. pieces. A length of 0 gives `pieces` empty
 * ones, as torch.chunk does. */
size_t ls_chunk_count(size_t length, int pieces);

/* Where piece `index` (0 <= index < pieces) begins and how many elements it has. A piece beyond the last begins at
 * `length` and is empty. */
void ls_chunk(size_t length, int pieces, int index, size_t *begin, size_t *count);

#endif
