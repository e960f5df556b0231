/* store_table: the store's content, a balanced tree of keys (the C library's tsearch): log2(keys) comparisons to find
 * one.
 *   order : operations take effect in the order of the calls; each takes effect completely or not at all.
 *   fails : if memory runs out, or the table is at its limit; the table is then unchanged. */
#define _GNU_SOURCE
#include "ddp_procs/launch/store_table.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *key; /* first, so that a key alone can be looked up as {key} */
    ddp_bytes value; /* its data is owned */
} row;

struct ddp_store_table {
    void *root;
    int count;
    size_t nbytes; /* of all keys and values */
};

static int compare(const void *left, const void *right) {
    return strcmp(((const row *)left)->key, ((const row *)right)->key);
}

static void free_row(void *node) {
    row *e = node;
    free((void *)e->value.data);
    free((void *)e->key);
    free(e);
}

ddp_store_table *ddp_store_table_create(void) { return calloc(1, sizeof(ddp_store_table)); }

void ddp_store_table_destroy(ddp_store_table *table) {
    if (!table) return;
    tdestroy(table->root, free_row);
    free(table);
}

static row *find(const ddp_store_table *table, const char *key) {
    const row wanted = {.key = key};
    void *node = tfind(&wanted, &table->root, compare);
    return node ? *(row **)node : NULL;
}

const ddp_bytes *ddp_store_table_find(const ddp_store_table *table, const char *key) {
    const row *e = find(table, key);
    return e ? &e->value : NULL;
}

/* A new row without a value; NULL: out of memory. */
static row *insert(ddp_store_table *table, const char *key) {
    row *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->key = strdup(key);
    if (!e->key || !tsearch(e, &table->root, compare)) {
        free_row(e);
        return NULL;
    }
    table->count++;
    table->nbytes += strlen(key);
    return e;
}

static bool has_room(const ddp_store_table *table, const row *present, const char *key, ddp_bytes value) {
    size_t others_nbytes = table->nbytes - (present ? present->value.nbytes : 0);
    size_t key_nbytes = present ? 0 : strlen(key);
    return (present || table->count < DDP_STORE_KEYS_MAX) &&
           others_nbytes + key_nbytes + value.nbytes <= DDP_STORE_TOTAL_MAX;
}

ddp_store_result ddp_store_table_set(ddp_store_table *table, const char *key, ddp_bytes value) {
    row *e = find(table, key);
    if (!has_room(table, e, key, value)) return DDP_RESULT_FULL;
    void *copy = malloc(value.nbytes ? value.nbytes : 1);
    if (!copy) return DDP_RESULT_NO_MEMORY;
    if (value.nbytes) memcpy(copy, value.data, value.nbytes);
    if (!e) e = insert(table, key);
    if (!e) {
        free(copy);
        return DDP_RESULT_NO_MEMORY;
    }
    table->nbytes += value.nbytes - e->value.nbytes;
    free((void *)e->value.data);
    e->value = (ddp_bytes){copy, value.nbytes};
    return DDP_RESULT_OK;
}

/* Decimal text with an optional sign, and no other characters. */
static bool read_decimal(ddp_bytes value, int64_t *out) {
    char text[24], *end;
    if (value.nbytes == 0 || value.nbytes >= sizeof text) return false;
    memcpy(text, value.data, value.nbytes);
    text[value.nbytes] = '\0';
    if (!strchr("+-0123456789", text[0])) return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && end == text + value.nbytes;
}

ddp_store_result ddp_store_table_add(ddp_store_table *table, const char *key, int64_t amount, int64_t *sum) {
    int64_t present = 0;
    const row *e = find(table, key);
    if (e && !read_decimal(e->value, &present)) return DDP_RESULT_NOT_A_NUMBER;
    if (amount > 0 ? present > INT64_MAX - amount : present < INT64_MIN - amount) return DDP_RESULT_NOT_A_NUMBER;
    *sum = present + amount;
    char text[24];
    int length = snprintf(text, sizeof text, "%" PRId64, *sum);
    return ddp_store_table_set(table, key, (ddp_bytes){text, (size_t)length});
}
