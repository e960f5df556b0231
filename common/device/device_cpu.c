/* device_cpu — a CPU core in place of a GPU: its own memory pool, real copies, one compute thread, three streams.
 * Devices are spread over the cores that this process may use (hwloc_distrib keeps them on different physical cores
 * where it can; where hwloc finds no topology, the process's affinity mask is used). oneDNN and OpenMP are limited to
 * the device's one thread: a device that borrowed its neighbour's core would falsify every scaling figure. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/base/room.h"
#include "common/device/cpu_streams.h"

/* --- how the streams run ----------------------------------------------------------------------------------------- */

static ls_status choose_policies(const ls_device *device, const struct ls_stream_policy **compute,
                                 const struct ls_stream_policy **other) {
    const char *mode = getenv("LS_CPU_STREAMS");
    /* a worker pays off if there is a core on which no device computes */
    bool core_is_free = device->options.devices_on_node < ls_usable_cores();
    if (!mode) mode = core_is_free ? "threads" : "inline";
    *compute = *other = &ls_policy_inline;
    if (strcmp(mode, "inline") == 0) return LS_OK;
    if (strcmp(mode, "threads") == 0) {
        *other = &ls_policy_worker;
        return LS_OK;
    }
    if (strncmp(mode, "shuffle:", 8) == 0) {
        char *end = NULL;
        errno = 0;
        uint64_t seed = strtoull(mode + 8, &end, 10);
        if (errno == 0 && end != mode + 8 && *end == '\0') {
            ls_shuffle_seed(seed);
            *compute = *other = &ls_policy_shuffle;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_USAGE, "LS_CPU_STREAMS is \"%s\"; expected threads, inline or shuffle:SEED", mode);
}

static void close_streams(ls_device *device) {
    for (int s = LS_STREAM_COUNT - 1; s >= 0; s--) {
        ls_stream *stream = device->streams[s];
        if (!stream) continue;
        ls_cpu_stream_of(stream)->policy->stop(stream);
        free(stream);
    }
}

static ls_status cpu_open(ls_device *device) {
    const struct ls_stream_policy *compute, *other;
    ls_status status = choose_policies(device, &compute, &other);
    if (status != LS_OK) return status;
    device->stream_mode = other->name;
    device->runs_behind = compute == &ls_policy_shuffle;
    device->spin_us = ls_spin_us_for(device->options.devices_on_node);
    for (int s = 0; s < LS_STREAM_COUNT; s++) {
        ls_stream *stream = calloc(1, sizeof(struct ls_cpu_stream));
        status = stream ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a stream");
        if (stream) {
            stream->device = device;
            stream->kind = (ls_stream_kind)s;
            ls_cpu_stream_of(stream)->policy = s == LS_STREAM_COMPUTE ? compute : other;
            status = ls_cpu_stream_of(stream)->policy->start(stream);
        }
        if (status != LS_OK) {
            free(stream);
            close_streams(device);
            return status;
        }
        device->streams[s] = stream;
    }
    return LS_OK;
}

/* --- the device's core ------------------------------------------------------------------------------------------- */

/* The cores that this process may use, found once for all its devices: hwloc reads a hundred files, some milliseconds.
 * NULL: hwloc cannot find them (in a sandbox that hides /sys), or has no memory. Kept until the process ends. */
static hwloc_topology_t topology;
static pthread_once_t topology_once = PTHREAD_ONCE_INIT;

static void load_topology(void) {
    if (ls_address_space_left() < LS_ROOM_BESIDE_THREADS || hwloc_topology_init(&topology) != 0) return;
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    bool loaded = usable && hwloc_topology_load(topology) == 0 && hwloc_topology_is_thissystem(topology) &&
                  hwloc_get_cpubind(topology, usable, HWLOC_CPUBIND_PROCESS) == 0 &&
                  hwloc_topology_restrict(topology, usable, 0) == 0;
    hwloc_bitmap_free(usable);
    if (loaded) return;
    hwloc_topology_destroy(topology);
    topology = NULL;
}

/* The core of the device at `place` of `count`; false if it cannot be found out. */
static bool core_for(int place, int count, hwloc_bitmap_t core) {
    hwloc_bitmap_t *cores = calloc((size_t)count, sizeof(hwloc_bitmap_t));
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    bool found = cores && hwloc_distrib(topology, &root, 1, cores, (unsigned)count, INT_MAX, 0) == 0;
    if (found) {
        hwloc_bitmap_copy(core, cores[place % count]);
        hwloc_bitmap_singlify(core);
        for (int i = 0; i < count; i++) hwloc_bitmap_free(cores[i]);
    }
    free(cores);
    return found;
}

/* False if there is no topology, or pinning is not permitted. */
static bool pin_by_topology(int place, int count) {
    pthread_once(&topology_once, load_topology);
    hwloc_bitmap_t core = topology ? hwloc_bitmap_alloc() : NULL;
    bool pinned = core && core_for(place, count, core) && hwloc_set_cpubind(topology, core, HWLOC_CPUBIND_THREAD) == 0;
    hwloc_bitmap_free(core);
    return pinned;
}

static void pin_thread(const ls_device *device) {
    int place = device->options.place, count = device->options.devices_on_node;
    if (count > ls_usable_cores()) return; /* devices share cores: the scheduler assigns them better than we would */
    if (!pin_by_topology(place, count)) ls_run_on_core(place, count);
}

/* hwloc prints errors to stderr, and loads plug-ins for displays, OpenCL and PCI, which take longer than finding the
 * cores. Environment variables turn this off; they must not be changed once there are threads. A user's settings are
 * kept. */
__attribute__((constructor)) static void restrain_hwloc(void) {
    (void)setenv("HWLOC_HIDE_ERRORS", "2", 0);
    (void)setenv("HWLOC_PLUGINS_PATH", "/dev/null", 0);
}

static ls_status cpu_bind_thread(const ls_device *device) {
    pin_thread(device);
    /* oneDNN's own OpenMP, whichever it was built with; without one there is nothing to limit */
    void (*set_num_threads)(int);
    *(void **)&set_num_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_num_threads) set_num_threads(1);
    return LS_OK;
}

