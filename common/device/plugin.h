/* Plug-ins: code that needs CUDA, NCCL or MPI is in shared objects, which are loaded at their first use.
 *
 *     ls_cuda.so    devices and kernels for GPUs      symbol ls_cuda_plugin (struct ls_cuda_plugin)
 *     ls_nccl.so    NCCL process groups               symbol ls_nccl_plugin (common/comm/nccl_plugin.h)
 *     ls_mpi.so     groups with Open MPI as carrier      symbol ls_mpi_plugin (common/comm/mpi_plugin.h)
 *
 * Search path: the folder of LS_PLUGINS if that is set, else lib/ next to the program, the folder of liblockstep.so,
 * and lib/lockstep of an installation. A plug-in uses the program's copy of all other code, so both must come from one
 * build: the table's first member is checked. */
#ifndef LS_DEVICE_PLUGIN_H
#define LS_DEVICE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/device/device.h"

/* Increase it with every change of the interface between the program and its plug-ins, which includes the rows of
 * kernels/ops.def and the structs in kernels/kernels.h. */
#define LS_PLUGIN_VERSION 4

struct ls_backend;

/* A GPU and its software; versions are encoded as CUDA's: 13000 is 13.0. */
typedef struct ls_gpu_facts {
    char name[128], bus_id[32];
    int capability_major, capability_minor, multiprocessors;
    size_t memory_bytes;
    int driver_version, runtime_version;
} ls_gpu_facts;

struct ls_cuda_plugin {
    unsigned version; /* LS_PLUGIN_VERSION */
    const struct ls_backend *backend;
    /* As ls_find_gpus and ls_list_gpus. Any thread. */
    void (*find)(int *count, char *why, size_t capacity);
    void (*list)(char *list, size_t capacity);
    /* LS_ERR_USAGE: no such GPU. */
    ls_status (*describe)(int gpu, ls_gpu_facts *facts);
    /* c [m,n] = a [m,k] b [k,n]^T on a GPU's compute stream, all of one type, an ls_dtype: fp32, fp16 or bf16; sums in
     * fp32. Measures the peak rate with which kernels are compared. */
    ls_status (*matmul)(ls_stream *stream, int dtype, size_t m, size_t n, size_t k, const void *a, const void *b,
                        void *c);
    /* The version of cuBLAS behind a GPU's compute stream, as cuBLAS codes it: 130100 is 13.1.0. */
    ls_status (*blas_version)(ls_stream *stream, int *version);
};

/* Whether there is an NVIDIA driver, without which loading ls_cuda.so, cudart and cuBLAS is useless. Always true if
 * LS_PLUGINS is set: the plug-in there decides. If false, callers report LS_NO_DRIVER. Any thread. */
bool ls_plugin_driver_is_there(void);
#define LS_NO_DRIVER "there is no NVIDIA driver (in a container: it is not passed through, --gpus all)"

/* The beginning of the reason from `find` if there is a driver but no GPU. */
#define LS_NO_GPU "the NVIDIA driver shows no GPU"

/* Whether a GPU was expected, given that ls_find_gpus has found none with the reason `why`: ls_cuda.so was built, or
 * LS_PLUGINS is set, or there is an NVIDIA driver or its device file; but false if the driver itself shows no GPU. Any
 * thread. */
bool ls_plugin_gpu_is_missed(const char *why);

/* The table `symbol` of the plug-in `file`. NULL: it cannot be loaded; `why` has the reason in one line (not reported).
 * Plug-ins stay loaded until the process ends. Any thread. */
const void *ls_plugin_open(const char *file, const char *symbol, char *why, size_t capacity);

#endif
