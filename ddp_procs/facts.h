/* What a rank says of itself before the first step: names and values, as the bytes that travel to rank 0. */
#ifndef DDP_FACTS_H
#define DDP_FACTS_H

#include <stdbool.h>
#include <stddef.h>

enum { DDP_FACTS_CAPACITY = 1 << 16, DDP_FACT_CAPACITY = 512 };

/* Zero-filled: nothing said. Large: it belongs on the heap. */
typedef struct ddp_facts {
    size_t nbytes;
    bool full; /* something had no room */
    char bytes[DDP_FACTS_CAPACITY];
} ddp_facts;

/* Adds a fact; names are distinct. Of a value that is longer than DDP_FACT_CAPACITY its beginning is kept, and the hash
 * of all of it. */
void ddp_facts_add(ddp_facts *facts, const char *name, const char *value);

/* The fact at *at (0: the first), and *at moved behind it; false: there is none. Bytes that are no facts, as a stranger
 * may have sent, end the list. */
bool ddp_facts_next(const ddp_facts *facts, size_t *at, const char **name, const char **value);

/* The value of that name, or NULL. */
const char *ddp_facts_find(const ddp_facts *facts, const char *name);

#endif
