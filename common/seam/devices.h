/* Chooses and opens the devices of a program, from --device-kind, --devices and --device-ids and the devices of the
 * machine. The same for dp_train and ddp_train. */
#ifndef LS_SEAM_DEVICES_H
#define LS_SEAM_DEVICES_H

#include "common/base/options.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

/* The order of --device-kind's choices. */
typedef enum ls_train_device_kind {
    LS_TRAIN_DEVICES_AUTO,
    LS_TRAIN_DEVICES_CPU,
    LS_TRAIN_DEVICES_CUDA,
    LS_TRAIN_DEVICES_META
} ls_train_device_kind;

typedef struct ls_device_choice {
    ls_device_kind kind;
    int gpu_count;   /* GPUs that this process can use; 0 for CPU devices */
    char found[512]; /* the GPUs as ls_list_gpus lists them (with LS_DEVICES_APART); or the reason why there are none */
    bool gpu_expected; /* auto chose the CPU although a GPU was expected */
    /* filled by ls_devices_choose or by ls_devices_for_ranks: one index for each device, place by place. Several
     * devices may share a GPU */
    int count;
    int indices[LS_MAX_DEVICES];
} ls_device_choice;

/* Flags of ls_devices_find. */
enum {
    /* prints auto's choice (ls_detail) and options without effect on it (ls_note); sets gpu_expected */
    LS_DEVICES_TELL = 1,
    /* detects GPUs in a child process, so that this one has neither CUDA nor its threads afterwards; called while
     * there are no other threads */
    LS_DEVICES_APART = 2
};

/* Fills in kind and GPUs. LS_ERR_UNSUPPORTED: GPUs are requested, and there are none; LS_ERR_USAGE: other options
 * contradict the kind. */
ls_status ls_devices_find(ls_device_choice *choice, const ls_train_options *options, int flags);

/* One process's devices: `ids` if it is not empty, otherwise the first `count`, which is 0 for all (GPUs, or cores).
 * LS_ERR_USAGE: more GPUs than exist, a CPU or meta device named twice, or meta devices without a number. Ids of GPUs
 * that do not exist are reported by ls_devices_open. */
ls_status ls_devices_choose(ls_device_choice *choice, const ls_int_list *ids, int count);

/* Chooses a device for each of the `local_ranks` ranks of this machine: ids[r], or r, or for GPUs r modulo their
 * number. LS_ERR_USAGE: the number of ids is not that of the ranks. */
ls_status ls_devices_for_ranks(ls_device_choice *choice, const ls_int_list *ids, int local_ranks);

/* LS_ERR_USAGE if a chosen GPU does not exist: for a process that does not open it itself (LS_DEVICES_APART). */
ls_status ls_devices_check(const ls_device_choice *choice);

/* Number of different GPUs among the choice. */
int ls_devices_gpus(const ls_device_choice *choice);

/* Opens the choice's device `place`. */
ls_status ls_devices_open(ls_device **out, const ls_device_choice *choice, int place, const ls_train_options *options);

/* ls_find_gpus in a child process, followed by ls_list_gpus if there are GPUs. As for LS_DEVICES_APART. */
void ls_find_gpus_apart(int *count, char *text, size_t capacity);

/* LS_ERR_USAGE, with the line that refuses this option (without dashes) on meta devices. */
ls_status ls_devices_refuse_meta(const char *option);

#endif
