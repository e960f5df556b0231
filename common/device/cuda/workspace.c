/* workspace — the size of the workspace that a device gives cuBLAS for splitting long sums.
 *
 * As in PyTorch: 32 MiB from Hopper on and 8 MiB before, unless the environment's CUBLAS_WORKSPACE_CONFIG says
 * otherwise, as ":KIB:COUNT" once or more. Their sum is given in one piece. cuBLAS itself reads the variable only for a
 * workspace that it allocates on its own. A size too small for some kind of splitting may change the bits of the
 * results. */
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/device/cuda/cuda_device.h"

#define HOPPER_NBYTES ((size_t)32 << 20)
#define OTHER_NBYTES ((size_t)8 << 20)

enum { NUMBER_MAX = 1 << 20 }; /* 2^20 KiB times 2^20 is below 2^63 */

/* Parses ":NUMBER" at *at, and advances that. */
static bool take_number(const char **at, size_t *number) {
    if (**at != ':' || (*at)[1] < '0' || (*at)[1] > '9') return false;
    char *end;
    unsigned long value = strtoul(*at + 1, &end, 10);
    *at = end;
    *number = value;
    return value <= NUMBER_MAX;
}

ls_status ls_cuda_workspace_nbytes(int major, size_t *nbytes) {
    const char *text = getenv("CUBLAS_WORKSPACE_CONFIG");
    *nbytes = major >= 9 ? HOPPER_NBYTES : OTHER_NBYTES;
    if (!text || !*text) return LS_OK;
    *nbytes = 0;
    for (const char *at = text; *at;) {
        size_t kib, count;
        if (!take_number(&at, &kib) || !take_number(&at, &count)) {
            return ls_fail(LS_ERR_USAGE, "CUBLAS_WORKSPACE_CONFIG is \"%s\"; expected :KIB:COUNT, as in :4096:8", text);
        }
        *nbytes += (kib * count) << 10;
    }
    return LS_OK;
}
