/* resolve_index — collects from all records what is needed before the first task is created.
 *   idea  : a thread's records are in the order in which they ended, so the records within a RUN directly precede it;
 *           one backward pass finds them. Then all objects that records refer to by name go into hash tables (flags:
 *           into a sorted list, because a wait for 3 also ends at 5)
 *   lanes : each thread that did more than run streams has one, and each stream on which work was launched. Threads
 *           come first, by device and name, then streams by device and kind, so that two runs of a program have their
 *           lanes in the same order, independent of which thread wrote first */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/trace/resolve_internal.h"

ls_status ls_resolve_no_memory(void) {
    return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to make a trace of the records");
}

const struct ls_probe_record *ls_resolve_record(const struct ls_resolve *resolve, int place) {
    const struct ls_record_place *at = &resolve->places[place];
    return &resolve->threads[at->thread].probe->records[at->record];
}

/* --- the records within a RUN ------------------------------------------------------------------------------------- */

static bool is_sound(const struct ls_probe_record *record) {
    return isfinite(record->begin_us) && isfinite(record->end_us) && record->end_us >= record->begin_us &&
           isfinite(record->begin_cpu_us) && isfinite(record->end_cpu_us) && record->kind < LS_PROBE_COUNT;
}

static ls_status find_insides(struct ls_resolved_thread *thread) {
    const struct ls_probe_record *records = thread->probe->records;
    int count = (int)thread->probe->count, run = LS_NONE;
    thread->inside = calloc((size_t)count + 1, sizeof *thread->inside);
    if (!thread->inside) return ls_resolve_no_memory();
    for (int i = count - 1; i >= 0; i--) {
        if (!is_sound(&records[i]))
            return ls_fail(LS_ERR_INVALID, "record %d of thread \"%s\" lasts from %.3f us to %.3f us", i,
                           thread->probe->name, records[i].begin_us, records[i].end_us);
        if (run != LS_NONE && records[i].begin_us < records[run].begin_us) run = LS_NONE;
        thread->inside[i] = run;
        /* the RUN of a GPU is recorded afterwards: no records are within it */
        bool in_order = i == 0 || records[i].end_us >= records[i - 1].end_us;
        if (run == LS_NONE && records[i].kind == LS_PROBE_RUN && in_order) run = i;
    }
    return LS_OK;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static int add_place(struct ls_resolve *resolve, int thread, int record) {
    if (!ls_trace_room(&resolve->places, resolve->place_count, &resolve->place_capacity, sizeof *resolve->places))
        return LS_NONE;
    resolve->places[resolve->place_count] = (struct ls_record_place){thread, record, LS_NONE};
    return resolve->place_count++;
}

static ls_status add_run(struct ls_resolve *resolve, int thread, int index, const struct ls_probe_record *record) {
    int *at = ls_pair_map_at(&resolve->runs, record->object, record->number);
    if (at && *at != LS_NONE)
        return ls_fail(LS_ERR_INVALID, "a stream of device %d ran its work %" PRIu32 " (\"%s\") twice", record->device,
                       record->number, record->label);
    int place = add_place(resolve, thread, index);
    if (!at || place == LS_NONE) return ls_resolve_no_memory();
    *at = place;
    return LS_OK;
}

/* A MEETING belongs to the RUN (or, if streams are not timed, the LAUNCH) within which it was written: the next one of
 * its thread that began before it. */
static ls_status add_meeting(struct ls_resolve *resolve, int thread, int index) {
    const struct ls_probe_thread *probe = resolve->threads[thread].probe;
    const struct ls_probe_record *meeting = &probe->records[index], *within = NULL;
    for (size_t i = (size_t)index + 1; i < probe->count && !within; i++) {
        const struct ls_probe_record *record = &probe->records[i];
        bool is_work = record->kind == LS_PROBE_RUN || record->kind == LS_PROBE_LAUNCH;
        if (is_work && record->begin_us <= meeting->begin_us) within = record;
    }
    if (!within)
        return ls_fail(LS_ERR_INVALID, "thread \"%s\" recorded a meeting (\"%s\") outside any work of a stream",
                       probe->name, meeting->label);
    int *at = ls_pair_map_at(&resolve->meetings, within->object, within->number);
    if (at && *at != LS_NONE)
        return ls_fail(LS_ERR_INVALID, "a stream of device %d recorded two meetings in its work %" PRIu32 " (\"%s\")",
                       within->device, within->number, within->label);
    int place = add_place(resolve, thread, index);
    if (!at || place == LS_NONE) return ls_resolve_no_memory();
    *at = place;
    return LS_OK;
}

static ls_status add_raise(struct ls_resolve *resolve, int thread, int index) {
    if (add_place(resolve, thread, index) == LS_NONE) return ls_resolve_no_memory();
    resolve->raise_count++;
    return LS_OK;
}

static ls_status add_stream(struct ls_resolve *resolve, const struct ls_probe_record *launch) {
    int *at = ls_pair_map_at(&resolve->stream_by_object, launch->object, 0);
    if (!at) return ls_resolve_no_memory();
    if (*at != LS_NONE) return LS_OK;
    if (!ls_trace_room(&resolve->streams, resolve->stream_count, &resolve->stream_capacity, sizeof *resolve->streams))
        return ls_resolve_no_memory();
    resolve->streams[resolve->stream_count] = (struct ls_resolved_stream){.object = launch->object,
                                                                          .device = launch->device,
                                                                          .kind = launch->stream_kind,
                                                                          .lane = LS_NONE,
                                                                          .last_task = LS_NONE,
                                                                          .runs_inline = true};
    *at = resolve->stream_count++;
    return LS_OK;
}

static ls_status index_thread(struct ls_resolve *resolve, int number) {
    struct ls_resolved_thread *thread = &resolve->threads[number];
    ls_status status = find_insides(thread);
    thread->next_place = resolve->place_count;
    for (int i = 0; status == LS_OK && i < (int)thread->probe->count; i++) {
        const struct ls_probe_record *record = &thread->probe->records[i];
        switch ((ls_probe_kind)record->kind) {
        case LS_PROBE_RUN: status = add_run(resolve, number, i, record); break;
        case LS_PROBE_MEETING: status = add_meeting(resolve, number, i); break;
        case LS_PROBE_RAISE: status = add_raise(resolve, number, i); break;
        case LS_PROBE_LAUNCH: status = add_stream(resolve, record); break;
        default: break;
        }
    }
    return status;
}

/* --- flags -------------------------------------------------------------------------------------------------------- */

/* qsort has no context argument, so the entries hold their sort keys. */
struct raise_key {
    uintptr_t object;
    uint32_t number;
    double at_us;
    int place;
};

static int compare_raises(const void *a, const void *b) {
    const struct raise_key *left = a, *right = b;
    if (left->object != right->object) return left->object < right->object ? -1 : 1;
    if (left->number != right->number) return left->number < right->number ? -1 : 1;
    if (left->at_us != right->at_us) return left->at_us < right->at_us ? -1 : 1;
    return (left->place > right->place) - (left->place < right->place);
}

static ls_status sort_raises(struct ls_resolve *resolve) {
    size_t room = (size_t)resolve->raise_count + 1;
    struct raise_key *keys = malloc(room * sizeof *keys);
    resolve->raises = malloc(room * sizeof *resolve->raises);
    if (!keys || !resolve->raises) {
        free(keys);
        return ls_resolve_no_memory();
    }
    int count = 0;
    for (int i = 0; i < resolve->place_count; i++) {
        const struct ls_probe_record *record = ls_resolve_record(resolve, i);
        if (record->kind == LS_PROBE_RAISE)
            keys[count++] = (struct raise_key){record->object, record->number, record->end_us, i};
    }
    qsort(keys, (size_t)count, sizeof *keys, compare_raises);
    for (int i = 0; i < count; i++) resolve->raises[i] = keys[i].place;
    free(keys);
    return LS_OK;
}

int ls_resolve_find_raise(const struct ls_resolve *resolve, uintptr_t object, uint32_t number) {
    int low = 0, high = resolve->raise_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct ls_probe_record *record = ls_resolve_record(resolve, resolve->raises[middle]);
        bool is_before = record->object < object || (record->object == object && record->number < number);
        if (is_before)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == resolve->raise_count) return LS_NONE;
    return ls_resolve_record(resolve, resolve->raises[low])->object == object ? resolve->raises[low] : LS_NONE;
}

