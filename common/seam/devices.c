/* devices — makes a list of devices from the user's options and the machine's hardware.
 *   idea  : "auto" takes GPUs if there are any, so no option is needed; --verbose prints the choice and its reason.
 *           A launcher must not use CUDA, whose threads and contexts do not survive a fork: it detects GPUs in a child
 *           process, which reports through a pipe and ends
 *   fails : a GPU is requested and not available: one line names the reason. A child that crashes or hangs in the
 *           driver counts as "no GPU" */
#define _GNU_SOURCE
#include "common/seam/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/device/plugin.h"
#include "kernels/cpu/cpu.h"

/* --- detecting GPUs in a child process ---------------------------------------------------------------------------- */

/* A driver that initialises many GPUs takes seconds; one that takes longer than this hangs. */
#define DRIVER_DEADLINE_S 60

struct found {
    int count;
    char text[512]; /* their names, or why there is none */
};

static void send_found(int fd, pid_t parent) {
    struct found found = {0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent) _exit(1);
    ls_find_gpus(&found.count, found.text, sizeof found.text);
    if (found.count > 0) ls_list_gpus(found.text, sizeof found.text);
    ssize_t written = write(fd, &found, sizeof found);
    _exit(written == sizeof found ? 0 : 1);
}

/* Whether the child has sent a complete answer before the deadline. */
static bool receive_found(int fd, struct found *found, bool *timed_out) {
    struct pollfd readable = {fd, POLLIN, 0};
    int ready;
    do ready = poll(&readable, 1, DRIVER_DEADLINE_S * 1000);
    while (ready < 0 && errno == EINTR);
    *timed_out = ready == 0;
    return ready == 1 && read(fd, found, sizeof *found) == sizeof *found;
}

static void describe_end(int wait_status, bool timed_out, char *why, size_t capacity) {
    if (timed_out) {
        snprintf(why, capacity, "the driver did not answer within %d s", DRIVER_DEADLINE_S);
    } else if (WIFSIGNALED(wait_status)) {
        snprintf(why, capacity, "the process that looked for GPUs was killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    } else {
        snprintf(why, capacity, "the process that looked for GPUs ended without an answer");
    }
}

void ls_find_gpus_apart(int *count, char *text, size_t capacity) {
    struct found found;
    int ends[2], wait_status = 0;
    *count = 0;
    pid_t parent = getpid(), child = -1;
    if (pipe2(ends, O_CLOEXEC) == 0) {
        fflush(NULL);
        child = fork();
        if (child == 0) send_found(ends[1], parent);
        close(ends[1]);
    }
    if (child < 0) {
        snprintf(text, capacity, "cannot start a process that looks for GPUs: %s", strerror(errno));
        return;
    }
    bool timed_out, heard = receive_found(ends[0], &found, &timed_out);
    if (timed_out) kill(child, SIGKILL);
    while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR) continue;
    close(ends[0]);
    if (heard) {
        *count = found.count;
        snprintf(text, capacity, "%s", found.text);
    } else {
        describe_end(wait_status, timed_out, text, capacity);
    }
}

/* --- the kind --------------------------------------------------------------------------------------------------------- */

static ls_status check_cpu_options(const ls_train_options *o, bool tell) {
    if (o->cuda_graph) {
        return ls_fail(LS_ERR_USAGE, "--cuda-graph records the work of GPUs, but the devices are CPUs: leave "
                                     "--cuda-graph out, or give --device-kind cuda");
    }
    if (o->tf32 && tell) ls_note("--tf32 has no effect: CPU devices compute in fp32");
    if (o->debug_launches && tell) {
        ls_note("--debug-launches has no effect: operations of CPU devices report their failures where they happen");
    }
    return ls_cpu_kernels_check();
}

ls_status ls_devices_refuse_meta(const char *option) {
    return ls_fail(LS_ERR_USAGE,
                   "--%s cannot be combined with --device-kind meta, which computes nothing and records one rank: "
                   "leave the option out (--summary has the memory, --trace the operations)",
                   option);
}

/* Refuses options that need the values of numbers, which meta devices do not have. */
static ls_status check_meta_options(const ls_train_options *o) {
    const struct {
        const char *option;
        bool given;
    } refused[] = {
        {"cuda-graph", o->cuda_graph},
        {"init", o->init != NULL},
        {"save", o->save != NULL},
        {"resume", o->resume != NULL},
        {"resume-if-present", o->resume_if_present != NULL},
        {"metrics", o->metrics != NULL},
        {"save-weights", o->save_weights != NULL},
        {"dump-losses", o->dump_losses != NULL},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (refused[i].given) return ls_devices_refuse_meta(refused[i].option);
    }
    return LS_OK;
}

