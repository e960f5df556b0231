/* library — where a file lies that is asked for by name. */
#include "labs/replay/engine/library.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* The program's folder, with so many last parts of its path taken off; false: there are not so many. */
static bool folder_above(char folder[LS_LIBRARY_PATH], int parts) {
    ssize_t length = readlink("/proc/self/exe", folder, LS_LIBRARY_PATH - 1);
    if (length < 0 || length >= LS_LIBRARY_PATH - 1) return false;
    folder[length] = '\0';
    for (; parts > 0; parts--) {
        char *slash = strrchr(folder, '/');
        if (!slash) return false;
        *slash = '\0';
    }
    return true;
}

enum { PLACES = 3 };

/* The current folder, or the project's that the program was built in: one above its own, or two. */
static bool path_at(char path[LS_LIBRARY_PATH], int place, const char *file) {
    char above[LS_LIBRARY_PATH] = "";
    if (place > 0 && !folder_above(above, place + 1)) return false;
    int length = snprintf(path, LS_LIBRARY_PATH, "%s%s%s", above, place > 0 ? "/" : "", file);
    return length >= 0 && length < LS_LIBRARY_PATH;
}

bool ls_library_has(char path[LS_LIBRARY_PATH], const char *file) {
    for (int place = 0; place < PLACES; place++)
        if (path_at(path, place, file) && access(path, F_OK) == 0) return true;
    return false;
}

ls_status ls_library_find(char path[LS_LIBRARY_PATH], const char *folder, const char *name) {
    char file[LS_LIBRARY_PATH], tried[3 * LS_LIBRARY_PATH] = "";
    size_t used = 0;
    bool is_path = strchr(name, '/') || ends_with(name, ".json");
    int length =
        is_path ? snprintf(file, sizeof file, "%s", name) : snprintf(file, sizeof file, "%s/%s.json", folder, name);
    for (int place = 0; place < (is_path ? 1 : PLACES); place++) {
        if (length < 0 || length >= LS_LIBRARY_PATH || !path_at(path, place, file)) continue;
        if (access(path, F_OK) == 0) return LS_OK;
        int put = snprintf(tried + used, sizeof tried - used, "%s%s", used > 0 ? ", " : "", path);
        if (put > 0 && used + (size_t)put < sizeof tried) used += (size_t)put;
    }
    return ls_fail(LS_ERR_IO, "there is no file %s: looked for %s", name,
                   used > 0 ? tried : "it, but its name is too long");
}
