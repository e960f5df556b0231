/* "CUDA on the CPU" captures graphs as CUDA does: which calls become nodes, in which order nodes may run, and which
 * calls are refused. */
#define _GNU_SOURCE
#include <pthread.h>

#include "tests/base/test.h"
#include "tests/cuda/machine.h"
#include "tests/cuda_on_cpu/selftest.h"

static const struct selftest_geometry one_thread = {{1, 1, 1}, {1, 1, 1}};

/* The objects that most tests need. */
struct bench {
    cudaStream_t a, b;
    cudaEvent_t event, other;
    float *x; /* page-locked, so that the host can read it and copies can be captured */
    float *d; /* device memory */
};

#define FLOATS 8

static struct bench new_bench(const char *streams) {
    struct bench bench;
    machine(1, streams);
    OK(cudaStreamCreateWithFlags(&bench.a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&bench.b, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&bench.event, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&bench.other, cudaEventDisableTiming));
    OK(cudaHostAlloc((void **)&bench.x, FLOATS * sizeof(float), 0));
    OK(cudaMalloc((void **)&bench.d, FLOATS * sizeof(float)));
    for (int i = 0; i < FLOATS; i++) bench.x[i] = (float)i;
    return bench;
}

static void copy(cudaStream_t stream, float *to, const float *from) {
    OK(cudaMemcpyAsync(to, from, sizeof *to, cudaMemcpyDefault, stream));
}

static void begin(const struct bench *bench) { OK(cudaStreamBeginCapture(bench->a, cudaStreamCaptureModeThreadLocal)); }

static cudaGraphExec_t end(const struct bench *bench, size_t nodes) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t count = 0;
    OK(cudaStreamEndCapture(bench->a, &graph));
    OK(cudaGraphGetNodes(graph, NULL, &count));
    assert_int_equal(count, nodes);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

/* An earlier call has broken the capture. */
static void end_in_vain(const struct bench *bench, cudaError_t error) {
    cudaGraph_t graph = (cudaGraph_t)bench->x;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    FAILS(error, cudaStreamEndCapture(bench->a, &graph));
    assert_null(graph);
    OK(cudaStreamIsCapturing(bench->a, &status));
    assert_int_equal(status, cudaStreamCaptureStatusNone);
    OK(cudaStreamSynchronize(bench->a)); /* the streams work again */
    OK(cudaStreamSynchronize(bench->b));
}

static void count(void *number) { ++*(int *)number; }

/* --- captures that succeed ---------------------------------------------------------------------------------------- */

