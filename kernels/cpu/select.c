/* select — selects the build of the variant kernels for this processor. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "common/base/log.h"
#include "kernels/cpu/cpu.h"

#if defined(__x86_64__)
extern const struct ls_kernels ls_cpu_kernels_v2, ls_cpu_kernels_v3, ls_cpu_kernels_v4;

/* fp16 conversions, which not every compiler's __builtin_cpu_supports knows. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static bool runs_v3(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
           has_f16c();
}

static bool runs_v4(void) {
    return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#else
extern const struct ls_kernels ls_cpu_kernels_plain;
#endif
static bool runs_anywhere(void) { return true; }

/* best first */
static const struct build {
    const struct ls_kernels *kernels;
    bool (*runs_here)(void);
} builds[] = {
#if defined(__x86_64__)
    {&ls_cpu_kernels_v4, runs_v4},
    {&ls_cpu_kernels_v3, runs_v3},
    {&ls_cpu_kernels_v2, runs_anywhere},
#else
    {&ls_cpu_kernels_plain, runs_anywhere},
#endif
};

static const struct ls_kernels *choose(void) {
    const char *wanted = getenv("LS_CPU_ISA");
    const size_t count = sizeof builds / sizeof *builds;
    const struct ls_kernels *best = builds[count - 1].kernels;
    for (size_t i = count; i-- > 0;) { /* the best is last */
        if (!builds[i].runs_here()) continue;
        best = builds[i].kernels;
        if (wanted && strcmp(wanted, builds[i].kernels->name) == 0) return builds[i].kernels;
    }
    if (wanted) ls_warn("LS_CPU_ISA=%s is not a build that runs here; using %s", wanted, best->name);
    return best;
}

ls_status ls_cpu_kernels_check(void) {
    const char *wanted = getenv("LS_CPU_ISA");
    char known[64] = "";
    size_t length = 0;
    for (size_t i = 0; wanted && i < sizeof builds / sizeof *builds; i++) {
        if (!builds[i].runs_here()) continue;
        if (strcmp(wanted, builds[i].kernels->name) == 0) return ls_cpu_gemm_prepare();
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", length > 0 ? ", " : "",
                                   builds[i].kernels->name);
    }
    if (!wanted) return ls_cpu_gemm_prepare();
    return ls_fail(LS_ERR_USAGE, "LS_CPU_ISA is \"%s\"; this processor takes one of %s", wanted, known);
}

const struct ls_kernels *ls_cpu_kernels(void) {
    static _Atomic(const struct ls_kernels *) chosen; /* several threads may choose at once: they choose the same */
    const struct ls_kernels *kernels = atomic_load_explicit(&chosen, memory_order_acquire);
    if (!kernels) {
        kernels = choose();
        atomic_store_explicit(&chosen, kernels, memory_order_release);
    }
    return kernels;
}
