#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "tests/base/test.h"
#include "tests/device/modes.h"

struct devices open_devices(const char *mode) {
    struct devices devices = {.mode = mode};
    assert_int_equal(setenv("LS_CPU_STREAMS", mode, 1), 0);
    for (int d = 0; d < DEVICE_COUNT; d++) {
        ls_device_options options = {.kind = LS_DEVICE_CPU, .index = d, .devices_on_node = DEVICE_COUNT, .place = d};
        assert_int_equal(ls_device_open(&devices.device[d], &options), LS_OK);
    }
    unsetenv("LS_CPU_STREAMS");
    return devices;
}

void close_devices(struct devices *devices) {
    for (int d = 0; d < DEVICE_COUNT; d++) ls_device_close(devices->device[d]);
}

void in_every_mode(void (*check)(struct devices *devices)) {
    char mode[32] = "inline";
    for (int i = 0; i < 12; i++) {
        struct devices devices = open_devices(mode);
        check(&devices);
        close_devices(&devices);
        snprintf(mode, sizeof mode, i == 0 ? "threads" : "shuffle:%d", i * 977);
    }
}

ls_stream *stream_of(const struct devices *devices, int device, ls_stream_kind kind) {
    return ls_device_stream(devices->device[device], kind);
}

void all_done(const struct devices *devices) {
    for (int d = 0; d < DEVICE_COUNT; d++) assert_int_equal(ls_device_synchronize(devices->device[d]), LS_OK);
}

ls_event *new_event(const char *name) {
    ls_event *event;
    assert_int_equal(ls_event_create(&event, name), LS_OK);
    return event;
}