TEST(a_graph_runs_at_each_launch_only) {
    struct bench bench = new_bench("eager");
    int runs = 0;
    begin(&bench);
    enum cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(bench.a, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    OK(cudaLaunchHostFunc(bench.a, count, &runs));
    copy(bench.a, bench.d, &bench.x[3]);
    copy(bench.a, &bench.x[0], bench.d);
    OK(selftest_nothing(bench.a, one_thread));
    assert_int_equal(cuda_on_cpu_kernel_launches(), 0);
    cudaGraphExec_t exec = end(&bench, 4);
    OK(cudaStreamSynchronize(bench.a));
    assert_int_equal(runs, 0);
    for (int launch = 1; launch <= 3; launch++) {
        bench.x[3] = (float)(10 * launch); /* read when the graph runs */
        OK(cudaGraphLaunch(exec, bench.a));
        OK(cudaStreamSynchronize(bench.a));
        assert_int_equal(runs, launch);
        assert_true(bench.x[0] == (float)(10 * launch));
        assert_int_equal(cuda_on_cpu_kernel_launches(), launch);
    }
    OK(cudaGraphLaunch(exec, bench.a));
    OK(cudaGraphExecDestroy(exec)); /* launched graphs still run */
    OK(cudaStreamSynchronize(bench.a));
    assert_int_equal(runs, 4);
    FAILS(cudaErrorInvalidValue, cudaGraphLaunch(exec, bench.a));
}

/* a: x1 -> d0, fork; b: d0 -> d1, join; a: d1 -> x0; meanwhile a: x2 -> d2, which is not ordered with b */
static int forks_and_joins(int seed, int joins) {
    char streams[32];
    snprintf(streams, sizeof streams, "shuffle:%d", seed);
    struct bench bench = new_bench(streams);
    OK(cudaMemsetAsync(bench.d, 0, FLOATS * sizeof(float), bench.a));
    OK(cudaStreamSynchronize(bench.a));
    begin(&bench);
    copy(bench.a, bench.d, &bench.x[1]);
    OK(cudaEventRecord(bench.event, bench.a));
    OK(cudaStreamWaitEvent(bench.b, bench.event, 0));
    copy(bench.b, &bench.d[1], bench.d);
    OK(cudaEventRecord(bench.other, bench.b));
    if (!joins) copy(bench.a, &bench.x[0], &bench.d[1]); /* too early: before the wait */
    OK(cudaStreamWaitEvent(bench.a, bench.other, 0));
    if (joins) copy(bench.a, &bench.x[0], &bench.d[1]);
    copy(bench.a, bench.d, &bench.x[2]);
    cudaGraphExec_t exec = end(&bench, 4);
    OK(cudaGraphLaunch(exec, bench.b));
    copy(bench.b, &bench.x[4], bench.d); /* after the whole graph */
    OK(cudaStreamSynchronize(bench.b));
    assert_true(bench.x[4] == 2);
    return bench.x[0] == 1;
}

TEST(captured_events_order_the_nodes) {
    int joined = 0, unjoined = 0;
    for (int seed = 0; seed < 40; seed++) {
        joined += forks_and_joins(seed, 1);
        unjoined += forks_and_joins(seed, 0);
    }
    assert_int_equal(joined, 40);
    assert_in_range(unjoined, 1, 39);
}

TEST(launches_of_one_graph_follow_one_another) {
    for (int seed = 0; seed < 20; seed++) {
        char streams[32];
        snprintf(streams, sizeof streams, "shuffle:%d", seed);
        struct bench bench = new_bench(streams);
        begin(&bench);
        for (int i = 0; i + 1 < FLOATS; i++) copy(bench.a, &bench.x[FLOATS - 1 - i], &bench.x[FLOATS - 2 - i]);
        cudaGraphExec_t exec = end(&bench, FLOATS - 1);
        for (int i = 1; i < FLOATS; i++) bench.x[i] = 9;
        OK(cudaGraphLaunch(exec, bench.a));
        OK(cudaGraphLaunch(exec, bench.b));
        OK(cudaDeviceSynchronize());
        for (int i = 0; i < FLOATS; i++) assert_true(bench.x[i] == (i < 3 ? 0 : 9));
    }
}

TEST(others_may_work_during_a_capture) {
    struct bench bench = new_bench("shuffle:1");
    begin(&bench);
    copy(bench.b, bench.d, &bench.x[5]); /* not captured */
    OK(cudaEventRecord(bench.event, bench.b));
    copy(bench.b, &bench.x[0], bench.d);
    assert_true(bench.x[0] == 0);
    (void)end(&bench, 0);
    OK(cudaStreamSynchronize(bench.b));
    assert_true(bench.x[0] == 5);
}

/* --- captures that fail ------------------------------------------------------------------------------------------- */

TEST(waiting_breaks_a_capture) {
    for (int what = 0; what < 11; what++) {
        struct bench bench = new_bench("eager");
        void *memory;
        float local;
        OK(cudaEventRecord(bench.event, bench.b));
        begin(&bench);
        cudaError_t error = cudaSuccess;
        if (what == 0) error = cudaStreamSynchronize(bench.a);
        if (what == 1) error = cudaStreamQuery(bench.a);
        if (what == 2) error = cudaDeviceSynchronize();
        if (what == 3) error = cudaMalloc(&memory, 4);
        if (what == 4) error = cudaFree(bench.d);
        if (what == 5) error = cudaMemcpy(&local, bench.d, sizeof local, cudaMemcpyDefault);
        if (what == 6) error = cudaEventQuery(bench.event);
        if (what == 7) error = cudaMemcpyAsync(&local, bench.d, sizeof local, cudaMemcpyDefault, bench.a);
        if (what == 8) error = cudaMemcpyAsync(bench.d, &local, sizeof local, cudaMemcpyDefault, bench.a);
        if (what == 9) error = cudaHostAlloc(&memory, 4, 0);
        if (what == 10) error = cudaEventSynchronize(bench.event);
        FAILS(cudaErrorStreamCaptureUnsupported, error);
        enum cudaStreamCaptureStatus status;
        OK(cudaStreamIsCapturing(bench.a, &status));
        assert_int_equal(status, cudaStreamCaptureStatusInvalidated);
        FAILS(cudaErrorStreamCaptureInvalidated, selftest_nothing(bench.a, one_thread));
        end_in_vain(&bench, cudaErrorStreamCaptureInvalidated);
    }
}

TEST(dependencies_stay_inside) {
    struct bench bench = new_bench("eager");
    OK(cudaEventRecord(bench.event, bench.b));
    begin(&bench);
    OK(cudaStreamWaitEvent(bench.a, bench.other, 0)); /* never recorded */
    FAILS(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(bench.a, bench.event, 0));
    end_in_vain(&bench, cudaErrorStreamCaptureInvalidated);

    begin(&bench);
    OK(cudaStreamBeginCapture(bench.b, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(bench.event, bench.b));
    FAILS(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(bench.a, bench.event, 0));
    cudaGraph_t graph;
    OK(cudaStreamEndCapture(bench.b, &graph));
    end_in_vain(&bench, cudaErrorStreamCaptureInvalidated);

    begin(&bench);
    OK(cudaEventRecord(bench.event, bench.a));
    OK(cudaStreamWaitEvent(bench.b, bench.event, 0));
    OK(selftest_nothing(bench.b, one_thread));
    end_in_vain(&bench, cudaErrorStreamCaptureUnjoined);

    begin(&bench);
    OK(cudaEventRecord(bench.event, bench.a));
    FAILS(cudaErrorCapturedEvent, cudaEventQuery(bench.event));
    end_in_vain(&bench, cudaErrorStreamCaptureInvalidated);
    FAILS(cudaErrorCapturedEvent, cudaEventSynchronize(bench.event)); /* until it is recorded elsewhere */
    FAILS(cudaErrorCapturedEvent, cudaStreamWaitEvent(bench.b, bench.event, 0));
    OK(cudaEventRecord(bench.event, bench.b));
    OK(cudaEventSynchronize(bench.event));
}

TEST(captures_begin_and_end_in_one_place) {
    struct bench bench = new_bench("eager");
    cudaGraph_t graph;
    FAILS(cudaErrorIllegalState, cudaStreamEndCapture(bench.a, &graph));
    FAILS(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal));
    begin(&bench);
    FAILS(cudaErrorIllegalState, cudaStreamBeginCapture(bench.a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(bench.event, bench.a));
    OK(cudaStreamWaitEvent(bench.b, bench.event, 0));
    FAILS(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(bench.b, &graph));
    end_in_vain(&bench, cudaErrorStreamCaptureInvalidated);
    begin(&bench);
    (void)end(&bench, 0);
}

/* The result of another thread's call while this one captures. */
static void *ask(void *event) { return (void *)(intptr_t)cudaEventQuery((cudaEvent_t)event); }

static cudaError_t ask_elsewhere(cudaEvent_t event) {
    pthread_t thread;
    void *error;
    assert_int_equal(pthread_create(&thread, NULL, ask, event), 0);
    assert_int_equal(pthread_join(thread, &error), 0);
    return (cudaError_t)(intptr_t)error;
}

static void *end_there(void *stream) {
    cudaGraph_t graph;
    return (void *)(intptr_t)cudaStreamEndCapture((cudaStream_t)stream, &graph);
}

TEST(the_mode_decides_about_other_threads) {
    struct bench bench = new_bench("eager");
    OK(cudaEventRecord(bench.event, bench.b));
    OK(cudaEventSynchronize(bench.event)); /* otherwise a query might be too early */
    begin(&bench);
    OK(ask_elsewhere(bench.event));
    pthread_t thread;
    void *error;
    assert_int_equal(pthread_create(&thread, NULL, end_there, bench.a), 0);
    assert_int_equal(pthread_join(thread, &error), 0);
    assert_int_equal((intptr_t)error, cudaErrorStreamCaptureWrongThread);
    (void)end(&bench, 0);

    OK(cudaStreamBeginCapture(bench.a, cudaStreamCaptureModeGlobal));
    FAILS(cudaErrorStreamCaptureUnsupported, ask_elsewhere(bench.event));
    end_in_vain(&bench, cudaErrorStreamCaptureInvalidated);

    OK(cudaStreamBeginCapture(bench.a, cudaStreamCaptureModeRelaxed));
    OK(cudaEventQuery(bench.event));
    (void)end(&bench, 0);

    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeGlobal);
    begin(&bench);
    OK(cudaEventQuery(bench.event));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    (void)end(&bench, 0);
}

TEST(a_capture_may_be_left_unended) {
    struct bench bench = new_bench("eager");
    begin(&bench);
    copy(bench.a, bench.d, bench.x);
    OK(cudaEventRecord(bench.event, bench.a));
    OK(cudaStreamWaitEvent(bench.b, bench.event, 0));
    OK(cudaStreamDestroy(bench.a));
    OK(cudaStreamSynchronize(bench.b)); /* no longer capturing */
    cuda_on_cpu_restart();
}
