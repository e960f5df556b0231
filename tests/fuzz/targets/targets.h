/* The readers of bytes from elsewhere, as functions of the bytes alone. Each reads `data` as its kind of file (or
 * traffic) and aborts if the reader breaks a promise; memory errors and undefined behaviour are the sanitizers' to
 * find. They report nothing and keep nothing from one call to the next.
 *
 * tests/fuzz/entry gives them to libFuzzer (`make fuzz`); tests/fuzz/test_corpora.c replays the kept corpora on any
 * machine. */
#ifndef TESTS_FUZZ_TARGETS_H
#define TESTS_FUZZ_TARGETS_H

#include <stddef.h>
#include <stdint.h>

/* X(name): the function fuzz_NAME, in targets/NAME.c, with its corpus in corpus/NAME.tar.gz */
#define FUZZ_TARGET_MAP(X)                                                                                             \
    X(idx)                                                                                                             \
    X(npy)                                                                                                             \
    X(cifar)                                                                                                           \
    X(checkpoint)                                                                                                      \
    X(safetensors)                                                                                                     \
    X(store_protocol)                                                                                                  \
    X(workload)                                                                                                        \
    X(node)                                                                                                            \
    X(flight)                                                                                                          \
    X(trace) FUZZ_REPORT(X)

/* Without its two libraries there is no report to fuzz. */
#if __has_include(<md4c.h>) && __has_include(<expat.h>)
#define FUZZ_REPORT(X) X(report)
#else
#define FUZZ_REPORT(X)
#endif

#define FUZZ_DECLARE(name) void fuzz_##name(const uint8_t *data, size_t nbytes);
FUZZ_TARGET_MAP(FUZZ_DECLARE)
#undef FUZZ_DECLARE

/* An unnamed file in memory that holds just these bytes, and the path that opens it; the same file each time.
 * (memory_file.c) */
const char *fuzz_memory_file(const uint8_t *data, size_t nbytes);

/* A folder, removed at the end, in which each of the names (kept until then) leads to that file; few, each for a whole run. */
const char *fuzz_memory_folder(const char *const *names, int count);

/* Ends the process if a promise is broken. */
void fuzz_require(int holds, const char *promise);

#endif
