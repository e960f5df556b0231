#define _GNU_SOURCE
#include "common/base/shipped.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* For the main program the loader only knows the name by which it was started, which may be relative to the current
 * folder at that time. */
static bool find_own_file(char path[LS_SHIPPED_PATH]) {
    Dl_info info;
    bool is_known = dladdr((const void *)(size_t)ls_own_folder, &info) != 0 && info.dli_fname;
    const char *name = is_known && strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : "";
    if (strncmp(name, "liblockstep.so", 14) == 0) {
        char *real = realpath(info.dli_fname, NULL);
        int length = real ? snprintf(path, LS_SHIPPED_PATH, "%s", real) : -1;
        free(real);
        return length >= 0 && length < LS_SHIPPED_PATH;
    }
    ssize_t length = readlink("/proc/self/exe", path, LS_SHIPPED_PATH - 1);
    if (length >= 0) path[length] = '\0';
    return length >= 0 && length < LS_SHIPPED_PATH - 1;
}

static bool cut_last_part(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
    return slash != NULL;
}

bool ls_own_folder(char folder[LS_SHIPPED_PATH]) { return find_own_file(folder) && cut_last_part(folder); }

bool ls_shipped_place(char path[LS_SHIPPED_PATH], int place, const char *file) {
    static const struct {
        int above; /* ls_own_folder; -1: the current folder */
        const char *below;
    } places[LS_SHIPPED_PLACES] = {{-1, ""}, {1, "/"}, {2, "/"}, {1, "/share/lockstep/"}};
    char folder[LS_SHIPPED_PATH] = "";
    if (places[place].above > 0 && !ls_own_folder(folder)) return false;
    for (int i = 0; i < places[place].above; i++)
        if (!cut_last_part(folder)) return false;
    int length = snprintf(path, LS_SHIPPED_PATH, "%s%s%s", folder, places[place].below, file);
    return length >= 0 && length < LS_SHIPPED_PATH;
}

bool ls_shipped_find(char path[LS_SHIPPED_PATH], const char *file) {
    for (int place = 0; place < LS_SHIPPED_PLACES; place++)
        if (ls_shipped_place(path, place, file) && access(path, F_OK) == 0) return true;
    return false;
}
