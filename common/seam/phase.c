#include "common/seam/phase.h"

static const struct {
    const char *name;
    bool communication;
} phases[] = {
#define LS_ROW(name, text, communication) {text, communication},
    LS_PHASE_MAP(LS_ROW)
#undef LS_ROW
};

const char *ls_phase_name(ls_phase phase) { return phases[phase].name; }
bool ls_phase_is_communication(ls_phase phase) { return phases[phase].communication; }

void ls_phase_begin(struct ls_phase_clock *clock, const ls_device *device) {
    clock->marked = ls_device_kind_of(device) == LS_DEVICE_CUDA ? device : NULL;
    ls_phase_reset(clock);
}

void ls_phase_reset(struct ls_phase_clock *clock) {
    double now_us = ls_now_us();
    *clock = (struct ls_phase_clock){
        .begun_us = now_us, .since_us = now_us, .phase = LS_PHASE_OTHER, .marked = clock->marked};
}