/* --- lanes -------------------------------------------------------------------------------------------------------- */

static bool is_of_the_host(const struct ls_resolved_thread *thread, size_t index) {
    int kind = thread->probe->records[index].kind;
    return kind != LS_PROBE_RUN && kind != LS_PROBE_MEETING && thread->inside[index] == LS_NONE;
}

/* The device on which a thread launches most; the first of several. `launches` has a zero per device. */
static int driven_device(const struct ls_resolved_thread *thread, int *launches, int device_count) {
    int driven = LS_NONE;
    for (size_t i = 0; i < thread->probe->count; i++) {
        const struct ls_probe_record *record = &thread->probe->records[i];
        if (record->kind == LS_PROBE_LAUNCH && record->device >= 0 && is_of_the_host(thread, i))
            launches[record->device]++;
    }
    for (int d = 0; d < device_count; d++)
        if (launches[d] > 0 && (driven == LS_NONE || launches[d] > launches[driven])) driven = d;
    return driven;
}

/* A thread that has a lane, and the sort keys of lanes. */
struct host_lane {
    int thread, device;
    const char *name;
};

/* By device, threads without a device last; then by name; then by which wrote first. */
static int compare_host_lanes(const void *a, const void *b) {
    const struct host_lane *left = a, *right = b;
    if (left->device != right->device) {
        if (left->device == LS_NONE || right->device == LS_NONE) return left->device == LS_NONE ? 1 : -1;
        return left->device - right->device;
    }
    int order = strcmp(left->name, right->name);
    return order != 0 ? order : left->thread - right->thread;
}

