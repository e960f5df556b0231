/* The facts that a rank publishes before the first step: names and values, serialised to be sent to rank 0. */
#ifndef DDP_FACTS_H
#define DDP_FACTS_H

#include <stdbool.h>
#include <stddef.h>

enum { DDP_FACTS_CAPACITY = 1 << 16, DDP_FACT_CAPACITY = 512 };

/* Zero-filled: empty. Large: allocate it on the heap. */
typedef struct ddp_facts {
    size_t nbytes;
    bool full; /* a fact did not fit */
    char bytes[DDP_FACTS_CAPACITY];
} ddp_facts;

/* Adds a fact; names are distinct. A value longer than DDP_FACT_CAPACITY is truncated, and the hash of the whole value
 * is kept. */
void ddp_facts_add(ddp_facts *facts, const char *name, const char *value);

/* Reads the fact at *at (0: the first) and advances *at. False: none is left. Malformed bytes, which an untrusted peer
 * may have sent, end the list. */
bool ddp_facts_next(const ddp_facts *facts, size_t *at, const char **name, const char **value);

/* The value of that name, or NULL. */
const char *ddp_facts_find(const ddp_facts *facts, const char *name);

#endif
