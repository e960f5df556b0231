/* Readers of untrusted bytes, as functions of the bytes alone. Each reads `data` as its kind of file (or traffic) and
 * aborts if the reader violates its interface; sanitizers find memory errors and undefined behaviour. They print
 * nothing and keep no state between calls.
 *
 * tests/fuzz/entry passes them to libFuzzer (`make fuzz`); tests/fuzz/test_corpora.c replays the kept corpora on any
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

/* Without its two libraries the report cannot be fuzzed. */
#if __has_include(<md4c.h>) && __has_include(<expat.h>)
#define FUZZ_REPORT(X) X(report)
#else
#define FUZZ_REPORT(X)
#endif

#define FUZZ_DECLARE(name) void fuzz_##name(const uint8_t *data, size_t nbytes);
FUZZ_TARGET_MAP(FUZZ_DECLARE)
#undef FUZZ_DECLARE

/* An unnamed file in memory with these bytes, and the path that opens it; the same file for each call.
 * (memory_file.c) */
const char *fuzz_memory_file(const uint8_t *data, size_t nbytes);

/* A folder, removed at the end, in which each of the names (which must stay valid) links to that file. For a few files,
 * each of which is used for a whole run. */
const char *fuzz_memory_folder(const char *const *names, int count);

/* Ends the process if `condition` is false. */
void fuzz_require(int holds, const char *promise);

#endif
