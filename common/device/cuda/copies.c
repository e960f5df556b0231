/* copies — between memory of GPUs and of the host, in the order of a stream.
 *
 *   GPU to GPU, the same or another     cudaMemcpyAsync: direct with peer access (pool.c), else by the driver
 *   GPU from or to pinned memory        cudaMemcpyAsync: the host continues at once
 *   GPU from pageable memory            through LS_CUDA_STAGES pieces of pinned memory that the stream owns. The host
 *                                       copies into a piece, the stream copies it from there. Up to
 *                                       LS_CUDA_STAGES * LS_STAGE_NBYTES (2 MiB) the host does not wait, so a small
 *                                       batch need not be pinned; beyond that it waits for the stream
 *   pageable memory from a GPU          the host waits until the stream reaches the copy. So read values late, or
 *                                       into pinned memory
 *
 * CUDA itself could copy pageable memory in the same ways, but while it waits for a stream, the deadline is not
 * checked. While a stream is captured, all copies go into the graph as they are.
 *   cost  : two calls of cudaPointerGetAttributes per copy; staging adds a memcpy on the host */
#include "common/device/cuda/cuda_device.h"

#include <string.h>

#define LS_STAGE_NBYTES ((size_t)512 << 10)

static ls_status find_pageable(const void *address, int gpu, bool *is) {
    struct cudaPointerAttributes attributes;
    ls_status status = LS_CUDA(gpu, cudaPointerGetAttributes(&attributes, address));
    *is = status == LS_OK && attributes.type == cudaMemoryTypeUnregistered;
    return status;
}

static ls_status copy_plainly(const struct ls_cuda_lane *lane, void *destination, const void *source, size_t nbytes) {
    return LS_CUDA(lane->gpu, cudaMemcpyAsync(destination, source, nbytes, cudaMemcpyDefault, lane->stream));
}

/* --- staging ----------------------------------------------------------------------------------------------------- */

static ls_status open_staging(struct ls_cuda_staging *staging, int gpu) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    ls_status status = ls_cuda_swap_capture_mode(gpu, &mode);
    if (status != LS_OK) return status;
    status =
        LS_CUDA(gpu, cudaHostAlloc((void **)&staging->memory, LS_CUDA_STAGES * LS_STAGE_NBYTES, cudaHostAllocPortable));
    ls_status restored = ls_cuda_swap_capture_mode(gpu, &mode);
    return status != LS_OK ? status : restored;
}

/* The next piece, once the stream has read its contents. */
static ls_status next_piece(ls_stream *stream, int *piece) {
    struct ls_cuda_staging *staging = &ls_cuda_stream_of(stream)->staging;
    const struct ls_cuda_lane *lane = &ls_cuda_stream_of(stream)->lane;
    ls_status status = staging->memory ? LS_OK : open_staging(staging, lane->gpu);
    if (status != LS_OK) return status;
    *piece = staging->next;
    cudaEvent_t *passed = &staging->passed[*piece];
    if (!*passed) return LS_CUDA(lane->gpu, cudaEventCreateWithFlags(passed, cudaEventDisableTiming));
    struct ls_cuda_awaited awaited = {lane->stream, *passed, "staged copy on the stream",
                                      ls_stream_kind_name(stream->kind)};
    return ls_cuda_wait(stream->device, &awaited);
}

static ls_status copy_staged(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    struct ls_cuda_staging *staging = &ls_cuda_stream_of(stream)->staging;
    const struct ls_cuda_lane *lane = &ls_cuda_stream_of(stream)->lane;
    ls_status status = LS_OK;
    for (size_t done = 0; done < nbytes && status == LS_OK;) {
        size_t now = nbytes - done < LS_STAGE_NBYTES ? nbytes - done : LS_STAGE_NBYTES;
        int piece;
        status = next_piece(stream, &piece);
        if (status != LS_OK) return status;
        char *memory = staging->memory + (size_t)piece * LS_STAGE_NBYTES;
        memcpy(memory, (const char *)source + done, now);
        status = copy_plainly(lane, (char *)destination + done, memory, now);
        if (status == LS_OK) status = LS_CUDA(lane->gpu, cudaEventRecord(staging->passed[piece], lane->stream));
        staging->next = (piece + 1) % LS_CUDA_STAGES;
        done += now;
    }
    return status;
}

void ls_cuda_staging_close(struct ls_cuda_staging *staging) {
    for (int i = 0; i < LS_CUDA_STAGES; i++)
        if (staging->passed[i]) (void)cudaEventDestroy(staging->passed[i]);
    if (staging->memory) (void)cudaFreeHost(staging->memory);
}

/* --- the copy ---------------------------------------------------------------------------------------------------- */

static ls_status copy(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    if (ls_cuda_is_capturing(stream)) return copy_plainly(lane, destination, source, nbytes);
    bool to_pageable = false, from_pageable = false;
    ls_status status = find_pageable(destination, lane->gpu, &to_pageable);
    if (status == LS_OK) status = find_pageable(source, lane->gpu, &from_pageable);
    if (status == LS_OK && to_pageable) status = ls_cuda_wait_stream(stream);
    if (status != LS_OK) return status;
    bool timed = ls_probing() && ls_cuda_time_begin(stream, "copy");
    if (from_pageable && !to_pageable) {
        status = copy_staged(stream, destination, source, nbytes);
    } else {
        status = copy_plainly(lane, destination, source, nbytes);
    }
    if (timed) ls_cuda_time_end(stream);
    return status;
}

ls_status ls_cuda_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    ls_status status = copy(stream, destination, source, nbytes);
    return status == LS_OK ? ls_cuda_check_launch(stream, "copy") : status;
}
