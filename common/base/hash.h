/* A 64-bit hash of bytes, to compare weights: equal bits have equal hashes, and different bits almost certainly have
 * different ones. Not cryptographic. The value is the same on every little-endian machine. */
#ifndef LS_BASE_HASH_H
#define LS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define LS_HASH_SEED UINT64_C(0xcbf29ce484222325)

/* Extends `hash` (LS_HASH_SEED, or the hash of the bytes before these) by `nbytes` of `data`. */
uint64_t ls_hash(uint64_t hash, const void *data, size_t nbytes);

#endif
