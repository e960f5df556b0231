/* torch.chunk's rule: how DataParallel cuts a batch into one piece per device.
 *
 * The pieces have c = ceil(length / pieces) elements, the last one has the rest; so there may be fewer pieces than
 * requested: 9 samples on 4 devices are 3 3 3, and the fourth device has nothing to do. */
#ifndef LS_BASE_CHUNK_H
#define LS_BASE_CHUNK_H

#include <stddef.h>

/* The number of pieces, 1 .. pieces, into which `length` elements are cut if `pieces` >= 1 are requested. A length of 0
 * gives `pieces` empty pieces, as in torch.chunk. */
size_t ls_chunk_count(size_t length, int pieces);

/* The offset and the size of piece `index` (0 <= index < pieces), in elements. A piece beyond the last begins at
 * `length` and is empty. */
void ls_chunk(size_t length, int pieces, int index, size_t *begin, size_t *count);

#endif
