/* Ranks (tests/comm/ranks.h) that have GPUs, and groups with a path for GPU memory. */
#ifndef TESTS_CUDA_GPU_RANKS_H
#define TESTS_CUDA_GPU_RANKS_H

#include "tests/comm/ranks.h"

#define FAKE_RANKS 4

/* Where ranks run, and how the data of their GPUs is transferred. Ends with a row whose name is NULL. */
struct gpu_path {
    const char *name; /* ls_comm_backend */
    const struct rank_backend *backend;
    ls_comm_path path;
    bool shares_gpu; /* all ranks are on GPU 0 */
};
extern const struct gpu_path gpu_paths[];

/* run_good_ranks_on on each path, which is passed as the ranks' argument. */
void run_on_gpu_paths(void (*body)(struct rank *rank), int world_size);

/* Opens GPU `gpu` (FAKE_RANKS of them, unless the environment says otherwise) and the group; returns the group's
 * status. */
ls_status gpu_rank_open(struct rank *rank, int gpu, const char *allreduce, double timeout_s);

/* The same on the path's GPU, and attaches it; all calls must succeed. */
void gpu_rank_attach(struct rank *rank, const struct gpu_path *path, const char *allreduce, double timeout_s);

/* Memory of the rank's GPU with a copy of `values` (NULL: zeros); free it with ls_device_free. */
void *gpu_rank_upload(const struct rank *rank, const void *values, size_t nbytes);

/* Waits for the rank's comm stream, then copies. */
void gpu_rank_download(const struct rank *rank, void *values, const void *memory, size_t nbytes);

/* Whether the rank's first error contains the text. */
bool gpu_rank_says(const struct rank *rank, const char *text);

#endif
