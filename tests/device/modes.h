/* The stream modes of a CPU device, for tests that must pass in each. */
#ifndef TESTS_DEVICE_MODES_H
#define TESTS_DEVICE_MODES_H

#include "common/device/device.h"

#define DEVICE_COUNT 2

struct devices {
    const char *mode; /* a value of LS_CPU_STREAMS */
    ls_device *device[DEVICE_COUNT];
};

/* Opens two devices in the mode. Close them before the next call. */
struct devices open_devices(const char *mode);
void close_devices(struct devices *devices);

/* Calls `check` with devices of each mode in turn: inline, threads, and shuffle with several seeds. */
void in_every_mode(void (*check)(struct devices *devices));

ls_stream *stream_of(const struct devices *devices, int device, ls_stream_kind kind);

/* Asserts that all work on all devices is done and succeeded. */
void all_done(const struct devices *devices);

/* Creates an event. Destroy it after the devices' work has ended. */
ls_event *new_event(const char *name);

#endif
