/* timing — while the probes are on, records when a GPU ran each piece of work.
 *   idea  : an event before each piece of work and one after it. When a thread waits for the stream, their times are
 *           measured from a third event, which is recorded on the idle stream and reached while the host polls. So each
 *           wait relates the GPU's clock to the host's again
 *   cost  : nothing while the probes are off. On, two events per piece of work, some microseconds of the host and less
 *           than one of the GPU; per wait a few microseconds, and as many per piece of work since the last one. Events
 *           are reused
 *   order : pieces are reported in the order of the stream, as RUN records of a thread of their own ("GPUs"), since the
 *           host's threads did something else meanwhile. Durations are the GPU's (accurate to half a microsecond);
 *           times are as accurate as the host's observation of the third event, some microseconds
 *   graph : a launch of a CUDA graph is one piece of work; the operations captured into it show in a profiler only
 *   fails : work that cannot be timed has no RUN, and runs all the same */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/device/cuda/cuda_device.h"

enum { FIRST_ROOM = 64, LOOKS = 3 };

/* A piece of work; beyond `count`, only the events are of use. */
struct ls_cuda_timed {
    struct ls_probe_record record;
    cudaEvent_t begin, end;
};

static bool ok(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error == cudaSuccess;
}

static bool make_room(struct ls_cuda_timing *timing) {
    if (timing->count + 1 < timing->room) return true;
    size_t room = timing->room > 0 ? 2 * timing->room : FIRST_ROOM;
    struct ls_cuda_timed *grown = realloc(timing->timed, room * sizeof *grown);
    if (!grown) return false;
    for (size_t i = timing->room; i < room; i++) grown[i] = (struct ls_cuda_timed){.begin = NULL};
    timing->timed = grown;
    timing->room = room;
    return true;
}

static bool make_event(cudaEvent_t *event) { return *event || ok(cudaEventCreate(event)); }

bool ls_cuda_time_begin(ls_stream *stream, const char *label) {
    uint32_t number = ls_stream_launch_number(stream);
    if (number == 0 || ls_cuda_is_capturing(stream)) return false;
    struct ls_cuda_timing *timing = &ls_cuda_stream_of(stream)->timing;
    cudaStream_t native = ls_cuda_lane_of(stream)->stream;
    pthread_mutex_lock(&timing->lock);
    /* at the end of the list, but not counted yet: a thread that waits meanwhile removes the entries before it */
    bool begun = make_room(timing);
    struct ls_cuda_timed *timed = begun ? &timing->timed[timing->room - 1] : NULL;
    begun = begun && make_event(&timed->begin) && make_event(&timed->end) && ok(cudaEventRecord(timed->begin, native));
    if (begun) {
        timed->record = ls_probe_begin(LS_PROBE_RUN, label);
        timed->record.number = number;
        ls_probe_set_stream(&timed->record, stream);
    }
    pthread_mutex_unlock(&timing->lock);
    return begun;
}

void ls_cuda_time_end(ls_stream *stream) {
    struct ls_cuda_timing *timing = &ls_cuda_stream_of(stream)->timing;
    cudaStream_t native = ls_cuda_lane_of(stream)->stream;
    pthread_mutex_lock(&timing->lock);
    struct ls_cuda_timed *open = &timing->timed[timing->room - 1], *place = &timing->timed[timing->count],
                         begun = *open;
    if (ok(cudaEventRecord(begun.end, native))) {
        *open = *place;
        *place = begun;
        timing->count++;
    }
    pthread_mutex_unlock(&timing->lock);
}

/* Records `now` on an idle stream; the host's time at which it was reached, from the shortest query. < 0: not known. */
static double look_at_clock(struct ls_cuda_timing *timing, cudaStream_t stream) {
    double at_us = -1, shortest_us = 0;
    for (int i = 0; i < LOOKS; i++) {
        cudaEvent_t *now = &timing->now[at_us < 0 ? 0 : 1];
        double begin_us = ls_now_us();
        if (!make_event(now) || !ok(cudaEventRecord(*now, stream)) || !ok(cudaEventSynchronize(*now))) break;
        double us = ls_now_us() - begin_us;
        if (at_us >= 0 && us >= shortest_us) continue;
        if (at_us >= 0) { /* the event of the shorter query is kept */
            cudaEvent_t kept = timing->now[1];
            timing->now[1] = timing->now[0];
            timing->now[0] = kept;
        }
        shortest_us = us;
        at_us = begin_us + us / 2;
    }
    return at_us;
}

void ls_cuda_time_tell(ls_stream *stream) {
    struct ls_cuda_timing *timing = &ls_cuda_stream_of(stream)->timing;
    pthread_mutex_lock(&timing->lock);
    double now_us = ls_probing() && timing->count > 0 ? look_at_clock(timing, ls_cuda_lane_of(stream)->stream) : -1;
    for (size_t i = 0; i < timing->count && now_us >= 0; i++) {
        struct ls_cuda_timed *timed = &timing->timed[i];
        float since_begin_ms, ran_ms;
        if (!ok(cudaEventElapsedTime(&since_begin_ms, timed->begin, timing->now[0]))) continue;
        if (!ok(cudaEventElapsedTime(&ran_ms, timed->begin, timed->end))) continue;
        timed->record.begin_us = now_us - (double)since_begin_ms * 1e3;
        timed->record.end_us = timed->record.begin_us + (double)ran_ms * 1e3;
        ls_probe_tell(&timed->record);
    }
    timing->count = 0;
    pthread_mutex_unlock(&timing->lock);
}

void ls_cuda_timing_close(struct ls_cuda_timing *timing, bool abandon) {
    for (size_t i = 0; i < timing->room && !abandon; i++) {
        if (timing->timed[i].begin) (void)cudaEventDestroy(timing->timed[i].begin);
        if (timing->timed[i].end) (void)cudaEventDestroy(timing->timed[i].end);
    }
    for (int i = 0; i < 2 && !abandon; i++) {
        if (timing->now[i]) (void)cudaEventDestroy(timing->now[i]);
    }
    free(timing->timed);
    pthread_mutex_destroy(&timing->lock);
}