ls_status ls_devices_find(ls_device_choice *choice, const ls_train_options *o, int flags) {
    bool tell = (flags & LS_DEVICES_TELL) != 0;
    *choice = (ls_device_choice){.kind = LS_DEVICE_CPU};
    if (o->device_kind == LS_TRAIN_DEVICES_CPU) return check_cpu_options(o, tell);
    if (o->device_kind == LS_TRAIN_DEVICES_META) {
        choice->kind = LS_DEVICE_META;
        return check_meta_options(o);
    }
    (flags & LS_DEVICES_APART ? ls_find_gpus_apart : ls_find_gpus)(&choice->gpu_count, choice->found,
                                                                   sizeof choice->found);
    if (choice->gpu_count > 0) {
        choice->kind = LS_DEVICE_CUDA;
        if (o->device_kind == LS_TRAIN_DEVICES_AUTO && tell) {
            ls_detail("device-kind auto takes GPUs: there %s %d", choice->gpu_count == 1 ? "is" : "are",
                      choice->gpu_count);
        }
        return LS_OK;
    }
    if (o->device_kind == LS_TRAIN_DEVICES_CUDA) {
        return ls_fail(LS_ERR_UNSUPPORTED, "no GPU can be used: %s; use --device-kind cpu to run without one",
                       choice->found);
    }
    if (tell) ls_detail("device-kind auto takes the CPU: %s", choice->found);
    choice->gpu_expected = tell && ls_plugin_gpu_is_missed(choice->found);
    return check_cpu_options(o, tell);
}

/* --- the list --------------------------------------------------------------------------------------------------------- */

static ls_status refuse_repeated(const ls_device_choice *choice) {
    if (choice->kind == LS_DEVICE_CUDA) return LS_OK; /* logical devices of one GPU */
    for (int i = 0; i < choice->count; i++) {
        for (int j = 0; j < i; j++) {
            if (choice->indices[i] != choice->indices[j]) continue;
            return ls_fail(LS_ERR_USAGE, "device %d is named twice, which only GPUs may be: the devices are %s",
                           choice->indices[i], choice->kind == LS_DEVICE_META ? "meta" : "CPU");
        }
    }
    return LS_OK;
}

/* Suggests `count` ids of the existing GPUs: "0,1,0,1". */
static void suggest_ids(char *text, size_t capacity, int gpu_count, int count) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < count && length < capacity; i++) {
        length += (size_t)snprintf(text + length, capacity - length, i ? ",%d" : "%d", i % gpu_count);
    }
}

ls_status ls_devices_choose(ls_device_choice *choice, const ls_int_list *ids, int count) {
    bool gpus = choice->kind == LS_DEVICE_CUDA;
    if (ids->count == 0 && gpus && count > choice->gpu_count) {
        char names[4 * LS_MAX_DEVICES];
        suggest_ids(names, sizeof names, choice->gpu_count, count);
        return ls_fail(
            LS_ERR_USAGE,
            "--devices %d: there %s %d GPU%s; name shared ones with --device-ids %s, or give --device-kind cpu", count,
            choice->gpu_count == 1 ? "is" : "are", choice->gpu_count, choice->gpu_count == 1 ? "" : "s", names);
    }
    if (ids->count == 0 && count == 0 && choice->kind == LS_DEVICE_META) {
        return ls_fail(LS_ERR_USAGE, "meta devices have no default number: give --devices N");
    }
    _Static_assert(LS_INT_LIST_MAX <= LS_MAX_DEVICES, "a choice has room for every list");
    choice->count = ids->count > 0 ? ids->count : count > 0 ? count : gpus ? choice->gpu_count : ls_usable_cores();
    if (choice->count > LS_MAX_DEVICES) choice->count = LS_MAX_DEVICES;
    for (int i = 0; i < choice->count; i++) choice->indices[i] = ids->count > 0 ? ids->values[i] : i;
    return refuse_repeated(choice);
}

ls_status ls_devices_for_ranks(ls_device_choice *choice, const ls_int_list *ids, int local_ranks) {
    if (ids->count > 0 && ids->count != local_ranks) {
        return ls_fail(LS_ERR_USAGE,
                       "--device-ids names %d device%s for %d rank%s on this machine; name one for each rank",
                       ids->count, ids->count == 1 ? "" : "s", local_ranks, local_ranks == 1 ? "" : "s");
    }
    choice->count = local_ranks;
    for (int r = 0; r < local_ranks; r++) {
        choice->indices[r] = ids->count > 0 ? ids->values[r] : choice->gpu_count > 0 ? r % choice->gpu_count : r;
    }
    return refuse_repeated(choice);
}

ls_status ls_devices_check(const ls_device_choice *choice) {
    for (int i = 0; choice->kind == LS_DEVICE_CUDA && i < choice->count; i++) {
        if (choice->indices[i] < choice->gpu_count) continue;
        return ls_fail(LS_ERR_USAGE, "GPU %d does not exist; there are %s", choice->indices[i], choice->found);
    }
    return LS_OK;
}

int ls_devices_gpus(const ls_device_choice *choice) {
    int gpus = 0;
    for (int i = 0; choice->kind == LS_DEVICE_CUDA && i < choice->count; i++) {
        int earlier = 0;
        while (choice->indices[earlier] != choice->indices[i]) earlier++;
        gpus += earlier == i;
    }
    return gpus;
}

ls_status ls_devices_open(ls_device **out, const ls_device_choice *choice, int place, const ls_train_options *o) {
    ls_device_options device = {.kind = choice->kind,
                                .index = choice->indices[place],
                                .devices_on_node = choice->count,
                                .place = place,
                                .memory_capacity_bytes = o->device_memory_bytes,
                                .tf32 = o->tf32,
                                .check_launches = o->debug_launches,
                                .behind = o->meta_behind};
    return ls_device_open(out, &device);
}
