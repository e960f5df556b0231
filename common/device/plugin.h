/* Plug-ins: what needs CUDA, NCCL or MPI lies in shared objects that are opened when they are first asked for.
 *
 *     ls_cuda.so    devices and kernels for GPUs      symbol ls_cuda_plugin (struct ls_cuda_plugin)
 *     ls_nccl.so    NCCL process groups               symbol ls_nccl_plugin (common/comm/nccl_plugin.h)
 *     ls_mpi.so     groups that Open MPI carries      symbol ls_mpi_plugin (common/comm/mpi_plugin.h)
 *
 * They are looked for in the folder that the environment's LS_PLUGINS names, or else in lib/ beside the program, beside
 * liblockstep.so, and in lib/lockstep where they are installed. They use the program's own copy of everything else, so
 * both must come from one build: the table's first member is checked. */
#ifndef LS_DEVICE_PLUGIN_H
#define LS_DEVICE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/device/device.h"

/* To be raised with every change of what the program and its plug-ins pass to each other: the rows of kernels/ops.def and the
 * structs in kernels/kernels.h, too. */
#define LS_PLUGIN_VERSION 4

struct ls_backend;

/* What a GPU and its software are; versions as CUDA counts them: 13000 is 13.0. */
typedef struct ls_gpu_facts {
    char name[128], bus_id[32];
    int capability_major, capability_minor, multiprocessors;
    size_t memory_bytes;
    int driver_version, runtime_version;
} ls_gpu_facts;

struct ls_cuda_plugin {
    unsigned version; /* LS_PLUGIN_VERSION */
    const struct ls_backend *backend;
    /* As ls_find_gpus and ls_list_gpus say. Any thread. */
    void (*find)(int *count, char *why, size_t capacity);
    void (*list)(char *list, size_t capacity);
    /* LS_ERR_USAGE for a GPU that is not there. */
    ls_status (*describe)(int gpu, ls_gpu_facts *facts);
    /* c [m,n] = a [m,k] b [k,n]^T on a GPU's compute stream, all of one type, an ls_dtype: fp32, fp16 or bf16; sums in
     * fp32. For measuring the peak that kernels are compared with. */
    ls_status (*matmul)(ls_stream *stream, int dtype, size_t m, size_t n, size_t k, const void *a, const void *b,
                        void *c);
    /* The version of cuBLAS behind a GPU's compute stream, as cuBLAS codes it: 130100 is 13.1.0. */
    ls_status (*blas_version)(ls_stream *stream, int *version);
};

/* Whether there is an NVIDIA driver; without one it is useless to load ls_cuda.so, cudart and cuBLAS. Always true if
 * LS_PLUGINS names a folder: then the plug-in there is asked. Callers report false as LS_NO_DRIVER. Any thread. */
bool ls_plugin_driver_is_there(void);
#define LS_NO_DRIVER "there is no NVIDIA driver (in a container: it is not passed through, --gpus all)"

/* A driver that is there and shows no GPU: the beginning of what `find` says then. */
#define LS_NO_GPU "the NVIDIA driver shows no GPU"

/* Whether a GPU was to be expected here, where ls_find_gpus has found none and said `why`: ls_cuda.so has been built,
 * or LS_PLUGINS names a folder, or there is an NVIDIA driver or its device file; but the driver does not say that there
 * is no GPU. Any thread. */
bool ls_plugin_gpu_is_missed(const char *why);

/* The table `symbol` of the plug-in `file`, NULL (and `why` in one line, not reported) if it cannot be had. Plug-ins
 * stay loaded until the process ends. Any thread. */
const void *ls_plugin_open(const char *file, const char *symbol, char *why, size_t capacity);

#endif
