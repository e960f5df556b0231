/* Flags, half-precision conversions, statuses and hash functions. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/dtype.h"
#include "common/base/flag.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "tests/base/test.h"

/* --- flags ------------------------------------------------------------------------------------------------------- */

static double soon_us(void) { return ls_now_us() + 20e6; }

TEST(a_flag_compares_modulo_its_range) {
    ls_flag flag = {0};
    assert_int_equal(ls_flag_value(&flag), 0);
    assert_true(ls_flag_reached(&flag, 0));
    assert_false(ls_flag_reached(&flag, 1));
    assert_int_equal(ls_flag_raise(&flag), 1);
    assert_true(ls_flag_reached(&flag, 1));
    ls_flag_set(&flag, UINT32_MAX);
    assert_true(ls_flag_reached(&flag, UINT32_MAX - 5));
    assert_false(ls_flag_reached(&flag, 0)); /* one step ahead */
    assert_int_equal(ls_flag_raise(&flag), 0);
    assert_true(ls_flag_reached(&flag, UINT32_MAX));
    assert_true(ls_flag_reached(&flag, 0));
    assert_false(ls_flag_reached(&flag, 1));
    assert_true(ls_flag_wait(&flag, UINT32_MAX, 0, 0)); /* reached: the deadline does not matter */
}

static bool is_true(void *context) { return *(bool *)context; }

TEST(waiting_ends_at_the_deadline) {
    ls_flag flag = {0};
    for (int spins = 0; spins < 2; spins++) {
        double spin_us = spins ? 2000 : 0;
        double start_us = ls_now_us();
        assert_false(ls_flag_wait(&flag, 1, spin_us, start_us + 30e3));
        assert_true(ls_now_us() - start_us >= 29e3);
        assert_false(ls_flag_wait(&flag, 1, spin_us, ls_now_us() - 1));
    }
    bool there = false;
    ls_patience patience = {.spin_us = 2000, .yield_us = 2000};
    double start_us = ls_now_us();
    assert_false(ls_flag_await(&flag, is_true, &there, patience, 30e3));
    assert_true(ls_now_us() - start_us >= 29e3);
    there = true;
    assert_true(ls_flag_await(&flag, is_true, &there, patience, 0)); /* already reached: the limit does not matter */
    assert_int_equal(flag.sleepers, 0);
}

/* Two threads that alternate: each writes non-atomic memory, raises its flag and waits for the other's. */
struct ping_pong {
    ls_flag ping, pong;
    double spin_us;
    uint32_t start, rounds;
    uint32_t ball; /* accessed only by the thread whose turn it is */
    bool lost;
};

static void serve(struct ping_pong *p) {
    for (uint32_t i = p->start + 1; i != p->start + 1 + p->rounds; i++) {
        p->ball = i;
        ls_flag_set(&p->ping, i);
        if (!ls_flag_wait(&p->pong, i, p->spin_us, soon_us()) || p->ball != ~i) p->lost = true;
    }
}

static void *answer(void *argument) {
    struct ping_pong *p = argument;
    for (uint32_t i = p->start + 1; i != p->start + 1 + p->rounds; i++) {
        bool reached = ls_flag_wait(&p->ping, i, p->spin_us, soon_us());
        p->ball = reached && p->ball == i ? ~i : i;
        ls_flag_raise(&p->pong);
    }
    return NULL;
}

/* Across the wrap-around of the counter, with sleeping and with spinning waits. */
TEST(threads_answer_each_other) {
    for (int spins = 0; spins < 2; spins++) {
        struct ping_pong p = {.spin_us = spins ? 50 : 0, .start = UINT32_MAX - 200, .rounds = 1000};
        ls_flag_set(&p.ping, p.start);
        ls_flag_set(&p.pong, p.start);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, answer, &p), 0);
        serve(&p);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_false(p.lost);
        assert_int_equal(ls_flag_value(&p.pong), p.start + p.rounds);
    }
}

TEST(processes_answer_each_other) {
    struct ping_pong *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    p->rounds = 500;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        (void)answer(p);
        _exit(0);
    }
    serve(p);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(p->lost);
    munmap(p, sizeof *p);
}

/* --- a bell: the condition is outside the flag -------------------------------------------------------------------- */

enum { SIDES = 3, MEETINGS = 600 };

/* Each thread writes its own number and reads all; the last one wakes the others. */
struct meeting {
    ls_flag bell;
    ls_patience patience;
    double until_us;
    _Atomic int next_side, come[SIDES];
    int plain[SIDES]; /* guarded by come */
    _Atomic bool lost;
};

struct step_of_meeting {
    struct meeting *meeting;
    int step;
};

static bool all_have_come(void *context) {
    const struct step_of_meeting *at = context;
    for (int i = 0; i < SIDES; i++)
        if (atomic_load(&at->meeting->come[i]) < at->step) return false;
    return true;
}

