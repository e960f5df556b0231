/* plugin — finds and opens the shared objects that need CUDA or NCCL. */
#define _GNU_SOURCE
#include "common/device/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/shipped.h"

/* The folder that LS_PLUGINS names, or NULL. */
static const char *named_folder(void) {
    const char *named = getenv("LS_PLUGINS");
    return named && named[0] ? named : NULL;
}

bool ls_plugin_driver_is_there(void) {
    if (named_folder()) return true;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver) dlclose(driver);
    return driver != NULL;
}

/* The plug-in's path, or its first place if it is missing: in the folder that LS_PLUGINS names; in lib/ beside the
 * program; beside the library, as built; in the installed folder, relative to the library and to a program. */
static bool find_plugin(char path[PATH_MAX], const char *file) {
    static const char *const places[] = {"/lib/", "/", "/lockstep/", "/../lib/lockstep/"};
    const char *named = named_folder();
    if (named) return snprintf(path, PATH_MAX, "%s/%s", named, file) < PATH_MAX;
    char own[LS_SHIPPED_PATH];
    if (!ls_own_folder(own)) return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, PATH_MAX, "%s%s%s", own, places[i], file);
        if (access(path, F_OK) == 0) return true;
    }
    return snprintf(path, PATH_MAX, "%s%s%s", own, places[0], file) < PATH_MAX;
}

bool ls_plugin_gpu_is_missed(const char *why) {
    char path[PATH_MAX];
    if (strncmp(why, LS_NO_GPU, strlen(LS_NO_GPU)) == 0) return false;
    if (!find_plugin(path, "ls_cuda.so")) path[0] = '\0';
    return access("/dev/nvidia0", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0 || access(path, F_OK) == 0 ||
           ls_plugin_driver_is_there();
}

/* Plug-ins use symbols of the shared library. A program that opened it for itself alone (RTLD_LOCAL, as Python's ctypes
 * does) hides them; opened once more, it is the same library, and shows them. */
static void show_names_to_plugins(void) {
    Dl_info own;
    if (dladdr((const void *)(size_t)ls_plugin_open, &own) == 0 || !own.dli_fname) return;
    void *library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (library) dlclose(library);
}

const void *ls_plugin_open(const char *file, const char *symbol, char *why, size_t capacity) {
    show_names_to_plugins();
    char path[PATH_MAX];
    if (!find_plugin(path, file)) {
        snprintf(why, capacity, "cannot find the program's own folder, in which %s is", file);
        return NULL;
    }
    if (access(path, F_OK) != 0) {
        snprintf(why, capacity, "there is no %s; make builds the file where %s found (see `make help`)", path,
                 strcmp(file, "ls_mpi.so") == 0 ? "Open MPI and PMIx are" : "nvcc is");
        return NULL;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const void *table = object ? dlsym(object, symbol) : NULL;
    if (!table) {
        snprintf(why, capacity, "cannot load %s: %s", path, dlerror());
        return NULL;
    }
    unsigned version = *(const unsigned *)table;
    if (version == LS_PLUGIN_VERSION) return table;
    snprintf(why, capacity, "%s is from another build (version %u, not %d); run make again", path, version,
             LS_PLUGIN_VERSION);
    return NULL;
}
