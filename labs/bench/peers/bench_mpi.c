/* bench_mpi — MPI_Allreduce, measured as bench_comm measures ours: fp32 sums in place, buffers that rotate over twice
 * the last-level cache, loops that all ranks begin together after a barrier, the slowest rank's time. bench_comm
 * --compare runs it:
 *     mpirun -n N bench_mpi RUNS RUN_MS CACHE_BYTES SIZE...
 * Rank 0 prints the lines that labs/bench/comm/others.c describes. Every result is checked before and after. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS_MAX = 100000 };

struct bench {
    int rank, n, runs;
    double run_us;
    size_t set_bytes; /* of one rank's buffers */
    float *set;
    size_t count, slot_count, next_slot;
};

static float value_of(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 3) % 5); }

static void fail(const char *what) {
    fprintf(stderr, "bench_mpi: error: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void reduce(const struct bench *bench, size_t slot) {
    MPI_Allreduce(MPI_IN_PLACE, bench->set + slot * bench->count, (int)bench->count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void check(const struct bench *bench) {
    float *slot = bench->set + bench->next_slot * bench->count;
    for (size_t i = 0; i < bench->count; i++) slot[i] = value_of(bench->rank, i);
    reduce(bench, bench->next_slot);
    for (size_t i = 0; i < bench->count; i++) {
        float expected = 0;
        for (int r = 0; r < bench->n; r++) expected += value_of(r, i);
        if (slot[i] != expected) fail("a result is wrong");
    }
}

/* The slowest rank's time, on all ranks. */
static double time_loop(struct bench *bench, int iterations) {
    double slowest_us;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin_s = MPI_Wtime();
    for (int i = 0; i < iterations; i++) {
        reduce(bench, bench->next_slot);
        if (++bench->next_slot == bench->slot_count) bench->next_slot = 0;
    }
    double elapsed_us = (MPI_Wtime() - begin_s) * 1e6;
    MPI_Allreduce(&elapsed_us, &slowest_us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest_us;
}

/* The number of operations that fill a run, from loops that grow until they are long enough to time; of two the faster
 * counts. */
static int choose_iterations(struct bench *bench) {
    double wanted = 1;
    for (int told = 0; !told;) {
        int iterations = (int)wanted;
        double slowest_us = time_loop(bench, iterations), again_us = time_loop(bench, iterations);
        if (again_us < slowest_us) slowest_us = again_us;
        double fitting = wanted * bench->run_us / (slowest_us > 0.1 ? slowest_us : 0.1);
        told = slowest_us * 4 >= bench->run_us || iterations == ITERATIONS_MAX;
        wanted = told || fitting < 8 * wanted ? fitting : 8 * wanted;
        if (wanted < 1) wanted = 1;
        if (wanted > ITERATIONS_MAX) wanted = ITERATIONS_MAX;
    }
    return (int)wanted;
}

static void measure_size(struct bench *bench, size_t nbytes) {
    size_t stride_bytes = (nbytes + 63) / 64 * 64;
    bench->slot_count = (bench->set_bytes + stride_bytes - 1) / stride_bytes;
    bench->count = nbytes / sizeof(float);
    bench->next_slot = 0;
    float *memory = NULL;
    if (bench->slot_count == 0) bench->slot_count = 1;
    if (posix_memalign((void **)&memory, 4096, bench->slot_count * stride_bytes) != 0) fail("no memory");
    memset(memory, 0, bench->slot_count * stride_bytes);
    bench->set = memory;
    check(bench);
    int iterations = choose_iterations(bench);
    for (int run = 0; run < bench->runs; run++) {
        double slowest_us = time_loop(bench, iterations);
        if (bench->rank == 0) printf("run,%zu,%d,%.9g\n", nbytes, iterations, slowest_us / iterations);
    }
    check(bench);
    free(memory);
}

int main(int argc, char **argv) {
    struct bench bench;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.n);
    if (argc < 5) fail("usage: bench_mpi RUNS RUN_MS CACHE_BYTES SIZE...");
    bench.runs = atoi(argv[1]);
    bench.run_us = atof(argv[2]) * 1e3;
    bench.set_bytes = 2 * (size_t)strtoull(argv[3], NULL, 10) / (size_t)bench.n;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",")] = '\0';
    if (bench.rank == 0) printf("library,%s\n", version);
    for (int i = 4; i < argc; i++) measure_size(&bench, (size_t)strtoull(argv[i], NULL, 10));
    if (fflush(stdout) != 0 || ferror(stdout)) fail("cannot write the results to standard output");
    MPI_Finalize();
    return 0;
}
