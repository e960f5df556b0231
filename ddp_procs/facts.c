/* facts — name, null byte, value, null byte, and so on. */
#include "ddp_procs/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/hash.h"

enum { HASH_CAPACITY = 32 };

void ddp_facts_add(ddp_facts *facts, const char *name, const char *value) {
    char cut[DDP_FACT_CAPACITY];
    if (strlen(value) >= sizeof cut) {
        snprintf(cut, sizeof cut, "%.*s... (hash %016" PRIx64 ")", DDP_FACT_CAPACITY - HASH_CAPACITY, value,
                 ls_hash(LS_HASH_SEED, value, strlen(value)));
        value = cut;
    }
    size_t name_nbytes = strlen(name) + 1, value_nbytes = strlen(value) + 1;
    facts->full = facts->full || sizeof facts->bytes - facts->nbytes < name_nbytes + value_nbytes;
    if (facts->full) return;
    memcpy(facts->bytes + facts->nbytes, name, name_nbytes);
    memcpy(facts->bytes + facts->nbytes + name_nbytes, value, value_nbytes);
    facts->nbytes += name_nbytes + value_nbytes;
}

/* The text at *at, which must end within the facts, and moves *at past it; NULL: there is none. */
static const char *next_text(const ddp_facts *facts, size_t *at) {
    const char *text = facts->bytes + *at;
    const char *end = *at < facts->nbytes ? memchr(text, '\0', facts->nbytes - *at) : NULL;
    if (!end) return NULL;
    *at += (size_t)(end - text) + 1;
    return text;
}

bool ddp_facts_next(const ddp_facts *facts, size_t *at, const char **name, const char **value) {
    *name = next_text(facts, at);
    *value = *name ? next_text(facts, at) : NULL;
    return *value != NULL;
}

const char *ddp_facts_find(const ddp_facts *facts, const char *wanted) {
    const char *name, *value;
    for (size_t at = 0; ddp_facts_next(facts, &at, &name, &value);)
        if (strcmp(name, wanted) == 0) return value;
    return NULL;
}
