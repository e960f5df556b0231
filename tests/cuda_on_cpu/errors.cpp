/* Names and texts of CUDA's errors, and the last error of each thread. The texts are CUDA's own, so that messages in
 * tests look as on a GPU. */
#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

namespace {

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};

#define ROW(name, number, text) {cuda##name, "cuda" #name, text},
const ErrorText rows[] = {CUDA_ON_CPU_ERRORS(ROW)};
#undef ROW

const ErrorText *find(cudaError_t error) {
    for (const ErrorText &row : rows) {
        if (row.error == error) return &row;
    }
    return nullptr;
}

thread_local cudaError_t last = cudaSuccess;

} // namespace

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) last = error;
    return error;
}

/* A broken context returns its error for ever. */
static cudaError_t context_error() {
    if (forked_too_late()) return cudaSuccess;
    State &s = state();
    Guard guard(s.lock);
    auto device = static_cast<size_t>(current_device());
    return device < s.devices.size() ? s.devices[device].broken : cudaSuccess;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaGetLastError(void) {
    cudaError_t broken = context_error(), error = last;
    last = cudaSuccess;
    return broken != cudaSuccess ? broken : error;
}

const char *cudaGetErrorName(cudaError_t error) {
    const ErrorText *row = find(error);
    return row ? row->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    const ErrorText *row = find(error);
    return row ? row->text : "unrecognized error code";
}

} // extern "C"