/* --- memory and work --------------------------------------------------------------------------------------------- */

/* Pages given back to the kernel read as zeros, and take no memory until they are touched. */
static void clear(char *memory, size_t nbytes) {
    enum { PAGE = 4096, FEW_PAGES = 16 * PAGE };
    char *first = memory + (PAGE - (uintptr_t)memory % PAGE) % PAGE, *end = memory + nbytes;
    char *last = end - (uintptr_t)end % PAGE;
    if (nbytes < FEW_PAGES || madvise(first, (size_t)(last - first), MADV_DONTNEED) != 0) first = last = end;
    memset(memory, 0, (size_t)(first - memory));
    memset(last, 0, (size_t)(end - last));
}

static ls_status cpu_memory_alloc(ls_device *device, size_t nbytes, void **out) {
    (void)device;
    size_t rounded = nbytes > 0 ? (nbytes + 63) / 64 * 64 : 64;
    *out = rounded >= nbytes && rounded <= PTRDIFF_MAX ? aligned_alloc(64, rounded) : NULL; /* no object is larger */
    if (!*out) return LS_ERR_NO_MEMORY;
    clear(*out, rounded);
    return LS_OK;
}

static void cpu_memory_free(ls_device *device, void *memory) {
    (void)device;
    free(memory);
}

enum manner { PLAIN, BRIEF, MEETS };

static ls_status launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes,
                        enum manner manner) {
    if (ls_cpu_stream_of(stream)->policy == &ls_policy_inline) { /* the hot path: no copy of the arguments */
        uint32_t number = ls_stream_launch_number(stream);
        return number == 0 ? task(arguments) : ls_probe_run_task(stream, label, number, task, arguments);
    }
    struct ls_item item = {.kind = LS_ITEM_TASK,
                           .label = label,
                           .task = task,
                           .brief = manner == BRIEF,
                           .meets = manner == MEETS,
                           .number = ls_stream_launch_number(stream)};
    if (nbytes > 0) memcpy(item.arguments, arguments, nbytes);
    return ls_cpu_stream_of(stream)->policy->enqueue(stream, &item);
}

static ls_status cpu_launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments, size_t nbytes,
                            bool meets) {
    return launch(stream, label, task, arguments, nbytes, meets ? MEETS : PLAIN);
}

/* A copy of so many bytes takes about as long as waking a sleeping thread. */
#define LS_BRIEF_COPY_NBYTES ((size_t)256 << 10)

struct copy_arguments {
    void *destination;
    const void *source;
    size_t nbytes;
};

static ls_status copy_task(const void *arguments) {
    const struct copy_arguments *copy = arguments;
    memcpy(copy->destination, copy->source, copy->nbytes);
    return LS_OK;
}

static ls_status cpu_copy(ls_stream *stream, void *destination, const void *source, size_t nbytes) {
    struct copy_arguments copy = {destination, source, nbytes};
    return launch(stream, "copy", copy_task, &copy, sizeof copy, nbytes <= LS_BRIEF_COPY_NBYTES ? BRIEF : PLAIN);
}

static ls_status cpu_stream_wait_event(ls_stream *stream, ls_event *event) {
    uint32_t ticket = atomic_load(&event->recorded);
    if (ticket == 0) return LS_OK; /* CUDA's rule: never recorded, nothing to wait for */
    struct ls_item item = {.kind = LS_ITEM_WAIT, .label = event->name, .event = event, .ticket = ticket};
    return ls_cpu_stream_of(stream)->policy->enqueue(stream, &item);
}

/* Tickets must complete in ascending order. Within a stream they do; where an event is recorded on another stream than
 * before, that stream waits for the earlier records. */
static ls_status cpu_event_record(ls_event *event, ls_stream *stream) {
    if (event->stream != stream) {
        ls_status status = cpu_stream_wait_event(stream, event);
        if (status != LS_OK) return status;
        event->stream = stream;
    }
    uint32_t ticket = atomic_fetch_add(&event->recorded, 1) + 1;
    struct ls_item item = {.kind = LS_ITEM_RECORD, .label = event->name, .event = event, .ticket = ticket};
    return ls_cpu_stream_of(stream)->policy->enqueue(stream, &item);
}

static ls_status cpu_event_synchronize(ls_event *event) {
    return ls_cpu_stream_of(event->stream)->policy->reach(event, atomic_load(&event->recorded));
}

static ls_status cpu_stream_synchronize(ls_stream *stream) { return ls_cpu_stream_of(stream)->policy->drain(stream); }

const struct ls_backend ls_backend_cpu = {
    .name = "cpu",
    .memory_is_host = true,
    .open = cpu_open,
    .close = close_streams,
    .bind_thread = cpu_bind_thread,
    .memory_alloc = cpu_memory_alloc,
    .memory_free = cpu_memory_free,
    .launch = cpu_launch,
    .copy = cpu_copy,
    .event_record = cpu_event_record,
    .stream_wait_event = cpu_stream_wait_event,
    .event_synchronize = cpu_event_synchronize,
    .stream_synchronize = cpu_stream_synchronize,
};
