/* plugin — finding and opening the shared objects that need CUDA or NCCL. */
#define _GNU_SOURCE
#include "common/device/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What LS_PLUGINS names, or NULL. */
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

/* lib/ beside the program, or what LS_PLUGINS names. */
static bool find_folder(char folder[PATH_MAX]) {
    const char *named = named_folder();
    if (named) return snprintf(folder, PATH_MAX, "%s", named) < PATH_MAX;
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) return false;
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash) return false;
    *slash = '\0';
    return snprintf(folder, PATH_MAX, "%.*s/lib", PATH_MAX - 8, program) < PATH_MAX;
}

bool ls_plugin_gpu_is_missed(const char *why) {
    char folder[PATH_MAX], path[PATH_MAX + 64] = "";
    if (strncmp(why, LS_NO_GPU, strlen(LS_NO_GPU)) == 0) return false;
    if (find_folder(folder)) snprintf(path, sizeof path, "%s/ls_cuda.so", folder);
    return access("/dev/nvidia0", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0 || access(path, F_OK) == 0 ||
           ls_plugin_driver_is_there();
}

const void *ls_plugin_open(const char *file, const char *symbol, char *why, size_t capacity) {
    char folder[PATH_MAX], path[PATH_MAX + 64];
    if (!find_folder(folder)) {
        snprintf(why, capacity, "cannot find out where the program lies, and so not where %s lies", file);
        return NULL;
    }
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (access(path, F_OK) != 0) {
        snprintf(why, capacity, "there is no %s; it is built where %s found (`make help` says what was)", path,
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
    snprintf(why, capacity, "%s is of another build (version %u, not %d); run make again", path, version,
             LS_PLUGIN_VERSION);
    return NULL;
}