static bool has_lane(const struct ls_resolved_thread *thread) {
    for (size_t i = 0; i < thread->probe->count; i++)
        if (is_of_the_host(thread, i)) return true;
    return false;
}

static int count_devices(const struct ls_resolve *resolve) {
    int count = 0;
    for (int s = 0; s < resolve->stream_count; s++)
        if (resolve->streams[s].device >= count) count = resolve->streams[s].device + 1;
    return count;
}

static ls_status add_host_lanes(struct ls_resolve *resolve) {
    int device_count = count_devices(resolve), lane_count = 0;
    struct host_lane *lanes = calloc((size_t)resolve->thread_count + 1, sizeof *lanes);
    for (int t = 0; lanes && t < resolve->thread_count; t++) {
        struct ls_resolved_thread *thread = &resolve->threads[t];
        const char *name = thread->probe->name;
        if (!has_lane(thread)) continue;
        int *launches = calloc((size_t)device_count + 1, sizeof *launches);
        if (!launches) {
            free(lanes);
            return ls_resolve_no_memory();
        }
        lanes[lane_count++] = (struct host_lane){t, driven_device(thread, launches, device_count), name ? name : ""};
        free(launches);
    }
    if (!lanes) return ls_resolve_no_memory();
    qsort(lanes, (size_t)lane_count, sizeof *lanes, compare_host_lanes);
    for (int l = 0; l < lane_count; l++) {
        int device = lanes[l].device;
        struct ls_lane lane = {.name = lanes[l].name,
                               .kind = LS_LANE_HOST,
                               .rank = resolve->rank,
                               .device = device == LS_NONE ? LS_NONE : resolve->first_device + device};
        resolve->threads[lanes[l].thread].lane = ls_trace_add_lane(resolve->trace, &lane);
    }
    free(lanes);
    return LS_OK;
}

static int compare_streams(const void *a, const void *b) {
    const struct ls_resolved_stream *left = a, *right = b;
    if (left->device != right->device) return left->device - right->device;
    return left->kind - right->kind;
}

static ls_status add_stream_lanes(struct ls_resolve *resolve) {
    /* ls_stream_kind, whose header is not available in this folder: compute, copy, comm */
    static const ls_lane_kind kinds[] = {LS_LANE_COMPUTE, LS_LANE_COPY, LS_LANE_COMM};
    if (resolve->stream_count > 0)
        qsort(resolve->streams, (size_t)resolve->stream_count, sizeof *resolve->streams, compare_streams);
    for (int s = 0; s < resolve->stream_count; s++) {
        struct ls_resolved_stream *stream = &resolve->streams[s];
        if (stream->device < 0 || stream->kind >= (int)(sizeof kinds / sizeof *kinds))
            return ls_fail(LS_ERR_INVALID, "work was launched on a stream of unknown kind %d of device %d",
                           stream->kind, stream->device);
        struct ls_lane lane = {.name = ls_lane_kind_name(kinds[stream->kind]),
                               .kind = kinds[stream->kind],
                               .rank = resolve->rank,
                               .device = resolve->first_device + stream->device};
        stream->lane = ls_trace_add_lane(resolve->trace, &lane);
        int *at = ls_pair_map_at(&resolve->stream_by_object, stream->object, 0);
        if (at) *at = s; /* the entry exists, so this allocates no memory */
    }
    return LS_OK;
}

/* A stream is inline if each of its RUNs is within the LAUNCH of the same work. */
static void find_inline_streams(struct ls_resolve *resolve) {
    for (int t = 0; t < resolve->thread_count; t++) {
        const struct ls_probe_thread *probe = resolve->threads[t].probe;
        for (size_t i = 0; i < probe->count; i++) {
            const struct ls_probe_record *launch = &probe->records[i];
            if (launch->kind != LS_PROBE_LAUNCH) continue;
            int run = ls_pair_map_find(&resolve->runs, launch->object, launch->number);
            bool within = run != LS_NONE && resolve->places[run].thread == t &&
                          ls_resolve_record(resolve, run)->begin_us >= launch->begin_us &&
                          ls_resolve_record(resolve, run)->end_us <= launch->end_us;
            int stream = ls_pair_map_find(&resolve->stream_by_object, launch->object, 0);
            if (!within) resolve->streams[stream].runs_inline = false;
        }
    }
}

ls_status ls_resolve_index(struct ls_resolve *resolve) {
    ls_status status = LS_OK;
    for (int t = 0; status == LS_OK && t < resolve->thread_count; t++) status = index_thread(resolve, t);
    if (status == LS_OK) status = sort_raises(resolve);
    if (status != LS_OK) return status;
    status = add_host_lanes(resolve);
    if (status == LS_OK) status = add_stream_lanes(resolve);
    if (status == LS_OK) find_inline_streams(resolve);
    return status;
}
