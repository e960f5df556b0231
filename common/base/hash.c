#include "common/base/hash.h"

/* FNV-1a, byte by byte: short enough to be reimplemented elsewhere for a comparison. */
uint64_t ls_hash(uint64_t hash, const void *data, size_t nbytes) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}