static void *meet_often(void *argument) {
    struct meeting *meeting = argument;
    int self = atomic_fetch_add(&meeting->next_side, 1);
    for (int step = 1; step <= MEETINGS && !meeting->lost; step++) {
        struct step_of_meeting at = {meeting, step};
        if (step % 2 == 1)
            meeting->plain[self] = step; /* read by the others before they reach the next step, an even one */
        atomic_store(&meeting->come[self], step);
        if (all_have_come(&at)) {
            ls_flag_ring(&meeting->bell);
        } else if (!ls_flag_await(&meeting->bell, all_have_come, &at, meeting->patience,
                                  meeting->until_us - ls_now_us())) {
            meeting->lost = true;
        }
        for (int i = 0; step % 2 == 1 && i < SIDES; i++)
            if (meeting->plain[i] != step) meeting->lost = true;
    }
    return NULL;
}

/* A lost wake-up delays a thread by one interval of its sleep; many of them exceed the deadline. */
TEST(a_bell_wakes_all_sleepers) {
    const ls_patience patiences[] = {{0}, {.yield_us = 100}, {.spin_us = 50}};
    for (int p = 0; p < 3; p++) {
        struct meeting meeting = {.patience = patiences[p], .until_us = soon_us()};
        pthread_t threads[SIDES];
        for (int i = 0; i < SIDES; i++) assert_int_equal(pthread_create(&threads[i], NULL, meet_often, &meeting), 0);
        for (int i = 0; i < SIDES; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(meeting.lost);
        assert_int_equal(meeting.bell.sleepers, 0);
    }
}

/* --- many threads: every raise counts, all waiters wake ----------------------------------------------------------- */

enum { CROWD = 4, RAISES = 500 };

static void *raise_and_wait(void *argument) {
    ls_flag *flag = argument;
    for (int i = 0; i < RAISES; i++) ls_flag_raise(flag);
    return ls_flag_wait(flag, CROWD * RAISES, 0, soon_us()) ? flag : NULL;
}

TEST(raises_of_many_threads_add_up) {
    ls_flag flag = {0};
    pthread_t threads[CROWD];
    for (int t = 0; t < CROWD; t++) assert_int_equal(pthread_create(&threads[t], NULL, raise_and_wait, &flag), 0);
    for (int t = 0; t < CROWD; t++) {
        void *woken = NULL;
        assert_int_equal(pthread_join(threads[t], &woken), 0);
        assert_ptr_equal(woken, &flag);
    }
    assert_int_equal(ls_flag_value(&flag), CROWD * RAISES);
}

TEST(cores_decide_about_spinning) {
    int cores = ls_usable_cores();
    assert_true(cores >= 1);
    assert_true(ls_spin_us_for(cores) > 0);
    assert_true(ls_spin_us_for(cores + 1) == 0);
    for (int level = 1; level < 3; level++) {
        double inner = ls_cache_bytes(level), outer = ls_cache_bytes(level + 1);
        assert_true(inner >= 0 && inner < 1e10);
        assert_true(inner == 0 || outer == 0 || inner <= outer);
    }
    assert_true(ls_cache_bytes(99) == 0);
}

/* --- half precision ---------------------------------------------------------------------------------------------- */

struct conversion {
    float value;
    uint16_t bits;
};

TEST(known_fp16_values) {
    static const struct conversion exact[] = {
        {0.0f, 0x0000},         {-0.0f, 0x8000},       {1.0f, 0x3c00},          {-2.0f, 0xc000},    {65504.0f, 0x7bff},
        {0x1p-14f, 0x0400},     {0x1p-24f, 0x0001},    {-0x1p-24f, 0x8001},     {INFINITY, 0x7c00}, {-INFINITY, 0xfc00},
        {0x1.ff8p-15f, 0x03ff}, {0x1.554p-2f, 0x3555}, {1.0009765625f, 0x3c01},
    };
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        assert_int_equal(ls_fp16_from_float(exact[i].value), exact[i].bits);
        assert_true(ls_fp16_to_float(exact[i].bits) == exact[i].value);
        assert_true(signbit(ls_fp16_to_float(exact[i].bits)) == signbit(exact[i].value));
    }
    static const struct conversion rounded[] = {
        {1.0f + 0x1p-11f, 0x3c00},     /* a tie: to the even neighbour below */
        {1.0f + 0x1.8p-10f, 0x3c02},   /* a tie: to the even neighbour above */
        {1.0f + 0x1.002p-11f, 0x3c01}, /* just more than half */
        {2047.5f, 0x6800},             /* rounds up to the next power of two */
        {65519.996f, 0x7bff},          /* the largest that does not overflow */
        {65520.0f, 0x7c00},
        {-65520.0f, 0xfc00},
        {1e30f, 0x7c00},
        {0x1p-25f, 0x0000}, /* half of the smallest subnormal: to even, zero */
        {0x1.002p-25f, 0x0001},
        {0x1.8p-24f, 0x0002},
        {0x1.4p-23f, 0x0002},
        {0x1.ffcp-15f, 0x0400}, /* a subnormal rounds up to the smallest normal */
        {1e-30f, 0x0000},
        {-1e-30f, 0x8000},
    };
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        assert_int_equal(ls_fp16_from_float(rounded[i].value), rounded[i].bits);
    }
    assert_true(isnan(ls_fp16_to_float(ls_fp16_from_float(NAN))));
}

