/* Shared by the writer and the reader of trace files. Private to common/trace. */
#ifndef LS_TRACE_CHROME_INTERNAL_H
#define LS_TRACE_CHROME_INTERNAL_H

#include <limits.h>

#include "common/trace/chrome.h"

/* The members of ls_trace_about in the header's "lockstep" object, under their own names: TEXT(field), WHOLE(field,
 * lowest, highest), FLAG(field). Beside them: format, run and median_step_ms (left out if not known), origin_us and
 * parameters, an array of [name, count]. */
#define LS_CHROME_ABOUT_MAP(TEXT, WHOLE, FLAG)                                                                         \
    TEXT(mode)                                                                                                         \
    TEXT(model)                                                                                                        \
    TEXT(precision)                                                                                                    \
    TEXT(optimizer)                                                                                                    \
    TEXT(device_kind)                                                                                                  \
    TEXT(device_name)                                                                                                  \
    TEXT(backend)                                                                                                      \
    TEXT(algorithm)                                                                                                    \
    TEXT(stream_mode)                                                                                                  \
    WHOLE(devices, 1, LS_CHROME_MOST)                                                                                  \
    WHOLE(world_size, 1, LS_CHROME_MOST)                                                                               \
    WHOLE(recorded_ranks, 1, LS_CHROME_MOST)                                                                           \
    WHOLE(batch_size, 0, LS_CHROME_LARGEST)                                                                            \
    WHOLE(micro_batches, 0, INT_MAX)                                                                                   \
    WHOLE(input_bytes, 0, LS_CHROME_LARGEST)                                                                           \
    WHOLE(output_bytes, 0, LS_CHROME_LARGEST)                                                                          \
    WHOLE(answer_bytes, 0, LS_CHROME_LARGEST)                                                                          \
    WHOLE(first_bucket_bytes, 0, LS_CHROME_LARGEST)                                                                    \
    WHOLE(bucket_bytes, 0, LS_CHROME_LARGEST)                                                                          \
    FLAG(overlap)                                                                                                      \
    FLAG(virtual_time)                                                                                                 \
    WHOLE(first_step, 0, INT_MAX)                                                                                      \
    WHOLE(steps, 1, INT_MAX)

#define LS_CHROME_BEGIN                                                                                                \
    "{\n\"lockstep\": {\"format\": "                  /* every file begins so; by it folder.c knows that it is ours */
#define LS_CHROME_FORMAT 1                            /* raised when a reader of this one would misunderstand */
#define LS_CHROME_MOST 1048576                        /* ranks, devices, lanes */
#define LS_CHROME_LARGEST ((int64_t)9007199254740991) /* 2^53 - 1: JSON's numbers are doubles */
#define LS_CHROME_MOST_BYTES ((size_t)16 << 30)       /* of a file; the trace takes about as much again */
#define LS_CHROME_LONGEST_US 1e15                     /* three decades */
#define LS_CHROME_EVENTS_LINE "\"traceEvents\": ["

/* The rank of "rank_N.pt.trace.json", as ls_trace_file_name writes it; LS_NONE: another name. */
int ls_chrome_rank_of(const char *name);

/* Prefixes of a task's name, by which tools classify kernels: HTA counts ^nccl.*Kernel as communication, ^Memcpy as
 * copying, and everything else as computing. */
#define LS_CHROME_COLLECTIVE_PREFIX "ncclDevKernel "
static inline const char *ls_chrome_prefix(const struct ls_task *task) {
    static const char *const copies[2][2] = {{"Memcpy HtoH ", "Memcpy HtoD "}, {"Memcpy DtoH ", "Memcpy DtoD "}};
    if (task->kind == LS_TASK_COLLECTIVE) return LS_CHROME_COLLECTIVE_PREFIX;
    if (task->kind == LS_TASK_COPY) return copies[task->from != LS_HOST_MEMORY][task->to != LS_HOST_MEMORY];
    return "";
}

/* The member of args with the name of a host task that launches work, since its event's name is CUDA's:
 * cudaLaunchKernel, cudaMemcpyAsync. Older files have the name itself there. */
#define LS_CHROME_LAUNCH "launch"
/* For copies, as in Kineto's files; not read back. */
#define LS_CHROME_BANDWIDTH "memory bandwidth (GB/s)"

/* Kineto's names of element types. X(ours, theirs) */
#define LS_CHROME_DTYPE_MAP(X)                                                                                         \
    X("fp32", "Float")                                                                                                 \
    X("fp16", "Half") X("bf16", "BFloat16") X("int32", "Int") X("int64", "Long") X("fp64", "Double")

#endif
