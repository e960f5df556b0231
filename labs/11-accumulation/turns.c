#include "labs/11-accumulation/turns.h"

#include <stdio.h>
#include <string.h>

#include "common/seam/step.h"

enum { DEVICES = 3, PLACES = LS_MOST_BATCH_PLACES };

/* The members of the table that are called after prepare, in order. */
enum call { FORWARD_BACKWARD, REDUCE, APPLY, CALLS };
static const char *const call_names[CALLS] = {"forward_backward", "reduce", "apply"};

static struct {
    ls_parallel base;
    ls_device *devices[DEVICES]; /* two of the process, and the one that computes the loss */
    ls_stream *stream;
    char calls[160];
    enum call failing;  /* CALLS: none */
    ls_status returned; /* status of the call that fails */
    int poisoned;       /* the device that fails in it; -1: none */
    /* while the end of a backward is checked */
    bool is_watched;
    char records[80];
} fake;

static ls_status answer(enum call call) {
    size_t length = strlen(fake.calls);
    snprintf(fake.calls + length, sizeof fake.calls - length, "%s%s", length ? ", " : "", call_names[call]);
    if (call != fake.failing) return LS_OK;
    if (fake.poisoned >= 0) ls_device_fail(fake.devices[fake.poisoned], LS_ERR_DIVERGED);
    return fake.returned;
}

static ls_status forward_backward(ls_parallel *p) {
    (void)p;
    return answer(FORWARD_BACKWARD);
}
static ls_status reduce(ls_parallel *p) {
    (void)p;
    return answer(REDUCE);
}
static ls_status apply(ls_parallel *p) {
    (void)p;
    return answer(APPLY);
}

static const struct ls_parallel_ops ops = {.forward_backward = forward_backward, .reduce = reduce, .apply = apply};

static ls_status open_fake(void) {
    memset(&fake, 0, sizeof fake);
    fake.failing = CALLS;
    fake.poisoned = -1;
    ls_status status = LS_OK;
    for (int d = 0; status == LS_OK && d < DEVICES; d++) {
        ls_device_options options = {.kind = LS_DEVICE_CPU, .index = d, .devices_on_node = 1000, .place = d};
        status = ls_device_open(&fake.devices[d], &options);
    }
    if (status != LS_OK) return status;
    fake.stream = ls_device_stream(fake.devices[0], LS_STREAM_COMPUTE);
    fake.base = (ls_parallel){.ops = &ops,
                              .world_size = 1,
                              .device_count = 2,
                              .local_device_count = 2,
                              .devices = {fake.devices[0], fake.devices[1]},
                              .loss_device = fake.devices[2]};
    fake.base.batch = fake.base.places.place;
    for (int i = 0; status == LS_OK && i < PLACES; i++)
        status = ls_event_create(&fake.base.places.place[i].used, "batch used");
    return status;
}

static void close_fake(void) {
    for (int i = 0; i < PLACES; i++) ls_event_destroy(fake.base.places.place[i].used);
    for (int d = 0; d < DEVICES; d++) ls_device_close(fake.devices[d]);
}

/* --- which calls, and what a failure does --------------------------------------------------------------------------- */

static void see_calls(probe *p, int k, int of, ls_status (*run)(ls_parallel *)) {
    fake.calls[0] = '\0';
    fake.base.batch->index = k;
    fake.base.micro_batches = of;
    char said[256];
    ls_log_sink before = ls_log_capture(said, sizeof said);
    ls_status status = run(&fake.base);
    ls_log_restore(before);
    probe_see(p, "what is called", "%s", fake.calls);
    probe_see(p, "what it returns", "%s", ls_status_text(status));
}

/* The pieces that are checked: all of a few; of many the first ones, the last, and those around the limits of 8 and 16
 * bits. */
static int next_piece(int k, int of) {
    static const int edges[] = {127, 255, 256, 32767, 65535, 65536};
    if (k < 8 || k >= of - 2) return k + 1;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        if (k < edges[i] && edges[i] < of) return edges[i];
    return of - 2;
}

static void see_good(probe *p, int of, bool no_sync) {
    for (int k = 0; k < of; k = next_piece(k, of)) {
        probe_case(p, "micro-batch %d of %d%s, all goes well", k, of, no_sync ? ", no_sync" : "");
        probe_must(p, "the devices", open_fake());
        fake.base.no_sync = no_sync;
        see_calls(p, k, of, ls_parallel_run_micro_batch);
        close_fake();
    }
}

