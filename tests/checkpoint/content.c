#include "tests/checkpoint/content.h"

#include <string.h>

#include "common/checkpoint/checkpoint_text.h"
#include "tests/base/test.h"

struct content content_open(const char *path) {
    static const char *const keys[] = {"format",
#define KEY(name, key, words, rule) "lockstep." key,
                                       LS_CHECKPOINT_TEXT_MAP(KEY) LS_SAFETENSORS_CRC32};
    struct content c = {.count = 0};
    assert_int_equal(ls_safetensors_open(&c.file, path), LS_OK);
    c.count = ls_safetensors_count(c.file);
    assert_in_range(c.count, 1, CONTENT_TENSORS_MAX - 1);
    for (size_t t = 0; t < c.count; t++) c.tensors[t] = *ls_safetensors_at(c.file, t);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char *value = ls_safetensors_metadata(c.file, keys[k]);
        if (value) c.lines[c.line_count++] = (ls_safetensors_text){keys[k], value};
    }
    return c;
}

ls_safetensor *content_find(struct content *c, const char *name) {
    for (size_t t = 0; t < c->count; t++) {
        if (strcmp(c->tensors[t].name, name) == 0) return &c->tensors[t];
    }
    fail_msg("there is no %s", name);
    return NULL;
}

void content_drop(struct content *c, const char *name) {
    ls_safetensor *dropped = content_find(c, name);
    *dropped = c->tensors[--c->count];
}

const char **content_line(struct content *c, const char *key) {
    for (size_t k = 0; k < c->line_count; k++) {
        if (strcmp(c->lines[k].key, key) == 0) return &c->lines[k].value;
    }
    fail_msg("there is no %s", key);
    return NULL;
}

void content_close(struct content *c, const char *path) {
    assert_int_equal(ls_safetensors_write(path, c->tensors, c->count, c->lines, c->line_count), LS_OK);
    ls_safetensors_close(c->file);
}
