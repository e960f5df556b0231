/* The threads of a kernel on the CPU (tests/cuda_on_cpu/threads.cpp): the guarantees of CUDA to a block's threads, and
 * that kernels with a missing barrier are detected. */
#include <cuda_on_cpu_threads.h>
#include <stdbool.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/cuda/arrays.h"
#include "tests/cuda_on_cpu/selftest.h"

static const char *const orders[] = {"ascending", "descending", "random:1", "random:77"};
enum { ORDERS = sizeof orders / sizeof *orders };

static int setup(void **state) {
    (void)state;
    roomy_machine(1, "eager");
    return 0;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static void expect_three(const unsigned *got, unsigned x, unsigned y, unsigned z) {
    assert_int_equal(got[0], x);
    assert_int_equal(got[1], y);
    assert_int_equal(got[2], z);
}

static unsigned product(const unsigned *sizes) { return sizes[0] * sizes[1] * sizes[2]; }

/* Runs the kernel; the caller frees the result. */
static struct selftest_place *places_of(struct selftest_geometry g) {
    size_t nbytes = (size_t)product(g.grid) * product(g.block) * sizeof(struct selftest_place);
    struct selftest_place *places = malloc(nbytes), *memory = device_array(nbytes);
    unsigned *turns = device_array(sizeof *turns);
    assert_non_null(places);
    ok(selftest_places(NULL, g, memory, turns));
    from_device(places, memory, nbytes);
    ok(cudaFree(memory));
    return places;
}

TEST_WITH(setup, NULL, every_thread_runs_once_and_knows_its_place) {
    static const struct selftest_geometry geometries[] = {
        {{1, 1, 1}, {1, 1, 1}},  {{3, 1, 1}, {65, 1, 1}},   {{2, 3, 4}, {5, 3, 2}},   {{1, 5, 1}, {1, 7, 9}},
        {{7, 1, 2}, {1, 1, 64}}, {{1, 1, 1}, {1024, 1, 1}}, {{1, 1, 3}, {1, 1024, 1}}};
    for (size_t i = 0; i < ORDERS * sizeof geometries / sizeof *geometries; i++) {
        struct selftest_geometry g = geometries[i / ORDERS];
        cuda_on_cpu_set_thread_order(orders[i % ORDERS]);
        struct selftest_place *places = places_of(g);
        unsigned threads = product(g.block), count = threads * product(g.grid);
        char *taken = calloc(count, 1);
        assert_non_null(taken);
        for (unsigned p = 0; p < count; p++) {
            unsigned t = p % threads, b = p / threads;
            expect_three(places[p].thread, t % g.block[0], t / g.block[0] % g.block[1], t / g.block[0] / g.block[1]);
            expect_three(places[p].block, b % g.grid[0], b / g.grid[0] % g.grid[1], b / g.grid[0] / g.grid[1]);
            expect_three(places[p].block_dim, g.block[0], g.block[1], g.block[2]);
            expect_three(places[p].grid_dim, g.grid[0], g.grid[1], g.grid[2]);
            assert_true(places[p].turn < count);
            assert_int_equal(taken[places[p].turn]++, 0);
        }
        free(taken);
        free(places);
    }
}

TEST_WITH(setup, NULL, the_order_of_threads_and_blocks_can_be_chosen) {
    struct selftest_geometry g = {{5, 1, 1}, {100, 1, 1}};
    unsigned random_turns[2][500];
    for (int o = 0; o < ORDERS; o++) {
        /* by the environment or by a call */
        setenv("CUDA_ON_CPU_THREADS", orders[o], 1);
        if (o != 2) cuda_on_cpu_restart();
        if (o == 2) cuda_on_cpu_set_thread_order(orders[o]);
        struct selftest_place *places = places_of(g);
        unsigned moved = 0, alike = 0;
        for (unsigned p = 0; p < 500; p++) {
            if (o == 0) assert_int_equal(places[p].turn, p);
            if (o == 1) assert_int_equal(places[p].turn, 499 - p);
            assert_true(o < 2 || places[p].turn / 100 == places[p / 100 * 100].turn / 100); /* block after block */
            moved += places[p].turn != p;
            if (o >= 2) random_turns[o - 2][p] = places[p].turn;
        }
        if (o > 0) assert_true(moved > 250);
        for (unsigned t = 0; t < 100; t++) alike += places[t].turn % 100 == places[100 + t].turn % 100;
        assert_true(o < 2 ? alike == 100 : alike < 50); /* each block draws its own order */
        free(places);
    }
    assert_true(memcmp(random_turns[0], random_turns[1], sizeof random_turns[0]) != 0);
    unsetenv("CUDA_ON_CPU_THREADS");
}

/* --- barriers and shuffles ---------------------------------------------------------------------------------------- */

/* Counts the orders in which the kernel gives wrong results. */
typedef bool (*attempt)(bool with_barrier);

static int wrong_orders(attempt is_right, bool with_barrier) {
    int wrong = 0;
    for (int o = 0; o < ORDERS; o++) {
        cuda_on_cpu_set_thread_order(orders[o]);
        wrong += !is_right(with_barrier);
    }
    return wrong;
}

static bool reverse_is_right(bool with_barrier) {
    bool right = true;
    for (unsigned threads = 1; threads <= 1024; threads = 3 * threads + 1) {
        float in[1024], out[1024];
        for (unsigned i = 0; i < threads; i++) in[i] = (float)i + 1;
        float *device_in = to_device(in, threads * sizeof *in), *device_out = device_array(threads * sizeof *out);
        ok(selftest_reverse(NULL, threads, with_barrier, device_in, device_out));
        from_device(out, device_out, threads * sizeof *out);
        for (unsigned i = 0; i < threads; i++) right &= out[i] == in[threads - 1 - i];
    }
    return right;
}

static bool rounds_are_right(bool with_second_barrier) {
    enum { THREADS = 96, ROUNDS = 10 };
    float x[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) x[i] = (float)(100 * i);
    float *memory = to_device(x, sizeof x);
    ok(selftest_rounds(NULL, THREADS, ROUNDS, with_second_barrier, memory));
    from_device(x, memory, sizeof x);
    bool right = true;
    for (int i = 0; i < THREADS; i++) right &= x[i] == (float)(100 * (i > ROUNDS ? i - ROUNDS : 0) + ROUNDS);
    return right;
}

static bool swap_is_right(bool with_barrier) {
    enum { THREADS = 128 };
    float in[THREADS], out[THREADS];
    for (int i = 0; i < THREADS; i++) in[i] = (float)i + 1;
    float *device_in = to_device(in, sizeof in), *device_out = device_array(sizeof out);
    ok(selftest_swap(NULL, THREADS, with_barrier, device_in, device_out));
    from_device(out, device_out, sizeof out);
    bool right = true;
    for (int i = 0; i < THREADS; i++) right &= out[i] == in[i ^ 1];
    return right;
}

/* This gives the other tests of kernels their value: run in several orders, they fail if a barrier is missing. */
TEST_WITH(setup, NULL, a_kernel_without_its_barrier_is_wrong_in_some_order) {
    static const attempt attempts[] = {reverse_is_right, rounds_are_right, swap_is_right};
    for (int a = 0; a < 3; a++) {
        assert_int_equal(wrong_orders(attempts[a], true), 0);
        assert_true(wrong_orders(attempts[a], false) > 0);
    }
    /* One order is not enough: thread i reads the value that i - 1 wrote, and in descending order i runs first. */
    cuda_on_cpu_set_thread_order("descending");
    assert_true(rounds_are_right(false));
    cuda_on_cpu_set_thread_order("ascending");
    assert_false(rounds_are_right(false));
}

static bool chain_is_right(bool unused) {
    (void)unused;
    int x[9] = {0}, *memory = device_array(sizeof x);
    ok(selftest_chain(NULL, 8, memory));
    from_device(x, memory, sizeof x);
    return x[8] == 8;
}

TEST_WITH(setup, NULL, blocks_that_need_an_order_are_found) {
    assert_int_equal(wrong_orders(chain_is_right, false), ORDERS - 1);
}

TEST_WITH(setup, NULL, sums_of_blocks_are_right_in_every_order) {
    static double in[7 * 1024], out[7];
    for (unsigned threads = 32; threads <= 1024; threads += 31 * 32) {
        for (int o = 0; o < ORDERS; o++) {
            cuda_on_cpu_set_thread_order(orders[o]);
            for (unsigned i = 0; i < 7 * threads; i++) in[i] = (double)i;
            double *device_in = to_device(in, sizeof in), *device_out = device_array(sizeof out);
            ok(selftest_block_sums(NULL, 7, threads, device_in, device_out));
            from_device(out, device_out, sizeof out);
            for (unsigned b = 0; b < 7; b++) {
                assert_true(out[b] == (double)threads * threads * b + (double)threads * (threads - 1) / 2);
            }
        }
    }
}

/* The lane of the same part of the warp that CUDA's guide names; -1 if it does not exist. */
static int lane_asked_for(char kind, int lane, int argument, int width) {
    int first = lane / width * width, source = lane;
    if (kind == 'i') return first + (argument % width + width) % width;
    if (kind == 'u') source = lane - argument;
    if (kind == 'd') source = lane + argument;
    if (kind == 'x') source = lane ^ argument;
    if (source >= first + width) return lane;
    return kind == 'u' && source < first ? lane : source;
}

static void expect_shuffle(unsigned threads, char kind, int argument, int width, unsigned from) {
    int out[64], *memory = device_array(sizeof out);
    ok(selftest_shuffle(NULL, threads, kind, argument, width, from, memory));
    from_device(out, memory, sizeof out);
    for (int t = 0; t < 64; t++) {
        int source = t / 32 * 32 + lane_asked_for(kind, t % 32, argument, width);
        bool runs = t < (int)from && t < (int)threads, has_source = source < (int)from && source < (int)threads;
        assert_int_equal(out[t], !runs ? 0 : has_source ? source : -1);
    }
    ok(cudaFree(memory));
}

TEST_WITH(setup, NULL, shuffles_give_what_the_guide_says) {
    for (int o = 0; o < ORDERS; o++) {
        cuda_on_cpu_set_thread_order(orders[o]);
        for (int width = 1; width <= 32; width *= 2) {
            for (int argument = 0; argument < 34; argument += argument < 3 ? 1 : 6) {
                for (const char *kind = "iudx"; *kind; kind++) {
                    if (*kind == 'x' && argument > 31) continue;
                    expect_shuffle(64, *kind, argument, width, 64);
                }
            }
        }
        expect_shuffle(64, 'x', 16, 32, 40); /* lanes that have left */
        expect_shuffle(40, 'd', 8, 32, 64);  /* lanes that never existed */
    }
}

TEST_WITH(setup, NULL, lanes_may_shuffle_in_groups) {
    for (int o = 0; o < ORDERS; o++) {
        cuda_on_cpu_set_thread_order(orders[o]);
        int out[32], *memory = device_array(sizeof out);
        ok(selftest_halves(NULL, memory));
        from_device(out, memory, sizeof out);
        for (int i = 0; i < 32; i++) assert_int_equal(out[i], i % 2 == 0 ? 240 : 256);
    }
}
