/* The store's keys and values, and what each operation does to them, apart from any network: store_server.c uses it.
 * Threads: one at a time. */
#ifndef DDP_LAUNCH_STORE_TABLE_H
#define DDP_LAUNCH_STORE_TABLE_H

#include <stdint.h>

#include "ddp_procs/launch/store_protocol.h"

typedef struct ddp_store_table ddp_store_table;

/* NULL: out of memory. */
ddp_store_table *ddp_store_table_create(void);
void ddp_store_table_destroy(ddp_store_table *table); /* NULL is a no-op */

/* The value of a key, valid until the next change, or NULL. `key` is a string here and below. */
const ddp_bytes *ddp_store_table_find(const ddp_store_table *table, const char *key);

/* DDP_RESULT_FULL: more keys or bytes than store.h allows; nothing has changed then. */
ddp_store_result ddp_store_table_set(ddp_store_table *table, const char *key, ddp_bytes value);
ddp_store_result ddp_store_table_add(ddp_store_table *table, const char *key, int64_t amount, int64_t *sum);

#endif
