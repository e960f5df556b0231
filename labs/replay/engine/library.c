/* library — finds a file by its name. */
#include "labs/replay/engine/library.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

ls_status ls_library_find(char path[LS_SHIPPED_PATH], const char *folder, const char *name) {
    char file[LS_SHIPPED_PATH], tried[LS_SHIPPED_PLACES * LS_SHIPPED_PATH] = "";
    size_t used = 0;
    bool is_path = strchr(name, '/') || ends_with(name, ".json");
    int length =
        is_path ? snprintf(file, sizeof file, "%s", name) : snprintf(file, sizeof file, "%s/%s.json", folder, name);
    for (int place = 0; place < (is_path ? 1 : LS_SHIPPED_PLACES); place++) {
        if (length < 0 || length >= LS_SHIPPED_PATH || !ls_shipped_place(path, place, file)) continue;
        if (access(path, F_OK) == 0) return LS_OK;
        int put = snprintf(tried + used, sizeof tried - used, "%s%s", used > 0 ? ", " : "", path);
        if (put > 0 && used + (size_t)put < sizeof tried) used += (size_t)put;
    }
    return ls_fail(LS_ERR_IO, "cannot find %s: looked for %s", name,
                   used > 0 ? tried : "no file, since its name is too long");
}