static void see_failure(probe *p, enum call call, ls_status returned, int poisoned) {
    static const char *const whose[DEVICES] = {"device 0", "device 1", "the loss device"};
    for (int k = 0; k <= 2; k++) { /* 2: the update */
        char turn[32];
        snprintf(turn, sizeof turn, k < 2 ? "micro-batch %d of 2" : "the update", k);
        probe_case(p, "%s, %s %s%s", turn, call_names[call], poisoned < 0 ? "returns: " : "lets a device fail: ",
                   poisoned < 0 ? ls_status_text(returned) : whose[poisoned]);
        probe_must(p, "the devices", open_fake());
        fake.failing = call;
        fake.returned = returned;
        fake.poisoned = poisoned;
        see_calls(p, k < 2 ? k : 0, 2, k < 2 ? ls_parallel_run_micro_batch : ls_step_update);
        close_fake();
    }
}

static void see_update(probe *p) {
    probe_case(p, "the update, all goes well");
    probe_must(p, "the devices", open_fake());
    see_calls(p, 0, 1, ls_step_update);
    close_fake();
}

void see_turns(probe *p) {
    static const int many[] = {8, 9, 16, 257, 300, (1 << 16) + 1};
    for (int of = 1; of <= 5; of++) see_good(p, of, false);
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) see_good(p, many[i], false);
    for (int of = 1; of <= 2; of++) see_good(p, of, true);
    see_update(p);
    static const ls_status failures[] = {
#define FAILURE_ROW(name, value, exit_code, text) LS_##name,
        LS_STATUS_MAP(FAILURE_ROW)
#undef FAILURE_ROW
    };
    for (enum call call = FORWARD_BACKWARD; call < CALLS; call++) {
        for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
            if (failures[i] != LS_OK) see_failure(p, call, failures[i], -1);
        for (int d = 0; d < DEVICES; d++) see_failure(p, call, LS_OK, d);
    }
}

/* --- the end of a backward ------------------------------------------------------------------------------------------ */

void __real_ls_event_record(ls_event *event, ls_stream *stream);
void __wrap_ls_event_record(ls_event *event, ls_stream *stream);
void __wrap_ls_event_record(ls_event *event, ls_stream *stream) {
    if (fake.is_watched) {
        int place = 0;
        while (place < PLACES && fake.base.places.place[place].used != event) place++;
        size_t length = strlen(fake.records);
        snprintf(fake.records + length, sizeof fake.records - length, "place %d%s ", place,
                 stream == fake.stream ? "" : " on another stream");
    }
    __real_ls_event_record(event, stream);
}

static void see_end(probe *p, int k, int of, bool no_sync, bool is_capturing, bool accumulated) {
    ls_parallel *base = &fake.base;
    base->batch = &base->places.place[k % PLACES];
    base->batch->index = k;
    base->micro_batches = of;
    base->no_sync = no_sync;
    base->is_capturing = is_capturing;
    base->accumulates = accumulated;
    fake.records[0] = '\0';
    probe_case(p, "micro-batch %d of %d%s%s, the batch lies at place %d, what was there was %s", k, of,
               no_sync ? ", no_sync" : "", is_capturing ? ", captured" : "", k % PLACES,
               accumulated ? "added to" : "overwritten");
    probe_see(p, "whether it communicates", "%s", ls_parallel_syncs(base) ? "yes" : "no");
    fake.is_watched = true;
    ls_parallel_end_backward(base, fake.stream);
    fake.is_watched = false;
    probe_see(p, "whether the next backward adds to its gradients", "%s", base->accumulates ? "yes" : "no");
    probe_see(p, "records of \"used\"", "%s", fake.records[0] ? fake.records : "none");
}

void see_ends(probe *p) {
    probe_must(p, "the devices", open_fake());
    for (int manner = 0; manner < 8; manner++)
        for (int i = 0; i < 9; i++) {
            static const int ofs[] = {1, 2, 3, 4, 5, 8, 17, 257, (1 << 16) + 1};
            for (int k = 0; k < ofs[i]; k = next_piece(k, ofs[i]))
                see_end(p, k, ofs[i], manner & 1, manner & 4, manner & 2);
        }
    close_fake();
}
