#include <math.h>

#include "common/trace/chrome.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/trace/small_trace.h"

int small_lane(ls_trace *trace, ls_lane_kind kind, int rank, int device) {
    return ls_trace_add_lane(trace, &(struct ls_lane){ls_lane_kind_name(kind), kind, rank, device});
}

int small_task(ls_trace *trace, ls_task_kind kind, const char *name, int lane) {
    struct ls_task task = ls_task_default(kind, name, lane);
    return ls_trace_add_task(trace, &task);
}

int small_collective(ls_trace *trace, int lane, uint32_t number, int ranks) {
    struct ls_task task = ls_task_default(LS_TASK_COLLECTIVE, "all_reduce", lane);
    struct ls_meeting meeting = {.group = "world",
                                 .number = number,
                                 .operation = "all_reduce",
                                 .algorithm = "ring",
                                 .ranks = ranks,
                                 .bytes = 4096,
                                 .elements = 1024,
                                 .dtype = "fp32"};
    task.bytes = 4096;
    task.meeting = ls_trace_join_meeting(trace, &meeting);
    return ls_trace_add_task(trace, &task);
}

/* Sets times and a step of the last task of the trace, with 1.5 us of probes. */
static void at(ls_trace *trace, bool timed, double start_us, double dur_us) {
    int last = ls_trace_task_count(trace) - 1;
    if (timed) ls_trace_set_times(trace, last, start_us - 0.25, start_us, start_us + dur_us);
}

static void add_rank(ls_trace *trace, int rank, bool timed) {
    double t = 5000.125 + rank; /* not near 0, as in a real run */
    int host = small_lane(trace, LS_LANE_HOST, rank, rank), compute = small_lane(trace, LS_LANE_COMPUTE, rank, rank);
    int copy = small_lane(trace, LS_LANE_COPY, rank, rank), comm = small_lane(trace, LS_LANE_COMM, rank, rank);
    struct ls_task task = ls_task_default(LS_TASK_HOST, "launch \"gemm\" \\ \x01 \xC3\xA9", host);
    task.us = 1.5;
    task.probes_us = 0.125;
    task.step = 7;
    task.phase = "forward";
    task.lock = 2;
    int launch = ls_trace_add_task(trace, &task);
    at(trace, timed, t + 0.25, 1.5);
    task = ls_task_default(LS_TASK_KERNEL, "gemm", compute);
    task.us = 12.345;
    task.step = 7;
    task.phase = "forward";
    task.bytes = 123456789012;
    task.flops = 3000000000000;
    task.fixed_bytes = 1e9;
    task.virtual_time = true;
    int kernel = ls_trace_add_task(trace, &task);
    at(trace, timed, t + 2, 12.345);
    task = ls_task_default(LS_TASK_COPY, "copy", copy);
    task.to = rank;
    task.bytes = 256;
    int copied = ls_trace_add_task(trace, &task);
    at(trace, timed, t + 3, 1);
    int reduced = small_collective(trace, comm, 5, 2);
    at(trace, timed, t + 15, 4);
    int wait = small_task(trace, LS_TASK_HOST, "wait for all_reduce", host);
    at(trace, timed, t + 14.75, 4.75); /* begins before the task that it waits for */
    ls_trace_add_edge(trace, copied, kernel);
    ls_trace_add_edge(trace, copied, kernel); /* a second edge adds nothing */
    ls_trace_add_edge(trace, launch, kernel); /* in any order */
    ls_trace_add_edge(trace, kernel, reduced);
    ls_trace_add_edge(trace, reduced, wait);
    struct ls_mark mark = {"gradient ready", compute, 7, 3, kernel, timed ? t + 14.5 : (double)NAN};
    ls_trace_add_mark(trace, &mark);
    mark = (struct ls_mark){"step", host, -1, -7, LS_NONE, timed ? t + 0.5 : (double)NAN};
    ls_trace_add_mark(trace, &mark);
}

ls_trace *small_trace(bool timed) {
    ls_trace *trace;
    assert_int_equal(ls_trace_create(&trace), LS_OK);
    struct ls_trace_about *about = ls_trace_about(trace);
    about->mode = ls_trace_text(trace, "ddp");
    about->model = ls_trace_text(trace, "mlp:784,\"10\"");
    about->backend = ls_trace_text(trace, "shm");
    about->run = 77;
    about->devices = about->world_size = about->recorded_ranks = 2;
    about->batch_size = 64;
    about->overlap = true;
    about->steps = 1;
    about->bucket_bytes = 26214400;
    about->median_step_ms = 0.1 + 0.2; /* needs all digits of a double */
    ls_trace_add_parameter(trace, &(struct ls_trace_parameter){"fc1.weight", 200704});
    ls_trace_add_parameter(trace, &(struct ls_trace_parameter){"fc1.bias", 256});
    add_rank(trace, 0, timed);
    add_rank(trace, 1, timed);
    return trace;
}

ls_trace *small_trace_sealed(bool timed) {
    ls_trace *trace = small_trace(timed);
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    return trace;
}

void small_trace_write(const char *name, bool timed) {
    ls_trace *trace = small_trace_sealed(timed);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(ls_trace_write_rank(trace, scratch_path(name), rank), LS_OK);
    ls_trace_destroy(trace);
}
