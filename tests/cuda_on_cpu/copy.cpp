/* Copies and fills. As on a GPU, the kinds of memory decide how a copy behaves:
 *
 *   device <-> device, page-locked   in stream order; the call returns at once, and the host must not touch page-locked
 *                                    memory until the copy is done
 *   pageable -> device               the source is read before the call returns, and written to the device in stream
 *                                    order
 *   device -> pageable               in stream order; the call returns when the copy is done (so it waits for all
 *                                    earlier work in the stream)
 *   host -> host                     likewise, unless both are page-locked
 *
 * cudaMemcpy is the same on the legacy stream, and waits, except for device to device copies; cudaMemset does not wait.
 * Copies between devices need no peer access: without it CUDA copies through the host. A range that exceeds its
 * allocation or registered range, or that does not match the given direction, is cudaErrorInvalidValue. So is, stricter
 * than CUDA, memory for which cudaFreeAsync was called. */
#include <cstring>

#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

namespace {

enum class Where { device, pinned, pageable, nowhere };

Where where_is(State &s, const void *address, size_t nbytes) {
    uintptr_t start = 0;
    size_t allocated = 0;
    if (s.arena->covers(address)) {
        if (!s.arena->find(address, nullptr, &start, &allocated)) return Where::nowhere;
        if (s.freeing.count(reinterpret_cast<void *>(start))) return Where::nowhere;
        bool fits = nbytes <= allocated - (reinterpret_cast<uintptr_t>(address) - start);
        return fits ? Where::device : Where::nowhere;
    }
    if (is_pinned(s, address, nbytes)) return Where::pinned;
    return touches_pinned(s, address) || !address ? Where::nowhere : Where::pageable;
}

bool fits_kind(Where to, Where from, cudaMemcpyKind kind) {
    switch (kind) {
    case cudaMemcpyDefault: return true;
    case cudaMemcpyHostToHost: return to != Where::device && from != Where::device;
    case cudaMemcpyHostToDevice: return to == Where::device && from != Where::device;
    case cudaMemcpyDeviceToHost: return to != Where::device && from == Where::device;
    case cudaMemcpyDeviceToDevice: return to == Where::device && from == Where::device;
    default: return false;
    }
}

Work copying(void *to, const void *from, size_t nbytes, bool staged) {
    if (!staged) {
        return [=] {
            std::memcpy(to, from, nbytes);
            return Progress::done;
        };
    }
    auto bytes = static_cast<const char *>(from);
    auto stage = std::make_shared<std::vector<char>>(bytes, bytes + nbytes);
    return [=] {
        std::memcpy(to, stage->data(), nbytes);
        return Progress::done;
    };
}

cudaError_t copy(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind, cudaStream_t handle,
                 bool synchronous) {
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t stream = find_stream(s, handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    cudaError_t error = synchronous ? refuse_while_capturing(s) : cudaSuccess;
    if (error != cudaSuccess) return error;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (nbytes == 0) return cudaSuccess;
    Where target = where_is(s, to, nbytes), source = where_is(s, from, nbytes);
    if (target == Where::nowhere || source == Where::nowhere || !fits_kind(target, source, kind)) {
        return stream->capture ? invalidate(stream, cudaErrorInvalidValue) : cudaErrorInvalidValue;
    }
    bool pageable = target == Where::pageable || source == Where::pageable;
    if (stream->capture && pageable) return invalidate(stream, cudaErrorStreamCaptureUnsupported);
    bool staged = source == Where::pageable && target == Where::device;
    int device = stream->device;
    ItemRef item;
    error = append(s, stream, {"copy", device, Kind::work, copying(to, from, nbytes, staged)}, &item);
    if (error != cudaSuccess) return error;
    bool waits = synchronous ? target != Where::device || source != Where::device : pageable && !staged;
    if (!waits) return cudaSuccess;
    s.host_waits++;
    wait_for(s, guard, item);
    return s.devices[static_cast<size_t>(device)].broken;
}

cudaError_t fill(void *memory, int value, size_t nbytes, cudaStream_t handle) {
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t stream = find_stream(s, handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (nbytes == 0) return cudaSuccess;
    Where target = where_is(s, memory, nbytes);
    if (target != Where::device && target != Where::pinned) return cudaErrorInvalidValue;
    auto work = [=] {
        if (value == 0 && target == Where::device) {
            Arena::make_zero(memory, nbytes);
        } else {
            std::memset(memory, value, nbytes);
        }
        return Progress::done;
    };
    return append(s, stream, {"fill", stream->device, Kind::work, work}, nullptr);
}

} // namespace

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind) {
    cudaError_t error = enter("cudaMemcpy");
    return error == cudaSuccess ? fail(copy(dst, src, count, kind, nullptr, true)) : error;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
    cudaError_t error = enter("cudaMemcpyAsync");
    return error == cudaSuccess ? fail(copy(dst, src, count, kind, stream, false)) : error;
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count) {
    cudaError_t error = enter("cudaMemset");
    return error == cudaSuccess ? fail(fill(devPtr, value, count, nullptr)) : error;
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream) {
    cudaError_t error = enter("cudaMemsetAsync");
    return error == cudaSuccess ? fail(fill(devPtr, value, count, stream)) : error;
}

} // extern "C"
