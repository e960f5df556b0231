/* The ways in which a CPU device's streams run, for tests that must hold in each. */
#ifndef TESTS_DEVICE_MODES_H
#define TESTS_DEVICE_MODES_H

#include "common/device/device.h"

#define DEVICE_COUNT 2

struct devices {
    const char *mode; /* what LS_CPU_STREAMS says */
    ls_device *device[DEVICE_COUNT];
};

/* Opens two devices in the mode; they must be closed before the next call. */
struct devices open_devices(const char *mode);
void close_devices(struct devices *devices);

/* Calls `check` with devices of every mode in turn: inline, threads, and shuffle with several seeds. */
void in_every_mode(void (*check)(struct devices *devices));

ls_stream *stream_of(const struct devices *devices, int device, ls_stream_kind kind);

/* Asserts that all work on all devices is done and succeeded. */
void all_done(const struct devices *devices);

/* An event; destroy it after the devices have come to rest. */
ls_event *new_event(const char *name);

#endif