TEST(known_bf16_values) {
    static const struct conversion pairs[] = {
        {0.0f, 0x0000},           {-0.0f, 0x8000},           {1.0f, 0x3f80},
        {-2.0f, 0xc000},          {INFINITY, 0x7f80},        {-INFINITY, 0xff80},
        {0x1p-133f, 0x0001},      {0x1.fep127f, 0x7f7f},     {1 + 0x1p-8f, 0x3f80}, /* a tie: to even, below */
        {1 + 0x1.8p-7f, 0x3f82},                                                    /* a tie: to even, above */
        {1 + 0x1.02p-8f, 0x3f81}, {0x1.fffffep127f, 0x7f80},                        /* the largest float overflows */
        {0x1p-134f, 0x0000},                                                        /* half of the smallest subnormal */
        {0x1.8p-133f, 0x0002},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_int_equal(ls_bf16_from_float(pairs[i].value), pairs[i].bits);
        if (i < 8) assert_true(ls_bf16_to_float(pairs[i].bits) == pairs[i].value);
    }
    uint32_t quiet_only_below = 0x7f800001; /* a NaN whose upper 16 bits alone would be infinity */
    float nan_value;
    memcpy(&nan_value, &quiet_only_below, sizeof nan_value);
    assert_true(isnan(ls_bf16_to_float(ls_bf16_from_float(nan_value))));
    assert_true(isnan(ls_bf16_to_float(ls_bf16_from_float(NAN))));
}

TEST(every_half_survives_the_round_trip) {
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
        float fp16 = ls_fp16_to_float((uint16_t)bits), bf16 = ls_bf16_to_float((uint16_t)bits);
        bool fp16_nan = (bits & 0x7fff) > 0x7c00, bf16_nan = (bits & 0x7fff) > 0x7f80;
        assert_true(fp16_nan ? isnan(fp16) && isnan(ls_fp16_to_float(ls_fp16_from_float(fp16)))
                             : ls_fp16_from_float(fp16) == bits);
        assert_true(bf16_nan ? isnan(bf16) && isnan(ls_bf16_to_float(ls_bf16_from_float(bf16)))
                             : ls_bf16_from_float(bf16) == bits);
        double value = ldexp((double)(bits & 0x3ff) + ((bits & 0x7c00) ? 1024 : 0),
                             (int)((bits & 0x7c00) ? (bits >> 10 & 0x1f) : 1) - 25);
        if ((bits & 0x7c00) != 0x7c00) assert_true((double)fp16 == (bits & 0x8000 ? -value : value));
    }
}

TEST(element_types) {
    static const char *const names[] = {"fp32", "fp16", "bf16", "int32", "int64", "fp64"};
    static const size_t nbytes[] = {4, 2, 2, 4, 8, 8};
    assert_int_equal(LS_DTYPE_COUNT, 6);
    for (int t = 0; t < LS_DTYPE_COUNT; t++) {
        assert_string_equal(ls_dtype_name((ls_dtype)t), names[t]);
        assert_int_equal(ls_dtype_nbytes((ls_dtype)t), nbytes[t]);
    }
}

/* --- statuses and the hash --------------------------------------------------------------------------------------- */

TEST(statuses_have_texts_and_exit_codes) {
    assert_string_equal(ls_status_text(LS_OK), "success");
    assert_string_equal(ls_status_text(LS_ERR_TIMEOUT), "a peer missed its deadline");
    assert_string_equal(ls_status_text((ls_status)-1000), "unknown status");
    static const struct {
        ls_status status;
        int code;
    } codes[] = {{LS_OK, 0},          {LS_ERR_INVALID, 1}, {LS_ERR_USAGE, 2},    {LS_ERR_NO_MEMORY, 1},
                 {LS_ERR_IO, 1},      {LS_ERR_FORMAT, 1},  {LS_ERR_SYSTEM, 1},   {LS_ERR_PEER, 3},
                 {LS_ERR_TIMEOUT, 3}, {(ls_status)7, 1},   {(ls_status)-1000, 1}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        assert_int_equal(ls_status_exit_code(codes[i].status), codes[i].code);
    }
}

/* FNV-1a's published values. */
TEST(known_hashes) {
    assert_true(ls_hash(LS_HASH_SEED, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(ls_hash(LS_HASH_SEED, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(ls_hash(LS_HASH_SEED, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(ls_hash(ls_hash(LS_HASH_SEED, "foo", 3), "bar", 3) == UINT64_C(0x85944171f73967e8));
}
